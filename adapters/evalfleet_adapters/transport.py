"""HTTP for adapters: one lazily made client, every error classified, and the one owner of retries.

| What happened | Kind | Accepted? | Repeated here |
|---|---|---|---|
| no connection (refused, no such host, connect timeout) | provider | rejected | yes |
| 429, 503, 529 | provider | rejected | yes, not before the time that it asks for, which a governor waits |
| 429 because the account's quota is used up | provider | rejected | no |
| 408 and every other 5xx; no answer in time; connection broken before the answer | provider | unknown | if idempotent |
| connection broken, or rubbish received, inside the answer | provider | started | no |
| any other 4xx, a redirect, a request that can't be sent | adapter | rejected | no |
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Generic, TypeVar

import httpx

from evalfleet.errors import Acceptance, FailureKind, SendFailure, describe
from evalfleet.model.model_call import CallEnd, CallFate, ModelCall, RateReading
from evalfleet.model.usage import Usage
from evalfleet.ports import AdapterContext
from evalfleet_adapters.converters.openai_chat import reported_error
from evalfleet_adapters.converters.rate_limits import rate_reading, wait_asked
from evalfleet_adapters.spread import fraction

R = TypeVar("R")

#: How much of an unexpected body stands in a message, in characters.
SHOWN_BODY = 500

_REJECTING = frozenset({429, 503, 529})
_FIRST_WAIT = 0.5

#: Failures by which a provider says that it has too much to do.
_THROTTLED = frozenset({"RATE_LIMITED", "PROVIDER_UNAVAILABLE"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A request to send."""

    url: str
    body: bytes
    method: str = "POST"
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Limits of one adapter's exchanges, times in seconds.

    `timeout` is the longest silence; a wait above `longest_wait` is left to the engine, which holds no lane for it.
    """

    max_retries: int
    longest_wait: float
    timeout: float
    connect_timeout: float
    idempotent: bool = False


@dataclass(frozen=True, slots=True)
class Reader(Generic[R]):
    """How an exchange is told to whoever rations calls, and its 2xx answer read: `usage` is what an answer used."""

    call: ModelCall
    read: Callable[[httpx.Response], Awaitable[R]]
    usage: Callable[[R], Usage | None] = lambda _: None


@dataclass(slots=True)
class _Seen:
    """What the headers of one answer said of its rate."""

    reading: RateReading | None = None


class Transport:
    """Sends requests for all sessions of one adapter. The client is made inside the loop that first sends."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._client: httpx.AsyncClient | None = None

    async def exchange(self, outgoing: Outgoing, ctx: AdapterContext, reader: Reader[R]) -> R:
        """Send, each time when it is admitted, and read a 2xx answer. Raises SendFailure when no attempt succeeds."""
        retry = 0
        while True:
            try:
                return await self._admitted(outgoing, ctx, reader)
            except SendFailure as failure:
                wait = self._wait(failure, retry, ctx)
                if wait is None:
                    raise
                retry += 1
                ctx.log(f"{failure.code}: {failure}; retry {retry} of {self._patience.max_retries} in {wait:.3g} s")
            await ctx.clock.sleep(wait)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _wait(self, failure: SendFailure, retry: int, ctx: AdapterContext) -> float | None:
        """Seconds until the next attempt; None when there is none."""
        repeatable = failure.acceptance is Acceptance.REJECTED and failure.code != "QUOTA_EXHAUSTED"
        if self._patience.idempotent and failure.acceptance is Acceptance.UNKNOWN:
            repeatable = True
        if retry >= self._patience.max_retries or failure.kind is not FailureKind.PROVIDER or not repeatable:
            return None
        if ctx.calls.governed and fate_of(failure) is CallFate.THROTTLED:
            return 0.0  # the next admission waits as long as the provider asks, and holds no lane meanwhile
        backoff = _FIRST_WAIT * 2**retry
        jitter = backoff * fraction(ctx.seed, ctx.attempt, "retry", retry)
        wait = jitter + (backoff / 2 if failure.retry_after is None else failure.retry_after)
        left = ctx.deadline
        if wait > self._patience.longest_wait or (left is not None and wait >= left):
            return None
        return wait

    async def _admitted(self, outgoing: Outgoing, ctx: AdapterContext, reader: Reader[R]) -> R:
        admitted = await ctx.calls.admit(reader.call)
        end = CallEnd(fate=CallFate.BROKEN)
        seen = _Seen()
        try:
            answer = await self._once(outgoing, ctx, reader.read, seen)
            end = CallEnd(fate=CallFate.ANSWERED, usage=reader.usage(answer), reading=seen.reading)
            return answer
        except SendFailure as failure:
            end = CallEnd(fate=fate_of(failure), retry_after=failure.retry_after, reading=seen.reading)
            raise
        finally:
            admitted.end(end)

    async def _once(
        self, outgoing: Outgoing, ctx: AdapterContext, consume: Callable[[httpx.Response], Awaitable[R]], seen: _Seen
    ) -> R:
        started = False
        try:
            request = self._opened().build_request(
                outgoing.method, outgoing.url, content=outgoing.body, headers=outgoing.headers
            )
            response = await self._opened().send(request, stream=True)
            try:
                rates = {name: value for name, value in response.headers.items() if "ratelimit" in name}
                seen.reading = rate_reading(rates, ctx.clock.wall()) if rates else None
                if not response.is_success:
                    raise await refused(response, ctx.clock.wall())
                started = True
                return await consume(response)
            finally:
                await response.aclose()
        except (httpx.LocalProtocolError, UnicodeEncodeError):
            # the errors' own text would show the header, and that may be the secret
            raise _unsendable("a header of the request holds a character that HTTP does not allow") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise broken(error, started=started) from error

    def _opened(self) -> httpx.AsyncClient:
        if self._client is None:
            patience = self._patience
            self._client = httpx.AsyncClient(
                timeout=httpx.Timeout(patience.timeout, connect=patience.connect_timeout, pool=None),
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=256),
                headers={"user-agent": "evalfleet"},
                verify=_certificates(),
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # sessions would share them
                mounts={"all://localhost": None, "all://127.0.0.1": None},  # a proxy can't reach this machine
            )
        return self._client


@cache
def _certificates() -> ssl.SSLContext:
    """Reading the certificates takes longer than a small turn: once a process, not once an adapter."""
    return httpx.create_ssl_context()


async def read_json(response: httpx.Response) -> Any:
    """The whole body as JSON, integers exact. Raises SendFailure of kind provider that keeps the body's beginning."""
    body = await response.aread()
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise SendFailure(
            f"HTTP {response.status_code} {_media_type(response)} is not JSON: {shown(body)}",
            kind=FailureKind.PROVIDER,
            code="BAD_RESPONSE",
            acceptance=Acceptance.STARTED,
        ) from error


async def refused(response: httpx.Response, now: float) -> SendFailure:
    """What an answer that is not 2xx means. `now` is seconds since the epoch."""
    body = await response.aread()
    status = response.status_code
    try:
        reported = reported_error(json.loads(body))
    except (ValueError, RecursionError):
        reported = None
    text = f"{reported.message} ({reported.code})" if reported else f"{_media_type(response)} {shown(body)}"
    if response.has_redirect_location:
        text = f"it points to {response.headers['location']}, which is not followed"
    retry_after = wait_asked({name.lower(): value for name, value in response.headers.items()}, now)
    kind, acceptance = FailureKind.ADAPTER, Acceptance.REJECTED
    if status in _REJECTING:
        kind = FailureKind.PROVIDER
    elif status == 408 or status >= 500:
        kind, acceptance = FailureKind.PROVIDER, Acceptance.UNKNOWN
    return SendFailure(
        f"HTTP {status}: {text}",
        kind=kind,
        code=_code(status, reported.code if reported else ""),
        acceptance=acceptance,
        retry_after=retry_after if kind is FailureKind.PROVIDER else None,
    )


def fate_of(failure: SendFailure) -> CallFate:
    """What a failed exchange was to whoever rations calls."""
    if failure.code in _THROTTLED:
        return CallFate.THROTTLED
    return CallFate.REFUSED if failure.acceptance is Acceptance.REJECTED else CallFate.BROKEN


def broken(error: httpx.HTTPError | httpx.InvalidURL, *, started: bool) -> SendFailure:
    """What a failed exchange means. `started` tells that the answer had begun."""
    text = f"{type(error).__name__}: {describe(error)}".removesuffix(": ")
    if isinstance(error, (httpx.InvalidURL, httpx.UnsupportedProtocol)):
        return _unsendable(text)
    code, acceptance = "CONNECTION_BROKEN", Acceptance.STARTED if started else Acceptance.UNKNOWN
    if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)):
        code, acceptance = "CONNECTION_REFUSED", Acceptance.REJECTED
    elif isinstance(error, httpx.TimeoutException):
        code = "PROVIDER_TIMEOUT"
    elif isinstance(error, httpx.DecodingError):
        code = "BAD_RESPONSE"
    return SendFailure(text, kind=FailureKind.PROVIDER, code=code, acceptance=acceptance)


def _unsendable(text: str) -> SendFailure:
    return SendFailure(text, code="REQUEST_INVALID", acceptance=Acceptance.REJECTED)


def shown(body: bytes) -> str:
    """The beginning of a body for a message."""
    text = body[: 4 * SHOWN_BODY].decode("utf-8", "replace")
    return text if len(text) <= SHOWN_BODY and len(body) <= 4 * SHOWN_BODY else text[:SHOWN_BODY] + "…"


def _code(status: int, reported: str) -> str:
    if status == 429:
        return "QUOTA_EXHAUSTED" if reported == "insufficient_quota" else "RATE_LIMITED"
    if status in (401, 403):
        return "AUTHENTICATION_FAILED"
    if status in _REJECTING:
        return "PROVIDER_UNAVAILABLE"
    if status == 408 or status >= 500:
        return "PROVIDER_ERROR"
    return "REQUEST_REFUSED" if status >= 400 else "REQUEST_REDIRECTED"


def _media_type(response: httpx.Response) -> str:
    return response.headers.get("content-type", "without a content type").partition(";")[0]
