"""The route `/model/<arm>`: an agent's requests to its model, with the arm's key put in, rationed and metered."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, Callable, Coroutine
from functools import cache
from typing import Any

import httpx
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from evalfleet.errors import AttemptFailure, ConfigurationError
from evalfleet.gateway.model_audit import ANSWER_LIMIT, ModelAudit
from evalfleet.gateway.model_request import (
    Asked,
    Refused,
    error_body,
    headers_back,
    headers_on,
    models_listed,
    read_request,
)
from evalfleet.gateway.model_usage import Meter
from evalfleet.grading.judge_wire import wait_asked
from evalfleet.model.model_call import Account, CallEnd, CallFate, ModelCall
from evalfleet.model.model_route import ModelUpstream
from evalfleet.ports import AdmittedCall, ModelDesk

#: Bytes of a request.
BODY_LIMIT = 64 << 20
#: Seconds that a request waits to be admitted before its agent is told to come again: some agents give up at once
#: when they are told, and most wait some minutes for the first byte of an answer.
HOLD = 120.0
#: Seconds: the longest silence of a provider, and the longest time to connect.
_SILENCE, _CONNECT = 600.0, 10.0
_THROTTLED = frozenset({429, 503, 529})


class ModelRoute:
    """The application of one attempt's route."""

    def __init__(self, upstream: ModelUpstream, desk: ModelDesk) -> None:
        self._upstream = upstream
        self._desk = desk
        self._audit = ModelAudit(upstream)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        path = str(scope["path"]).removeprefix(str(scope["root_path"]))
        try:
            if path == "/v1/models" and request.method == "GET":
                return await JSONResponse(models_listed(self._upstream))(scope, receive, send)
            asked = read_request(self._upstream, request.method, path, await _body(request))
            await _while_connected(receive, self._pass(asked, request, send))
        except Refused as refused:
            headers = {} if refused.retry_after is None else {"retry-after": f"{refused.retry_after:.0f}"}
            body = error_body(self._upstream.dialect, refused)
            await JSONResponse(body, status_code=refused.status, headers=headers)(scope, receive, send)
        except ClientDisconnect:
            return

    async def _pass(self, asked: Asked, request: Request, send: Send) -> None:
        """Send the request on, and its answer back as it comes. Raises Refused while nothing has gone back."""
        headers = headers_on(request.headers.items(), self._upstream, self._key())
        answer = _Answer(send, self._desk.clock.wall, ANSWER_LIMIT if self._upstream.keeps_bodies else 0)
        if asked.counts:
            return await self._exchange(asked, headers, answer)
        admitted = await self._admitted(asked)
        event, began = self._audit.request(asked.document), self._desk.clock.monotonic()
        self._desk.observe(event)
        try:
            await self._exchange(asked, headers, answer)
        finally:
            end, took = answer.end(), self._desk.clock.monotonic() - began
            admitted.end(end)
            self._desk.observe(self._audit.response(event, end, answer.status, took, bytes(answer.kept)))

    async def _exchange(self, asked: Asked, headers: dict[str, str], answer: _Answer) -> None:
        try:
            async with _exchange(asked, headers) as response:
                await answer.relay(response)
        except httpx.HTTPError as error:
            self._desk.note(f"model: {asked.url}: {type(error).__name__}: {error}")
            if answer.status is None:
                raise Refused(502, "api_error", "the model can't be reached") from error
            # an answer that has begun can only be cut

    def _key(self) -> str | None:
        try:
            return None if self._upstream.key is None else self._desk.secrets.resolve(self._upstream.key)
        except ConfigurationError as error:
            self._desk.note(f"model: {error}")
            raise Refused(401, "authentication_error", "the arm's key is not set") from error

    async def _admitted(self, asked: Asked) -> AdmittedCall:
        upstream = self._upstream
        account = Account(provider=upstream.provider, base_url=upstream.base_url, key=upstream.key, model=asked.model)
        call = ModelCall(account=account, input_bytes=len(asked.body), output_limit=asked.output_limit)
        try:
            async with asyncio.timeout(HOLD):
                return await self._desk.calls.admit(call)
        except TimeoutError as error:
            raise Refused(429, "rate_limit_error", "no call may be made now", retry_after=HOLD / 4) from error
        except AttemptFailure as failure:
            self._desk.fail(failure)
            raise Refused(429, "rate_limit_error", str(failure), retry_after=HOLD) from failure


class _Answer:
    """An answer on its way back: as far as it has come, its first bytes, and what it said of its usage."""

    def __init__(self, send: Send, now: Callable[[], float], keeps: int) -> None:
        self.status: int | None = None
        self.kept = bytearray()
        self._keeps = keeps
        self._now = now
        self._send = send
        self._retry_after: float | None = None
        self._meter: Meter | None = None
        self._whole = False

    async def relay(self, response: httpx.Response) -> None:
        self.status = response.status_code
        self._retry_after = wait_asked(response.headers.get("retry-after", ""), self._now())
        meter = self._meter = Meter(response.headers.get("content-type", "").startswith("text/event-stream"))
        headers = [
            (k.encode("latin-1"), v.encode("latin-1")) for k, v in headers_back(response.headers.items()).items()
        ]
        await self._send({"type": "http.response.start", "status": response.status_code, "headers": headers})
        async for piece in response.aiter_bytes():
            meter.take(piece)
            self.kept += piece[: self._keeps - len(self.kept)]
            await self._send({"type": "http.response.body", "body": piece, "more_body": True})
        self._whole = True
        await self._send({"type": "http.response.body", "body": b""})

    def end(self) -> CallEnd:
        """How the call ended."""
        usage = None if self._meter is None else self._meter.usage
        if self.status is None or not self._whole:
            return CallEnd(fate=CallFate.BROKEN, usage=usage)
        if self.status in _THROTTLED:
            return CallEnd(fate=CallFate.THROTTLED, retry_after=self._retry_after)
        if self.status >= 500:
            return CallEnd(fate=CallFate.BROKEN)
        return CallEnd(fate=CallFate.ANSWERED if self.status < 300 else CallFate.REFUSED, usage=usage)


@contextlib.asynccontextmanager
async def _exchange(asked: Asked, headers: dict[str, str]) -> AsyncGenerator[httpx.Response]:
    # a connection a call: who would close those that are kept when the attempt is over?
    timeout = httpx.Timeout(_SILENCE, connect=_CONNECT)
    mounts: dict[str, None] = {"all://localhost": None, "all://127.0.0.1": None}  # a proxy can't reach this machine
    async with (
        httpx.AsyncClient(timeout=timeout, verify=_certificates(), mounts=mounts) as client,
        client.stream(
            "POST", asked.url, content=asked.body, headers={**headers, "accept-encoding": "identity"}
        ) as response,
    ):
        yield response


@cache
def _certificates() -> ssl.SSLContext:
    return httpx.create_ssl_context()


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > BODY_LIMIT:
            raise Refused(413, "request_too_large", f"the body is larger than {BODY_LIMIT >> 20} MiB")
    return bytes(body)


async def _while_connected(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Do `work` until it is done, or nobody is there any more to hear of it. Raises what it raises."""
    doing, gone = asyncio.ensure_future(work), asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait((doing, gone), return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        doing.cancel()  # without effect on one that is done
        await asyncio.gather(doing, gone, return_exceptions=True)
    if not doing.cancelled():
        doing.result()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
