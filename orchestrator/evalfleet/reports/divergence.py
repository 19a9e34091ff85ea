"""Where an attempt first went another way than was asked: the criterion, and what is recorded at each boundary. PURE.

Nothing is concluded: a boundary names the evidence that stands there, or that nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from evalfleet.codes.book import CODES
from evalfleet.model.assertion import AssertionRow
from evalfleet.model.changes import ChangedBy, turn_label
from evalfleet.model.coverage import Channel
from evalfleet.model.events import (
    MISSING,
    Compaction,
    ContextInjected,
    ErrorReported,
    Event,
    InputRequested,
    Message,
    OperationFinished,
    OperationStarted,
    OperationStatus,
    Role,
    SkillLoaded,
    Thinking,
)
from evalfleet.model.report import AttemptDetail, CaseView
from evalfleet.model.turn import TurnRecord
from evalfleet.reports.document_case import input_value
from evalfleet.reports.document_criteria import decides
from evalfleet.reports.evidence_value import plain
from evalfleet.reports.report_codes import assertion_code, report_code


class Boundary(StrEnum):
    """Where what was asked can turn into something else, in the order in which it does."""

    INPUT = "input"
    CONTEXT = "context"
    INTERPRETATION = "interpretation"
    AUTHORISATION = "authorisation"
    CAPABILITIES = "capabilities"
    STATE = "state"
    RESPONSE = "response"

    @property
    def question(self) -> str:
        return _QUESTIONS[self]


_QUESTIONS = {
    Boundary.INPUT: "Was what was submitted the intended input, with its variant and its answers?",
    Boundary.CONTEXT: "Did the model receive the context and the guidance that it needs?",
    Boundary.INTERPRETATION: "Did it identify what was asked, and choose the capabilities for it?",
    Boundary.AUTHORISATION: "Were the right operations planned and allowed?",
    Boundary.CAPABILITIES: "Did capabilities get the right inputs, and give the expected results?",
    Boundary.STATE: "Do the facts and effects that were committed say the right thing?",
    Boundary.RESPONSE: "Does the published response reflect that state?",
}

#: What tells, where nothing stands at a boundary, that there was nothing: a channel that is wholly seen.
_PROVEN_BY = {
    Boundary.INTERPRETATION: Channel.ACTIONS,
    Boundary.CAPABILITIES: Channel.ACTIONS,
    Boundary.RESPONSE: Channel.MESSAGES,
}


@dataclass(frozen=True, slots=True)
class Evidence:
    """One recorded thing: its id within the attempt (`turn/0/1/event/3`), what it is in a word, and its JSON value."""

    id: str
    what: str
    value: Any


@dataclass(frozen=True, slots=True)
class Crossing:
    """What is recorded at a boundary. `none` says that there was nothing, as the evidence proves."""

    boundary: Boundary
    evidence: tuple[Evidence, ...] = ()
    none: bool = False

    @property
    def recorded(self) -> bool:
        return bool(self.evidence)


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """The first thing that is not as it should be: an assertion, or a failure without one.

    `code` is set when it could not be judged, `check` then says what to look at first. `turns` are those that it is
    about, as `turn/<session>/<turn>`.
    """

    assertion: AssertionRow | None
    code: str | None
    turns: tuple[str, ...]
    crossings: tuple[Crossing, ...]

    @property
    def label(self) -> str | None:
        return None if self.assertion is None else self.assertion.label

    @property
    def check(self) -> str | None:
        known = CODES.get(self.code or "")
        return None if known is None else known.check or known.says


def first_divergence(view: CaseView, detail: AttemptDetail) -> Divergence | None:
    """The first assertion, as evaluated, that decides and does not hold; else the attempt's own failure.

    None when all hold and nothing failed. A failure that kept later assertions from being evaluated comes after those
    that were.
    """
    row = next((row for row in detail.assertions if not row.holds and _matters(row, view)), None)
    code = report_code(detail.view.kind, detail.view.code)
    if row is None and code is None:
        return None
    turns = _turns(detail, row)
    return Divergence(
        assertion=row,
        code=code if row is None else assertion_code(row),
        turns=tuple(_id(turn) for turn in turns),
        crossings=tuple(_crossing(boundary, turns, detail) for boundary in Boundary),
    )


def _matters(row: AssertionRow, view: CaseView) -> bool:
    return decides(row, view.style) or row.policy.points is not None


def _turns(detail: AttemptDetail, row: AssertionRow | None) -> Sequence[TurnRecord]:
    """The turns that a criterion looks at; of a failure the last one."""
    if row is None:
        return detail.turns[-1:]
    kind, *numbers = row.scope.split("/")
    if kind == "turn":
        return [turn for turn in detail.turns if _id(turn) == row.scope]
    if kind == "session":
        return [turn for turn in detail.turns if str(turn.session) == numbers[0]]
    return detail.turns


def _id(turn: TurnRecord) -> str:
    return f"turn/{turn.session}/{turn.index}"


def _crossing(boundary: Boundary, turns: Sequence[TurnRecord], detail: AttemptDetail) -> Crossing:
    found = tuple(evidence for turn in turns for evidence in _FINDERS[boundary](turn, detail))
    if found:
        return Crossing(boundary, found)
    channel = _PROVEN_BY.get(boundary)
    if channel is None or not turns or not all(_proves(turn, channel) for turn in turns):
        return Crossing(boundary)
    proof = (Evidence(f"{_id(turn)}/coverage/{channel.value}", "complete", None) for turn in turns)
    return Crossing(boundary, tuple(proof), none=True)


def _proves(turn: TurnRecord, channel: Channel) -> bool:
    return turn.failure is None and turn.coverage.entry(channel).is_complete


def _inputs(turn: TurnRecord, _: AttemptDetail) -> Iterable[Evidence]:
    yield Evidence(f"{_id(turn)}/input", "sent", input_value(turn.input))


def _events(turn: TurnRecord, wanted: Callable[[Event], bool]) -> Iterable[Evidence]:
    for number, event in enumerate(turn.events):
        if wanted(event):
            yield Evidence(f"{_id(turn)}/event/{number}", event.type, plain(event))


def _context(turn: TurnRecord, _: AttemptDetail) -> Iterable[Evidence]:
    return _events(turn, lambda event: isinstance(event, ContextInjected | SkillLoaded | Compaction))


def _interpretation(turn: TurnRecord, _: AttemptDetail) -> Iterable[Evidence]:
    return _events(turn, lambda event: isinstance(event, Thinking | OperationStarted))


def _authorisation(turn: TurnRecord, _: AttemptDetail) -> Iterable[Evidence]:
    return _events(turn, lambda event: isinstance(event, InputRequested) or _is_refused(event))


def _is_refused(event: Event) -> bool:
    return isinstance(event, OperationFinished) and event.status is OperationStatus.REJECTED


def _capabilities(turn: TurnRecord, _: AttemptDetail) -> Iterable[Evidence]:
    return _events(turn, lambda event: isinstance(event, OperationStarted | OperationFinished | ErrorReported))


def _state(turn: TurnRecord, detail: AttemptDetail) -> Iterable[Evidence]:
    if turn.data is not MISSING:
        yield Evidence(f"{_id(turn)}/data", "data", plain(turn.data))
    if turn.observation is not None:
        yield Evidence(f"{_id(turn)}/observation", "observation", plain(turn.observation))
    if turn.session_state is not None:
        yield Evidence(f"{_id(turn)}/checkpoint", "checkpoint", plain(turn.session_state))
    label = turn_label(turn.session, turn.index)
    for number, window in enumerate(() if detail.attribution is None else detail.attribution.windows):
        if window.label == label and window.by is ChangedBy.AGENT:
            paths = [f"{change.kind.value} {change.path}" for change in window.changes]
            yield Evidence(f"changes/{number}", "changed files", paths)


def _response(turn: TurnRecord, _: AttemptDetail) -> Iterable[Evidence]:
    return _events(turn, lambda event: isinstance(event, Message) and event.role is Role.ASSISTANT)


_FINDERS: dict[Boundary, Callable[[TurnRecord, AttemptDetail], Iterable[Evidence]]] = {
    Boundary.INPUT: _inputs,
    Boundary.CONTEXT: _context,
    Boundary.INTERPRETATION: _interpretation,
    Boundary.AUTHORISATION: _authorisation,
    Boundary.CAPABILITIES: _capabilities,
    Boundary.STATE: _state,
    Boundary.RESPONSE: _response,
}
