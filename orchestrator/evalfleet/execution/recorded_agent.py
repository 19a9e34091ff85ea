"""What a replay knows of the attempt it repeats: its turns, and the time they took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.model.changes import Attribution
from evalfleet.model.coverage import COMPLETE_COVERAGE
from evalfleet.model.turn import TurnRecord
from evalfleet.ports import AdapterContext, Clock, Session


class RecordedTime:
    """A clock that stands at the last moment of the record that a replay has reached. Sleeping takes real time."""

    def __init__(self, clock: Clock, started_at: float) -> None:
        self._clock = clock
        self._started_at = self._now = started_at

    def wall(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._now - self._started_at

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)

    def reach(self, moment: float) -> None:
        """It is `moment` now, in seconds since the epoch; never earlier than it was."""
        self._now = max(self._now, moment)


class NoAgent:
    """The adapter of arms whose attempts are only judged again: nobody can call their agent."""

    coverage = COMPLETE_COVERAGE
    sandboxed = False

    async def open(self, ctx: AdapterContext) -> Session:
        raise AttemptFailure(FailureKind.INFRASTRUCTURE, "EXECUTION_FAILED", "a replay calls no agent")

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class RecordedAgent:
    """The turns of an attempt, which stand in for its agent, the clock that they move, what the agent
    changed, and what the body attached."""

    turns: tuple[TurnRecord, ...]
    time: RecordedTime
    attribution: Attribution | None = None
    attachments: Mapping[str, Any] = field(default_factory=dict[str, Any])
