"""Running a program in a sandbox while its transcript is read: one that said its last word does not go on for ever."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from evalfleet.errors import FailureKind, SendFailure
from evalfleet.ports import Clock
from evalfleet.sandbox_ports import Command, CommandResult, Execution, Sandbox
from evalfleet_adapters.converters.json_output import last_document

#: Bytes of a transcript that are read; more is no turn.
TRANSCRIPT_LIMIT = 64 << 20
#: Seconds that one look at the output waits.
_LOOK = 1.0


class Transcript:
    """What a program has written so far. `overdue` says that it was ended after its last word and the grace."""

    def __init__(self, is_last: Callable[[Mapping[str, Any]], bool], grace: float, clock: Clock) -> None:
        self.data = bytearray()
        self.overdue = False
        self._is_last = is_last
        self._grace = grace
        self._clock = clock
        self._line = 0
        self._last_at: float | None = None

    async def follow(self, sandbox: Sandbox, command: Command) -> CommandResult:
        """Run the command to its end. Whatever ends this early ends the command too."""
        execution = await sandbox.start(command)
        try:
            await self._read(execution)
            return await execution.result()
        except BaseException:
            await execution.end()
            raise

    async def _read(self, execution: Execution) -> None:
        cursor = 0
        while True:
            piece = await execution.read(after=cursor, wait=_LOOK if self._last_at is None else min(_LOOK, self._grace))
            cursor = piece.cursor
            self._take(piece.data)
            if piece.complete:
                return
            if len(self.data) > TRANSCRIPT_LIMIT:
                raise SendFailure(
                    f"the program wrote more than {TRANSCRIPT_LIMIT >> 20} MiB",
                    kind=FailureKind.AGENT,
                    code="AGENT_OUTPUT_TOO_LARGE",
                )
            if self._last_at is not None and self._clock.monotonic() - self._last_at >= self._grace:
                self.overdue = True
                await execution.end()
                return

    def _take(self, data: bytes) -> None:
        """Add what came; each line that it completes is looked at once."""
        self.data += data
        while self._last_at is None and (end := self.data.find(b"\n", self._line)) >= 0:
            if self._is_last(last_document(bytes(self.data[self._line : end]))):
                self._last_at = self._clock.monotonic()
            self._line = end + 1
