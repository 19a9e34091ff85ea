"""What an assertion looks at: the turns of a scope, their coverage, and the operations paired from events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evalfleet.assertions.covered import CoveredStr, CoveredValue, covered, plain, unwrap
from evalfleet.assertions.event_index import EventIndex
from evalfleet.model.assertion import ScopeKind
from evalfleet.model.coverage import Channel, Coverage, CoverageEntry, partial, worst
from evalfleet.model.events import InputRequested
from evalfleet.model.turn import TurnRecord, TurnStatus

__all__ = [
    "CoveredStr",
    "CoveredValue",
    "ScopeEvidence",
    "coverage_reason",
    "covered",
    "gap",
    "plain",
    "scope_of",
    "unwrap",
]

NOT_STARTED = "not-started"

_RUNNING = {channel: partial("scope-still-running") for channel in Channel}


@dataclass(frozen=True, slots=True)
class ScopeEvidence:
    """The frozen subject of a scoped assertion.

    `turns` in the order they were started; `coverage` the worst of them, every channel at best partial while a
    send is in flight; `status` one of not-started, waiting, failed, truncated, completed; `pending_requests`
    counts input requests that nobody has answered; `seen` is what its events say, read once.
    """

    kind: ScopeKind
    turns: tuple[TurnRecord, ...]
    coverage: Coverage
    status: str
    pending_requests: int
    seen: EventIndex


def scope_of(
    kind: ScopeKind, turns: Sequence[TurnRecord], in_flight: bool, others: Sequence[TurnRecord] = ()
) -> ScopeEvidence:
    """Freeze `turns` as the evidence of a scope; `in_flight` while a send of that scope is running.

    `others` are the attempt's turns, in an earlier one of which an operation may have started that finishes here.
    """
    distinct = {id(turn.coverage): turn.coverage for turn in turns}
    coverage = worst(distinct.values())
    for turn in turns:
        if turn.failure is not None:
            coverage = coverage.downgrade(_lost(turn.failure))
    if in_flight:
        coverage = coverage.downgrade(_RUNNING)
    sessions: dict[int, list[TurnRecord]] = {}
    for turn in turns:
        sessions.setdefault(turn.session, []).append(turn)
    return ScopeEvidence(
        kind=kind,
        turns=tuple(turns),
        coverage=coverage,
        status=TurnStatus.WAITING.value if in_flight else _status(list(sessions.values())),
        pending_requests=sum(_pending(session[-1]) for session in sessions.values()),
        seen=EventIndex(tuple(turns), others),
    )


def gap(scope: ScopeEvidence, channel: Channel) -> str | None:
    """Why `channel` proves no absence in this scope, as a reason; None when it is complete."""
    entry = scope.coverage.entry(channel)
    return None if entry.is_complete else coverage_reason(channel, entry)


def coverage_reason(channel: Channel, entry: CoverageEntry) -> str:
    """The machine-readable reason of a channel that is not complete: `coverage:actions=partial (…)`."""
    return f"coverage:{channel.value}={entry.state.value} ({entry.reason})"


def _lost(failure: str) -> dict[Channel, CoverageEntry]:
    """What a send that raised leaves open: everything but its status, which is known to have failed."""
    entry = partial(f"send-failed: {failure}")
    return {channel: entry for channel in Channel if channel is not Channel.STATUS}


def _status(sessions: Sequence[Sequence[TurnRecord]]) -> str:
    """The worst status over the sessions; a session whose send raised stays failed."""
    ends = {TurnStatus.FAILED if _broken(session) else session[-1].status for session in sessions}
    for status in (TurnStatus.WAITING, TurnStatus.FAILED, TurnStatus.TRUNCATED):
        if status in ends:
            return status.value
    return TurnStatus.COMPLETED.value if ends else NOT_STARTED


def _broken(session: Sequence[TurnRecord]) -> bool:
    return any(turn.failure is not None for turn in session)


def _pending(turn: TurnRecord) -> int:
    if turn.status is not TurnStatus.WAITING:
        return 0
    return sum(isinstance(event, InputRequested) for event in turn.events)
