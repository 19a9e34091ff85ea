"""What an attempt's listener answers: its routes below its token, and nothing else."""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send


def attempt_app(token: str, routes: Sequence[BaseRoute]) -> ASGIApp:
    """The application of one attempt: `routes` below `/<token>`; any other path is not there.

    `GET /<token>/` says that it lives.
    """
    return _Guard(token, Starlette(routes=[Route("/", _alive), *routes]))


async def _alive(_: Request) -> Response:
    return JSONResponse({"gateway": "evalfleet"})


class _Guard:
    """Lets through what names the token, which it takes off the path; the answer to all else tells nothing."""

    def __init__(self, token: str, inner: ASGIApp) -> None:
        self._token = token.encode()
        self._inner = Starlette(routes=[Mount("/", inner)])
        self._refusal = PlainTextResponse("not found\n", status_code=404)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given, slash, rest = str(scope.get("path", ""))[1:].partition("/")
        if scope["type"] != "http" or not hmac.compare_digest(given.encode("utf-8", "replace"), self._token):
            await self._refusal(scope, receive, send)
            return
        path = slash + rest or "/"
        await self._inner({**scope, "path": path, "raw_path": path.encode()}, receive, send)
