"""Where agents send spans by OTLP over HTTP: one application for each attempt, to be mounted at `/v1/traces`.

Who mounts it checks the attempt's token. What comes is checked at once, in full but without making values of it, so
that the sender learns what was wrong; it is decoded by whoever takes it of the inbox.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from functools import partial
from typing import Any

from evalfleet.telemetry.bodies import (
    LARGEST_BODY,
    Delivery,
    Encoding,
    TooLarge,
    answer,
    encoding_of,
    open_body,
    refusal,
)
from evalfleet.telemetry.decoded import BadBody, Tally
from evalfleet.telemetry.inbox import TEMPORARY, Arrived, Cause, Inbox, NoRoom, Occupied, SpanCounters, room_for

#: The path by which OTLP/HTTP is asked.
TRACES = "/v1/traces"
#: Bytes from which on a body is read beside the loop: less takes about a millisecond, the way there and back a quarter.
_LARGE = {Encoding.PROTOBUF: 256 << 10, Encoding.JSON: 16 << 10}
_STATUS = {
    Cause.BAD_BODY: 400,
    Cause.WRONG_TYPE: 415,
    Cause.TOO_LARGE: 413,
    Cause.TOO_MUCH: 413,
    Cause.BUSY: 503,
    Cause.FULL: 503,
    Cause.SLOW: 408,
}

_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class _Refused(Exception):
    """A request whose spans are not taken."""

    def __init__(self, cause: Cause, message: str) -> None:
        self.cause = cause
        super().__init__(message)


class AttemptSpans:
    """Takes the spans of one attempt into the worker's inbox. An ASGI application.

    After `end` spans are late: they are counted and not kept. Whoever seals the attempt calls that when its grace is
    over.
    """

    def __init__(self, inbox: Inbox, attempt: int) -> None:
        self.counters = SpanCounters()
        self._inbox = inbox
        self._attempt = attempt
        self._own = Occupied()
        self._kept, self._most = 0, float(inbox.limits.kept_each)
        self._ended = False

    def end(self) -> None:
        """Take nothing more."""
        self._ended = True

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        encoding = encoding_of(headers.get(b"content-type", ""))
        said = encoding or Encoding.JSON
        if scope["path"].rstrip("/") != str(scope.get("root_path") or TRACES):
            await _respond(send, 404, said, refusal(said, f"spans go to {TRACES}"))
        elif scope["method"] != "POST":
            await _respond(send, 405, said, refusal(said, "spans come by POST"), (b"allow", b"POST"))
        else:
            try:
                await self._take(headers, encoding, receive, send)
            except _Refused as refused:
                await self._refuse(refused, said, send)

    async def _take(self, headers: dict[bytes, str], encoding: Encoding | None, receive: _Receive, send: _Send) -> None:
        compression = headers.get(b"content-encoding", "identity").strip().lower()
        if encoding is None:
            kinds = " or ".join(Encoding)
            raise _Refused(Cause.WRONG_TYPE, f"spans come as {kinds}, not as {headers.get(b'content-type', '')[:64]!r}")
        if compression not in {"gzip", "identity", ""}:
            raise _Refused(Cause.WRONG_TYPE, f"bodies come as they are or by gzip, not as {compression[:64]!r}")
        size = room_for(_length(headers))
        if size > LARGEST_BODY:
            raise _Refused(Cause.TOO_LARGE, f"the body is larger than {LARGEST_BODY} bytes: send smaller batches")
        if self._kept > self._most:
            raise _Refused(Cause.TOO_MUCH, f"more than {self._most:.0f} bytes of spans came of this attempt")
        try:
            with self._inbox.reserved(self._own, size):
                body = await self._read(receive, size)
                delivery, tally = await self._open(encoding, body, compressed=compression == "gzip")
            # nothing waits between the end of the reservation and this
            rejected, why = self._keep(delivery, tally)
        except NoRoom as error:
            raise _Refused(error.cause, str(error)) from None
        await _respond(send, 200, encoding, answer(encoding, rejected, why))

    async def _read(self, receive: _Receive, size: int) -> bytes:
        parts: list[bytes] = []
        left = size
        try:
            async with asyncio.timeout(self._inbox.limits.patience):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _Refused(Cause.BROKEN_OFF, "the sender went away")
                    part = message.get("body", b"")
                    left -= len(part)
                    if left < 0:
                        raise _Refused(Cause.TOO_LARGE, f"the body is larger than {size} bytes: send smaller batches")
                    parts.append(part)
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            message = f"the body did not come within {self._inbox.limits.patience:g} seconds"
            raise _Refused(Cause.SLOW, message) from None

    async def _open(self, encoding: Encoding, body: bytes, *, compressed: bool) -> tuple[Delivery, Tally]:
        read = partial(open_body, encoding, body, compressed=compressed)
        small = len(body) < _LARGE[encoding] and not compressed and not body.startswith(b"\x1f\x8b")
        try:
            return read() if small else await self._inbox.aside(read)
        except BadBody as error:
            raise _Refused(Cause.BAD_BODY, str(error)) from None
        except TooLarge as error:
            raise _Refused(Cause.TOO_LARGE, str(error)) from None

    def _keep(self, delivery: Delivery, tally: Tally) -> tuple[int, str]:
        """Queue what was accepted; how many spans are rejected, and why. Raises NoRoom."""
        if self._ended:
            for counters in self._counted:
                counters.late += tally.accepted
                counters.dropped[Cause.BAD_SPAN] += tally.rejected
            return tally.accepted + tally.rejected, "the attempt that these spans are of is over"
        arrived, foreign = self._sorted(delivery) if tally.accepted else ((), 0)
        for each in arrived:
            self._inbox.put(each, self._own)
        self._kept += len(delivery.body)
        for counters in self._counted:
            counters.accepted += tally.accepted - foreign
            counters.dropped[Cause.BAD_SPAN] += tally.rejected
            counters.dropped[Cause.UNKNOWN_TRACE] += foreign
        return tally.rejected + foreign, tally.why or ("no attempt of this run began their trace" if foreign else "")

    def _sorted(self, delivery: Delivery) -> tuple[Sequence[Arrived], int]:
        """The delivery by attempts, and the number of its spans that are nobody's."""
        return (Arrived(self._attempt, delivery),), 0

    async def _refuse(self, refused: _Refused, encoding: Encoding, send: _Send) -> None:
        for counters in self._counted:
            counters.refused[refused.cause] += 1
        if refused.cause is not Cause.BROKEN_OFF:
            more = ((b"retry-after", b"1"),) if refused.cause in TEMPORARY else ()
            await _respond(send, _STATUS[refused.cause], encoding, refusal(encoding, str(refused)), *more)

    @property
    def _counted(self) -> tuple[SpanCounters, SpanCounters]:
        return self.counters, self._inbox.counters


def _length(headers: dict[bytes, str]) -> int | None:
    """The Content-Length; one that is no number is the server's to refuse."""
    given = headers.get(b"content-length", "")
    if not (given.isascii() and given.isdecimal()):
        return None
    return int(given) if len(given) <= 18 else LARGEST_BODY + 1


async def _respond(send: _Send, status: int, encoding: Encoding, body: bytes, *more: tuple[bytes, bytes]) -> None:
    headers = [(b"content-type", encoding.encode()), (b"content-length", b"%d" % len(body)), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
