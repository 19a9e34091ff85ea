"""What an attempt's listener answers: its routes below its token, and nothing else."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from urllib.parse import quote

from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from evalfleet.sandbox_ports import Routes


def attempt_app(token: str, routes: Routes) -> ASGIApp:
    """The application of one attempt: `routes` below `/<token>`; any other path is not there.

    An application sees its prefix as `root_path`, which `path` starts with, as ASGI has it; the token it never sees.
    `GET /<token>/` says that the gateway lives.
    """
    return _Guard(token, routes)


def attempts_app(attempts: Mapping[str, ASGIApp]) -> ASGIApp:
    """The application of all attempts that are served by one listener: each its own, by its token.

    What stands in `attempts` is looked up at each request.
    """

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        own = attempts.get(str(scope.get("path", ""))[1:].partition("/")[0])
        await (own or _REFUSAL)(scope, receive, send)

    return app


def route_of(prefixes: Iterable[str], path: str) -> str | None:
    """The longest prefix that `path` is, or lies below; None for none, and for a path that climbs."""
    if not {".", ".."}.isdisjoint(path.split("/")):
        return None
    fitting = [each for each in prefixes if path == each or path.startswith(each + "/")]
    return max(fitting, key=len, default=None)


_REFUSAL = PlainTextResponse("not found\n", status_code=404)


class _Guard:
    """Lets through what names the token, which it takes off the path; the answer to all else tells nothing."""

    def __init__(self, token: str, routes: Routes) -> None:
        self._token = token.encode()
        self._routes = routes
        self._alive = JSONResponse({"gateway": "evalfleet"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given, slash, rest = str(scope.get("path", ""))[1:].partition("/")
        path = slash + rest or "/"
        if scope["type"] != "http" or not hmac.compare_digest(given.encode("utf-8", "replace"), self._token):
            await _REFUSAL(scope, receive, send)
        elif (prefix := route_of(self._routes, path)) is not None:
            inner = {**scope, "path": path, "raw_path": self._raw(scope, path), "root_path": prefix}
            await self._routes[prefix](inner, receive, send)
        elif path == "/" and scope["method"] in {"GET", "HEAD"}:
            await self._alive(scope, receive, send)
        else:
            await _REFUSAL(scope, receive, send)

    def _raw(self, scope: Scope, path: str) -> bytes:
        """The path as it was sent, with what its quoting tells apart."""
        start, raw = b"/" + self._token, scope.get("raw_path") or b""
        return raw[len(start) :] if raw.startswith(start + b"/") else quote(path).encode()
