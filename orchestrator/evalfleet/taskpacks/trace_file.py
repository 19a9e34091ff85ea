"""The trace of one attempt while it grows: numbered, stamped, and on disk before the call goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from evalfleet.ports import Clock
from evalfleet.taskpacks.diff import Actor
from evalfleet.taskpacks.trace import CallStatus, Phase, TraceLine, encode_line, timestamp


class TraceFile:
    """Appends lines to a file, one call after the other. For one attempt, whose id is `run_id`."""

    def __init__(self, file: Path, run_id: str, clock: Clock) -> None:
        self._file = file
        self._run_id = run_id
        self._clock = clock
        self._stamp = ""
        self.steps = 0
        self.lines: list[TraceLine] = []

    def next(self, tool: str, arguments: dict[str, Any], actor: Actor, turn: int) -> TraceLine:
        """The intent of the next call; nothing is written yet."""
        self.steps += 1
        return TraceLine.model_validate(
            {
                "run_id": self._run_id,
                "step": self.steps,
                "tool": tool,
                "arguments": arguments,
                "result_ref": None,
                "timestamp": self._now(),
                "phase": Phase.INTENT,
                "status": CallStatus.UNKNOWN,
                "actor": actor,
                "turn": turn,
            }
        )

    async def append(self, line: TraceLine) -> None:
        """Write a line, stamped with the time that it is; it is in the file when this returns."""
        stamped = line.model_copy(update={"timestamp": self._now()})
        self.lines.append(stamped)
        await asyncio.to_thread(self._write, encode_line(stamped))

    def _now(self) -> str:
        """The time, never earlier than before."""
        self._stamp = max(self._stamp, timestamp(self._clock.wall()))
        return self._stamp

    def _write(self, data: bytes) -> None:
        with self._file.open("ab") as file:
            file.write(data)
