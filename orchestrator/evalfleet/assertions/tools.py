"""Matchers on operations and events, with a count, and the three-valued rules for counting them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from enum import Enum
from typing import Any, ClassVar, Self, TypeVar

from evalfleet.assertions.event_index import EventIndex, Occurrence
from evalfleet.assertions.json_match import as_match
from evalfleet.assertions.match import Match, as_part, evaluate_now, kleene_and
from evalfleet.errors import AuthoringError
from evalfleet.model.assertion import AssertionResult, Result
from evalfleet.model.events import EVENT_TYPES, MISSING, Event, InputRequested, OperationKind, OperationStatus


class Count(Enum):
    AT_LEAST = "at_least"
    EXACTLY = "exactly"
    AT_MOST = "at_most"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Quantifier:
    """How often a match must occur. `n` is 0 for never."""

    count: Count = Count.AT_LEAST
    n: int = 1

    def decide(self, matched: int, incomplete: bool) -> Result:
        """The answer for `matched` known matches; `incomplete` when there may be more."""
        unless_complete = Result.UNAVAILABLE if incomplete else None
        match self.count:
            case Count.AT_LEAST:
                return Result.MATCHED if matched >= self.n else unless_complete or Result.MISMATCHED
            case Count.EXACTLY if matched < self.n:
                return unless_complete or Result.MISMATCHED
            case _:
                return Result.MISMATCHED if matched > self.n else unless_complete or Result.MATCHED

    def describe(self) -> Any:
        return "never" if self.count is Count.NEVER else {self.count.value: self.n}


NEVER = Quantifier(Count.NEVER, 0)


@dataclass(frozen=True, slots=True)
class Candidate:
    """What one occurrence or event says: its result, and the reason when it can't be decided."""

    result: Result
    reason: str | None = None
    evaluations: tuple[AssertionResult, ...] = ()


MATCH = Candidate(Result.MATCHED)
MISMATCH = Candidate(Result.MISMATCHED)

#: Candidates of each answer whose conditions are kept as a row's children.
KEPT = 8

Item = TypeVar("Item")


def surveyed(
    placed: Iterable[tuple[int, Item]],
    glance: Callable[[Item], bool | None] | None,
    candidate: Callable[[Item], Candidate],
) -> list[tuple[int, Candidate]]:
    """What each item says. `glance` decides without pictures where it can; `candidate` does for the few to be shown."""
    told: list[tuple[int, Candidate]] = []
    left = {True: KEPT, False: KEPT}
    for at, item in placed:
        holds = None if glance is None else glance(item)
        if holds is None or left[holds]:
            found = candidate(item)
            if holds is not None and found.evaluations:
                left[holds] -= 1
        else:
            found = MATCH if holds else MISMATCH
        told.append((at, found))
    return told


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantified:
    """A match that can be told how often it must occur; at least once when it is not told."""

    written: ClassVar[str]
    quantifier: Quantifier | None = None

    @property
    def wanted(self) -> Quantifier:
        return self.quantifier or Quantifier()

    def exactly(self, n: int) -> Self:
        return self._counted(Count.EXACTLY, n)

    def at_least(self, n: int) -> Self:
        return self._counted(Count.AT_LEAST, n)

    def at_most(self, n: int) -> Self:
        return self._counted(Count.AT_MOST, n)

    def never(self) -> Self:
        return self._set(NEVER)

    def _counted(self, count: Count, n: Any) -> Self:
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise AuthoringError(f"{count.value} needs a whole number of at least 1, not {n!r}; for none use never()")
        return self._set(Quantifier(count, n))

    def _set(self, quantifier: Quantifier) -> Self:
        if self.quantifier is not None:
            raise AuthoringError(f"the count is already set to {self.quantifier.describe()}")
        return replace(self, quantifier=quantifier)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationMatch(Quantified, ABC):
    """What `called_tool` and its kin take."""

    written: ClassVar[str] = "tool_match(...), subagent_match(...) or command_match(...)"

    @abstractmethod
    def describe(self) -> Any:
        """The criterion as a JSON value."""

    @abstractmethod
    def candidate(self, found: Occurrence, gap: str | None) -> Candidate:
        """What `found` says, where `gap` is why its finish may have been lost (None: nothing was lost)."""

    def survey(self, seen: EventIndex, gap: str | None) -> list[tuple[int, Candidate]]:
        """What the operations that may match say, with their positions; all others surely don't match."""
        return surveyed(seen.placed, None, lambda found: self.candidate(found, gap))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolMatch(OperationMatch):
    """Conditions on one and the same operation. `name` is compared with the raw name and the canonical class."""

    name: str | Match | None = None
    input: Match | None = None
    output: Match | None = None
    status: OperationStatus | None = None
    kind: OperationKind = OperationKind.TOOL

    def describe(self) -> Any:
        parts: dict[str, Any] = {
            "kind": self.kind.value,
            "name": self.name.describe() if isinstance(self.name, Match) else self.name,
            "input": self.input.describe() if self.input else None,
            "output": self.output.describe() if self.output else None,
            "status": self.status.value if self.status else None,
        }
        told = {key: part for key, part in parts.items() if part is not None}
        return {**told, "count": self.wanted.describe()}

    def candidate(self, found: Occurrence, gap: str | None) -> Candidate:
        # conditions on input and output are evaluated only for operations of that name and status
        if found.kind is not self.kind:
            return MISMATCH
        named = self._named(found)
        if named.result is not Result.MATCHED:
            return named
        status = status_candidate(self.status, found, gap)
        if status.result is Result.MISMATCHED:
            return MISMATCH
        conditions = (
            status,
            _material(self.input, found.input, "evidence:operation-input-missing"),
            _material(self.output, found.output, "evidence:operation-output-missing"),
        )
        return conjunction(conditions)

    def survey(self, seen: EventIndex, gap: str | None) -> list[tuple[int, Candidate]]:
        named = isinstance(self.name, str)
        is_quick = named and all(match is None or match.is_quick for match in (self.input, self.output))
        placed = seen.by_name.get(self.name, ()) if isinstance(self.name, str) else seen.placed
        return surveyed(placed, self._holds if is_quick else None, lambda found: self.candidate(found, gap))

    def _holds(self, found: Occurrence) -> bool | None:
        """Whether an operation of that name matches; None where it takes a closer look."""
        if self.status is not None and found.status is not self.status:
            return None
        for match, value in ((self.input, found.input), (self.output, found.output)):
            if match is not None and (value is MISSING or not match.quick(value)):
                return None if value is MISSING else False
        return found.kind is self.kind or None

    def _named(self, found: Occurrence) -> Candidate:
        if self.name is None:
            return MATCH
        if isinstance(self.name, str):
            return MATCH if self.name in (found.name, found.tool) else MISMATCH
        return _material(self.name, found.name, "")


def status_candidate(wanted: OperationStatus | None, found: Occurrence, gap: str | None) -> Candidate:
    """The condition on a status: pending is not known where a finish may have been lost."""
    if wanted is None:
        return MATCH
    if found.status is OperationStatus.PENDING and gap is not None:
        return Candidate(Result.UNAVAILABLE, gap)
    return MATCH if found.status is wanted else MISMATCH


def tool_match(
    name: str | Match | None = None,
    *,
    input: Any = None,
    output: Any = None,
    status: OperationStatus | str | None = None,
) -> ToolMatch:
    """Matches a tool call on which every given condition holds.

    `name` is the raw upstream name or the canonical class; `input` and `output` are matchers or what
    `json_match` takes; `status` is pending, completed, failed or rejected. At least one must be given.
    """
    return _operation_match(OperationKind.TOOL, name, input, output, status)


def subagent_match(
    name: str | Match | None = None, *, output: Any = None, status: OperationStatus | str | None = None
) -> ToolMatch:
    """Matches a sub-agent run on which every given condition holds; without any, every sub-agent run."""
    return _operation_match(OperationKind.SUBAGENT, name, None, output, status)


def _operation_match(kind: OperationKind, name: Any, input: Any, output: Any, status: Any) -> ToolMatch:
    place = f"{kind.value}_match"
    if kind is OperationKind.TOOL and name is None and input is None and output is None and status is None:
        raise AuthoringError(f"{place} needs a name or at least one condition")
    if isinstance(name, Match):
        as_match(name, f"{place} name")
    elif name is not None and (not isinstance(name, str) or not name):
        raise AuthoringError(f"{place}: the name must be a text that is not empty, not {name!r}")
    return ToolMatch(
        name=name,
        input=None if input is None else as_match(input, f"{place} input"),
        output=None if output is None else as_match(output, f"{place} output"),
        status=operation_status(status, place),
        kind=kind,
    )


def operation_status(status: Any, place: str) -> OperationStatus | None:
    """A status as authors write it. Raises AuthoringError naming those there are."""
    if status is None:
        return None
    if status in tuple(OperationStatus):
        return OperationStatus(status)
    raise AuthoringError(f"{place}: status is one of {', '.join(OperationStatus)}, not {status!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventMatch(Quantified):
    """Conditions on the fields of one event of one type."""

    written: ClassVar[str] = "event_match(...)"
    type: str
    fields: tuple[tuple[str, Match], ...] = ()

    def describe(self) -> Any:
        conditions = {name: match.describe() for name, match in self.fields}
        return {"type": self.type, **({"fields": conditions} if conditions else {}), "count": self.wanted.describe()}

    def survey(self, seen: EventIndex) -> list[tuple[int, Candidate]]:
        """What the events of this type say, with their positions."""
        is_quick = all(match.is_quick for _, match in self.fields)
        return surveyed(seen.by_type.get(self.type, ()), self._holds if is_quick else None, self.candidate)

    def _holds(self, event: Event) -> bool | None:
        """Whether an event of this type matches; None where it takes a closer look."""
        for name, match in self.fields:
            value = _field(event, name)
            if value is MISSING or not match.quick(value):
                return None if value is MISSING else False
        return True

    def candidate(self, event: Event) -> Candidate:
        """What `event` says; a field nobody reported can't be decided."""
        if event.type != self.type:
            return MISMATCH
        reason = f"evidence:{self.type}-field-missing"
        return conjunction([_material(match, _field(event, name), reason) for name, match in self.fields])


def event_match(type: str, **fields_: Any) -> EventMatch:
    """Matches an event of `type` whose fields hold: `event_match("message", role="assistant", text=includes("x"))`.

    A field takes a matcher or what `json_match` takes. User messages are events too.
    """
    event_type = EVENT_TYPES.get(type)
    if event_type is None:
        raise AuthoringError(f"event_match: no event type {type!r}; there are {', '.join(sorted(EVENT_TYPES))}")
    known = [field.name for field in fields(event_type)]
    for name in fields_:
        if name not in known:
            raise AuthoringError(f"event_match: {type} has no field {name!r}; it has {', '.join(known)}")
    conditions = tuple((name, as_match(value, f"event_match {name}")) for name, value in fields_.items())
    return EventMatch(type=type, fields=conditions)


def _field(event: Event, name: str) -> Any:
    if isinstance(event, InputRequested) and name == "options":
        return [asdict(option) for option in event.options]
    return getattr(event, name)


def _material(match: Match | None, value: Any, missing: str) -> Candidate:
    """A condition on what was reported: unavailable for what nobody reported."""
    if match is None:
        return MATCH
    if value is MISSING:
        return Candidate(Result.UNAVAILABLE, missing)
    outcome = evaluate_now(match, value)
    return Candidate(outcome.result, outcome.reason, (as_part(match, outcome),))


def conjunction(conditions: Sequence[Candidate]) -> Candidate:
    """All conditions together, by Kleene."""
    told = [condition for condition in conditions if condition is not MATCH]
    if len(told) < 2:
        return told[0] if told else MATCH
    result = kleene_and(condition.result for condition in conditions)
    reason = next((condition.reason for condition in conditions if condition.result is result), None)
    kept = tuple(outcome for condition in conditions for outcome in condition.evaluations)
    return Candidate(result, reason if result in (Result.ERRORED, Result.UNAVAILABLE) else None, kept)


@dataclass(frozen=True, slots=True)
class Tally:
    """Candidates counted: known matches, undecidable ones, the first reason for that, and a broken matcher's."""

    matched: int
    undecided: int
    reason: str | None
    error: str | None


def tally(candidates: Iterable[Candidate]) -> Tally:
    matched = undecided = 0
    reason = error = None
    for candidate in candidates:
        if candidate.result is Result.MATCHED:
            matched += 1
        elif candidate.result is Result.UNAVAILABLE:
            undecided += 1
            reason = reason or candidate.reason
        elif candidate.result is Result.ERRORED:
            error = error or candidate.reason
    return Tally(matched, undecided, reason, error)


def ordered(rows: Sequence[Sequence[tuple[int, Candidate]]], allowed: frozenset[Result]) -> bool:
    """Whether distinct candidates in order satisfy the matchers in order.

    A row holds what one matcher says of the candidates that it speaks about, each with its position; `allowed` are
    the results that count as a step.
    """
    reached = -1
    for row in rows:
        step = next((at for at, candidate in row if at > reached and candidate.result in allowed), None)
        if step is None:
            return False
        reached = step
    return True


def as_tool_match(value: Any, place: str) -> OperationMatch:
    """A tool match as it is, or the one that a tool's name means."""
    if isinstance(value, str):
        return tool_match(value)
    if isinstance(value, OperationMatch):
        return value
    raise AuthoringError(f"{place} takes a tool's name or {OperationMatch.written}, not {type(value).__name__}")


def as_event_match(value: Any, place: str) -> EventMatch:
    """An event match as it is, or the one that an event's type means."""
    if isinstance(value, str):
        return event_match(value)
    if isinstance(value, EventMatch):
        return value
    raise AuthoringError(f"{place} takes an event's type or event_match(...), not {type(value).__name__}")
