"""A judge's model over HTTP, behind the `JudgeModel` port: bounded in time, in tries and in calls at once.

| What happened | What is done |
|---|---|
| the account's rate has to be waited for | nothing is sent, and no time of the call runs, until it is admitted |
| no connection, a broken one, no answer in time | another try |
| 408, 409, 429, 5xx | another try, not before the time that the server asks for |
| 400, 404, 422 | asked again in a looser dialect, while there is one; what a server took is remembered |
| any other status but 2xx, a request that can't be sent | `judge-call-failed` |
| 2xx without a text of the model, or larger than `LARGEST_BODY` | `judge-invalid-response` |
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cache

import httpx

from evalfleet.errors import JudgeFailure, describe
from evalfleet.grading.judge_wire import (
    Dialect,
    InvalidCompletion,
    host_of,
    provider_text,
    read_completion,
    shown,
    wait_asked,
)
from evalfleet.model.judge import CALL_FAILED, INVALID_RESPONSE, JudgeReply, JudgeRequest
from evalfleet.model.model_call import Account, CallEnd, CallFate, ModelCall
from evalfleet.ports import Clock, ModelCalls, Random

#: Calls of one client that are under way at once; the others wait, and their time does not run yet.
CALLS_AT_ONCE = 32
#: The part of a call's time that one try may take, so that a silent server leaves time for another.
SHARE = 0.5
#: Bytes of an answer. A ruling is a few hundred.
LARGEST_BODY = 8 << 20

_PASSING = frozenset({408, 409, 429})
_THROTTLED = frozenset({429, 503, 529})
_FIRST_WAIT = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """What one try brought. Without a `status` no whole answer came, and `problem` says why.

    `wait` is in seconds, as the server asks for it; `passing` tells that another try may help.
    """

    status: int | None = None
    body: bytes = b""
    wait: float | None = None
    problem: str = ""
    passing: bool = False


class _Turn:
    """The time of one call: what it was sent and rested, without what it waited to be admitted and for a place."""

    def __init__(self, clock: Clock, places: asyncio.Semaphore, calls: ModelCalls | None) -> None:
        self._clock = clock
        self._places = places
        self._calls = calls
        self.seconds = 0.0

    @property
    def governed(self) -> bool:
        return self._calls is not None and self._calls.governed

    @asynccontextmanager
    async def admitted(self, call: ModelCall) -> AsyncGenerator[list[CallEnd]]:
        """One request of the call, once it may be sent; its end is put into the list."""
        ended: list[CallEnd] = []
        admitted = None if self._calls is None else await self._calls.admit(call)
        try:
            async with self._places:
                began = self._clock.monotonic()
                try:
                    yield ended
                finally:
                    self.seconds += self._clock.monotonic() - began
        finally:
            if admitted is not None:
                admitted.end(ended[0] if ended else CallEnd(fate=CallFate.BROKEN))

    async def rest(self, seconds: float) -> None:
        """Wait before another try."""
        began = self._clock.monotonic()
        await self._clock.sleep(seconds)
        self.seconds += self._clock.monotonic() - began


class HttpJudge:
    """Models behind `/chat/completions`, for all judges of a process. The client is made inside the loop that asks."""

    def __init__(self, clock: Clock, random: Random) -> None:
        self._clock = clock
        self._random = random
        self._client: httpx.AsyncClient | None = None
        self._places = asyncio.Semaphore(CALLS_AT_ONCE)
        self._dialects: dict[tuple[str, str], Dialect] = {}

    async def ask(self, request: JudgeRequest, key: str | None, calls: ModelCalls | None = None) -> JudgeReply:
        """The model's reply. Raises JudgeFailure; `request.timeout` counts from when the call has a place."""
        # keys read from files end in a newline, which no header may hold
        key = key.strip() if key is not None else None
        turn = _Turn(self._clock, self._places, calls)
        try:
            reply = await self._asked(request, key, turn)
        except JudgeFailure as failure:
            failure.latency = turn.seconds
            raise
        return replace(reply, latency=turn.seconds)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _asked(self, request: JudgeRequest, key: str | None, turn: _Turn) -> JudgeReply:
        server = (request.base_url, request.model)
        dialect = self._dialects.get(server, Dialect())
        tries = failures = 0
        while True:
            tries += 1
            body = dialect.body(request)
            seconds = min(request.timeout - turn.seconds, request.timeout * SHARE)
            async with turn.admitted(_call(request, body)) as ended:
                answer = await self._sent(request.base_url, body, key, seconds)
                ended.append(_end(answer))
            if answer.status is not None and 200 <= answer.status < 300:
                self._dialects[server] = dialect
                return _read(request, key, answer, tries)
            other = dialect.instead(answer.status, answer.body)
            failures += other is None  # a change of dialect is none
            wait = 0.0 if other is not None else self._wait(answer, failures, request.tries, governed=turn.governed)
            if wait is None or turn.seconds + wait >= request.timeout:
                raise _failure(CALL_FAILED, request, shown(_said(answer), key), tries, answer.status)
            dialect = other or dialect
            await turn.rest(wait)

    def _wait(self, answer: _Answer, failures: int, tries: int, *, governed: bool) -> float | None:
        """Seconds until the next of `tries`; None when there is none."""
        if not answer.passing or failures >= tries:
            return None
        if governed and answer.status in _THROTTLED:
            return 0.0  # the next admission waits as long as the server asks
        if answer.wait is not None:
            return answer.wait
        return self._random.uniform(0.0, _FIRST_WAIT * 2 ** (failures - 1))

    async def _sent(self, base_url: str, body: bytes, key: str | None, seconds: float) -> _Answer:
        """One request, and its whole answer within `seconds`."""
        headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
        url = base_url.rstrip("/") + "/chat/completions"
        client = self._opened()  # takes its time when it is the first
        try:
            async with (
                asyncio.timeout(seconds),
                client.stream("POST", url, content=body, headers=headers) as response,
            ):
                return await self._received(response)
        except TimeoutError:
            return _Answer(problem=f"no answer in {max(seconds, 0):.3g} s", passing=True)
        except (httpx.LocalProtocolError, UnicodeEncodeError):
            # the errors' own text would show the header that holds the key, and the next one's the URL's credentials
            return _Answer(problem="the key holds a character that HTTP does not allow")
        except (httpx.InvalidURL, httpx.UnsupportedProtocol):
            return _Answer(problem="its base_url is not an HTTP URL")
        except httpx.HTTPError as error:
            text = f"{type(error).__name__}: {describe(error)}".removesuffix(": ")
            return _Answer(problem=text, passing=isinstance(error, httpx.TransportError))

    async def _received(self, response: httpx.Response) -> _Answer:
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > LARGEST_BODY:
                break
        status = response.status_code
        return _Answer(
            status=status,
            body=bytes(body),
            wait=wait_asked(response.headers.get("retry-after", ""), self._clock.wall()),
            passing=status in _PASSING or status >= 500,
        )

    def _opened(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = httpx.AsyncClient(
                timeout=None,  # a limit between bytes would not bound a try: `_sent` does
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=CALLS_AT_ONCE),
                headers={"user-agent": "evalfleet"},
                verify=_certificates(),
                mounts={"all://localhost": None, "all://127.0.0.1": None},  # a proxy can't reach this machine
            )
        return self._client


@cache
def _certificates() -> ssl.SSLContext:
    """Reading the certificates takes longer than a short call: once a process."""
    return httpx.create_ssl_context()


def _call(request: JudgeRequest, body: bytes) -> ModelCall:
    account = Account(provider="openai", base_url=request.base_url, key=request.key_name, model=request.model)
    return ModelCall(account=account, input_bytes=len(body), output_limit=request.max_tokens, judging=True)


def _end(answer: _Answer) -> CallEnd:
    """What one try was to whoever rations calls."""
    if answer.status is None or answer.status in _PASSING - _THROTTLED:
        return CallEnd(fate=CallFate.BROKEN)
    if answer.status in _THROTTLED:
        return CallEnd(fate=CallFate.THROTTLED, retry_after=answer.wait)
    if not 200 <= answer.status < 300:
        return CallEnd(fate=CallFate.REFUSED if answer.status < 500 else CallFate.BROKEN)
    try:
        return CallEnd(fate=CallFate.ANSWERED, usage=read_completion(answer.body).usage)
    except InvalidCompletion:
        return CallEnd(fate=CallFate.ANSWERED)


def _read(request: JudgeRequest, key: str | None, answer: _Answer, tries: int) -> JudgeReply:
    try:
        if len(answer.body) > LARGEST_BODY:
            raise InvalidCompletion(f"more than {LARGEST_BODY >> 20} MiB")
        return replace(read_completion(answer.body), tries=tries)
    except InvalidCompletion as error:
        raise _failure(INVALID_RESPONSE, request, shown(str(error), key), tries, answer.status) from None


def _said(answer: _Answer) -> str:
    return answer.problem if answer.status is None else provider_text(answer.body)


def _failure(code: str, request: JudgeRequest, text: str, tries: int, status: int | None) -> JudgeFailure:
    """A failure whose message names model, host, status and tries. `text` is fit to be shown."""
    what = ": ".join(part for part in ("" if status is None else f"HTTP {status}", text) if part)
    count = "1 try" if tries == 1 else f"{tries} tries"
    message = f"{request.model} at {host_of(request.base_url)}, {count}: {what}"
    return JudgeFailure(code, message, tries=tries, status=status)
