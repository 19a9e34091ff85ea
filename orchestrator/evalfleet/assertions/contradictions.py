"""Where a turn contradicts the coverage it claims: a channel said to be complete that visibly is not. PURE.

It never decides anything: an adapter that claims too much is told so, and whoever reads its results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from evalfleet.model.coverage import Channel
from evalfleet.model.events import (
    MISSING,
    ErrorReported,
    InputRequested,
    Message,
    OperationFinished,
    OperationStarted,
    OperationStatus,
    Role,
)
from evalfleet.model.turn import TurnRecord, TurnStatus

_TO_BE_EXPLAINED = (TurnStatus.FAILED, TurnStatus.WAITING)

#: Fields in which an answer's text is often found.
_TEXT_FIELDS = ("reply", "text", "message", "content", "answer")


def contradictions(turns: Sequence[TurnRecord]) -> list[tuple[Channel, str]]:
    """Each claim that turns contradict, once, with how many of them do."""
    odd = [turn for turn in turns if turn.failure is None and not _is_simple(turn)]
    if not odd:
        return []
    found = Counter(claim for turn in odd for claim in _of_turn(turn, turns))
    return [(channel, f"{what} (turns: {count} of {len(turns)})") for (channel, what), count in found.items()]


def _is_simple(turn: TurnRecord) -> bool:
    """A completed turn of what was sent and a reply, its tokens known: nearly every one, and nothing to look for."""
    usage = turn.usage
    return (
        turn.status is TurnStatus.COMPLETED
        and len(turn.events) < 3
        and turn.data is MISSING
        and usage is not None
        and usage.input_tokens is not None
        and usage.output_tokens is not None
        and not usage.unknown_calls
    )


def _of_turn(turn: TurnRecord, turns: Sequence[TurnRecord]) -> Iterator[tuple[Channel, str]]:
    coverage, usage = turn.coverage, turn.usage
    if coverage.usage.is_complete and (usage is None or usage.total_tokens is None or usage.unknown_calls):
        yield Channel.USAGE, "tokens are not known"
    if turn.data is not MISSING and coverage.messages.is_complete:
        yield from _unsaid(turn)
    if coverage.actions.is_complete:
        yield from _unpaired(turn, turns)
    if turn.status in _TO_BE_EXPLAINED and coverage.status.is_complete:
        yield from _unexplained(turn)


def _unsaid(turn: TurnRecord) -> Iterator[tuple[Channel, str]]:
    """A text in the data of a turn in which the assistant said nothing."""
    data: Any = turn.data
    fields = cast("Mapping[str, Any]", data) if isinstance(data, Mapping) else {"text": data}
    text = next((fields[name] for name in _TEXT_FIELDS if isinstance(fields.get(name), str) and fields[name]), None)
    if text is not None and not turn.reply:
        yield Channel.MESSAGES, "data holds a text, but the assistant said nothing"


def _unpaired(turn: TurnRecord, turns: Sequence[TurnRecord]) -> Iterator[tuple[Channel, str]]:
    """Finishes without a start, and starts without a finish although the assistant spoke after them.

    Calls at the end of a turn may be left to whoever is to run them.
    """
    open_calls: set[tuple[str, str]] = set()
    overtaken: set[tuple[str, str]] = set()
    orphaned = False
    for event in turn.events:
        if isinstance(event, OperationStarted):
            open_calls.add((event.kind, event.operation_id))
        elif isinstance(event, OperationFinished):
            orphaned = orphaned or (event.kind, event.operation_id) not in open_calls
            open_calls.discard((event.kind, event.operation_id))
        elif isinstance(event, Message) and event.role is Role.ASSISTANT:
            overtaken |= open_calls
    if orphaned and not _waited_before(turn, turns):
        yield Channel.ACTIONS, "operations finish that never started"
    if overtaken & open_calls and turn.status is TurnStatus.COMPLETED:
        yield Channel.ACTIONS, "operations never finish, although the turn went on and completed"


def _waited_before(turn: TurnRecord, turns: Sequence[TurnRecord]) -> bool:
    """Whether the session had waited for a person, so that a call may have started then."""
    return any(
        other.session == turn.session and other.index < turn.index and other.status is TurnStatus.WAITING
        for other in turns
    )


def _unexplained(turn: TurnRecord) -> Iterator[tuple[Channel, str]]:
    """A failed turn in which nothing says why, and a waiting one that asks nothing."""
    if turn.status is TurnStatus.WAITING and not any(isinstance(event, InputRequested) for event in turn.events):
        yield Channel.STATUS, "the turn waits, but asks nothing"
    if turn.status is TurnStatus.FAILED and not turn.reply and not any(map(_explains, turn.events)):
        yield Channel.STATUS, "the turn failed, but nothing says why"


def _explains(event: object) -> bool:
    return isinstance(event, ErrorReported) or (
        isinstance(event, OperationFinished) and event.status is OperationStatus.FAILED
    )
