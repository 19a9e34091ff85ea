"""The events of a scope, read once for all assertions that look at it: operations paired, and by name and type."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeAlias, TypeVar

from evalfleet.model.events import (
    MISSING,
    Event,
    OperationFinished,
    OperationKind,
    OperationStarted,
    OperationStatus,
)
from evalfleet.model.turn import TurnRecord

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One tool call or sub-agent run, paired from its start and its finish.

    `status` is pending without a finish. `input` is the text as received when it could not be parsed;
    `input` and `output` are MISSING when nobody reported them. `turn` is the sequence number of its start.
    """

    operation_id: str
    name: str
    kind: OperationKind
    tool: str | None
    input: Any
    output: Any
    status: OperationStatus
    turn: int


_Key: TypeAlias = tuple[int, OperationKind, str]


class _Once(Generic[T]):
    """A property that is computed when it is first asked for. (`functools.cached_property` takes a lock for it.)"""

    def __init__(self, compute: Callable[[EventIndex], T]) -> None:
        self._compute = compute
        self._name = compute.__name__

    def __get__(self, index: EventIndex, _: object = None) -> T:
        value = index.__dict__[self._name] = self._compute(index)
        return value


class EventIndex:
    """What the events of some turns say, each question answered by one pass at most.

    `others` are the attempt's turns: an operation that was started in one before these, in the same session, and
    finishes here, since a person had to allow it, is one of here, with the input it was started with.
    """

    def __init__(self, turns: Sequence[TurnRecord], others: Sequence[TurnRecord] = ()) -> None:
        self._turns = turns
        self._others = others

    @_Once
    def events(self) -> tuple[Event, ...]:
        """All of them, in order."""
        return tuple(event for turn in self._turns for event in turn.events)

    @_Once
    def types(self) -> list[str]:
        return [event.type for event in self.events]

    @_Once
    def by_type(self) -> dict[str, list[tuple[int, Event]]]:
        """The events of each type with their positions."""
        found: defaultdict[str, list[tuple[int, Event]]] = defaultdict(list)
        for placed in enumerate(self.events):
            found[placed[1].type].append(placed)
        return dict(found)

    @_Once
    def replies(self) -> tuple[str, ...]:
        """What the assistant said in each turn."""
        return tuple(turn.reply for turn in self._turns)

    @_Once
    def operations(self) -> tuple[Occurrence, ...]:
        """The operations in the order of their starts."""
        return self._paired[0]

    @property
    def orphans(self) -> int:
        """How many finishes had no start."""
        return self._paired[1]

    @_Once
    def placed(self) -> list[tuple[int, Occurrence]]:
        """The operations with their positions."""
        return list(enumerate(self.operations))

    @_Once
    def names(self) -> list[str]:
        return [each.name for each in self.operations]

    @_Once
    def by_name(self) -> dict[str, list[tuple[int, Occurrence]]]:
        """The operations of each raw name and of each canonical class, with their positions."""
        if not self.operations:
            return {}
        found: defaultdict[str, list[tuple[int, Occurrence]]] = defaultdict(list)
        for position, each in self.placed:
            found[each.name].append((position, each))
            if each.tool is not None and each.tool != each.name:
                found[each.tool].append((position, each))
        return dict(found)

    @_Once
    def _paired(self) -> tuple[tuple[Occurrence, ...], int]:
        found, lost, _ = _pair(self._turns)
        if not lost:
            return tuple(found), 0
        first = self._turns[0]
        before, _, waiting = _pair(
            turn for turn in self._others if turn.session == first.session and turn.index < first.index
        )
        continued: list[Occurrence] = []
        orphans = 0
        for key, finish in lost:
            starts = waiting.get(key)
            if starts:
                continued.append(replace(before[starts.popleft()], output=finish.output, status=finish.status))
            else:
                orphans += 1
        return (*continued, *found), orphans


def _pair(
    turns: Iterable[TurnRecord],
) -> tuple[list[Occurrence], list[tuple[_Key, OperationFinished]], dict[_Key, deque[int]]]:
    """The operations, the finishes without a start, and where the operations that never finished stand.

    Pairs by session, kind and id, in order: an id used again after its finish is a new operation.
    """
    starts: list[tuple[OperationStarted, int]] = []
    finishes: dict[int, OperationFinished] = {}
    lost: list[tuple[_Key, OperationFinished]] = []
    waiting: dict[_Key, deque[int]] = {}
    for turn in turns:
        for event in turn.events:
            if type(event) is OperationStarted:
                waiting.setdefault((turn.session, event.kind, event.operation_id), deque()).append(len(starts))
                starts.append((event, turn.sequence))
            elif type(event) is OperationFinished:
                key = (turn.session, event.kind, event.operation_id)
                places = waiting.get(key)
                if places:
                    finishes[places.popleft()] = event
                else:
                    lost.append((key, event))
    found = [_occurrence(start, turn, finishes.get(at)) for at, (start, turn) in enumerate(starts)]
    return found, lost, waiting


def _occurrence(start: OperationStarted, turn: int, finish: OperationFinished | None) -> Occurrence:
    received = start.raw_input if start.input is MISSING and start.raw_input is not None else start.input
    return Occurrence(
        operation_id=start.operation_id,
        name=start.name,
        kind=start.kind,
        tool=start.tool,
        input=received,
        output=MISSING if finish is None else finish.output,
        status=OperationStatus.PENDING if finish is None else finish.status,
        turn=turn,
    )
