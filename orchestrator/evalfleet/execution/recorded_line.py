"""A conversation with the record of an attempt instead of its agent, or before its agent goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.execution.recorded_agent import RecordedAgent
from evalfleet.execution.sessions import SessionLine
from evalfleet.execution.state import AttemptState
from evalfleet.model.canonical import digest
from evalfleet.model.turn import Turn, TurnInput, TurnRecord
from evalfleet.ports import Adapter, Resumes, Session

REPLAY_DIVERGED = "REPLAY_DIVERGED"
RESUME_UNSAFE = "TURN_RESUME_UNSAFE"
RESUME_UNSUPPORTED = "TURN_RESUME_NOT_SUPPORTED"

#: Characters of each text that a divergence quotes, and how many of them stand before the place.
_QUOTED, _BEFORE = 200, 40


class RecordedLine(SessionLine):
    """A conversation line that gives the recorded turns, in their order, to the inputs that they answered.

    Any other input, or one more, is the attempt's failure `REPLAY_DIVERGED`, and nothing is sent. Its kind is
    authoring: the eval was changed since, or sends what its inputs do not determine.
    """

    def __init__(self, state: AttemptState, number: int, recorded: RecordedAgent) -> None:
        super().__init__(state, number)
        self._recorded = [turn for turn in recorded.turns if turn.session == number]
        self._time = recorded.time

    async def send(self, given: TurnInput) -> TurnRecord:
        self._state.check_open("a send")
        if self.in_flight or self._failure is not None:
            return await super().send(given)  # refuses it
        place = f"session {self.number + 1}, turn {len(self.turns) + 1}"
        if len(self.turns) == len(self._recorded):
            count = len(self._recorded)
            raise self._diverged(f"{place} was never sent: the record has {count} of this session")
        turn = self._recorded[len(self.turns)]
        difference = _difference(turn.input, self._as_kept(given))
        if difference is not None:
            raise self._diverged(f"{place}: {difference}")
        if turn.failure is not None:
            self._declared = turn.coverage
            return await super().send(given)
        self._time.reach(turn.started_at + turn.duration)
        self.turns.append(turn)
        self._state.turns.append(turn)
        return turn

    async def _exchange(self, given: TurnInput) -> Turn:
        """What no agent answered before the body gave it up: it is given up again, or the body has changed."""
        turn = self._recorded[len(self.turns)]
        await self._time.sleep(turn.duration + self._state.services.patience.grace)
        raise self._diverged(f"session {self.number + 1}, turn {turn.index + 1} was given up, and is now waited for")

    def _diverged(self, message: str) -> AttemptFailure:
        return self._state.fail(AttemptFailure(FailureKind.AUTHORING, REPLAY_DIVERGED, message))


class ContinuedLine(SessionLine):
    """A conversation line that an earlier attempt began: what was answered then is not sent again.

    Any other input is the attempt's failure `REPLAY_DIVERGED`. The agent goes on in the session that the last recorded
    turn left.
    """

    def __init__(self, state: AttemptState, number: int, begun: Sequence[TurnRecord]) -> None:
        super().__init__(state, number)
        self._begun = begun

    async def send(self, given: TurnInput) -> TurnRecord:
        if len(self.turns) >= len(self._begun):
            return await super().send(given)
        self._state.check_open("a send")
        turn = self._begun[len(self.turns)]
        difference = _difference(turn.input, self._as_kept(given))
        if difference is not None:
            message = f"turn {turn.index + 1} was sent by an earlier attempt: {difference}"
            raise self._state.fail(AttemptFailure(FailureKind.AUTHORING, REPLAY_DIVERGED, message))
        self._state.next_sequence()
        self.turns.append(turn)
        self._state.turns.append(turn)
        return turn

    async def _open(self, adapter: Adapter) -> Session:
        left = self._begun[-1].session_state
        if left is None:
            message = "the last turn of the earlier attempt left no state to go on from"
            raise AttemptFailure(FailureKind.ADAPTER, RESUME_UNSAFE, message)
        if not isinstance(adapter, Resumes):
            message = "the conversation was begun by an earlier attempt, and the adapter can't open its session again"
            raise AttemptFailure(FailureKind.ADAPTER, RESUME_UNSUPPORTED, message)
        return await adapter.reopen(left, self._context)


def _difference(recorded: TurnInput, given: TurnInput) -> str | None:
    """What of an input is not as it was recorded, with both; None when it is the same."""
    if given.text != recorded.text:
        return _texts_differ(recorded.text, given.text)
    if given.files != recorded.files:
        return _differ("files", [file.name for file in recorded.files], [file.name for file in given.files])
    if given.responses != recorded.responses:
        return _differ("responses", recorded.responses, given.responses)
    for what, was, now in (
        ("output schemas", recorded.output_schema, given.output_schema),
        ("step inputs", recorded.value, given.value),
    ):
        pair = [None if each is None else dict(each) for each in (was, now)]
        if digest(pair[0]) != digest(pair[1]):
            return _differ(what, *pair)
    return None


def _texts_differ(recorded: str, given: str) -> str:
    """Both texts, of long ones what stands where they part."""
    same = next((at for at, pair in enumerate(zip(recorded, given, strict=False)) if pair[0] != pair[1]), None)
    parting = min(len(recorded), len(given)) if same is None else same
    start = max(0, parting - _BEFORE) if max(len(recorded), len(given)) > _QUOTED else 0
    was, now = (_quoted(text[start:]) for text in (recorded, given))
    return f"the text was {was} and is {now}" + (f" (from character {start + 1})" if start else "")


def _differ(what: str, recorded: Any, given: Any) -> str:
    was, now = _quoted(recorded), _quoted(given)
    return f"the {what} were {was} and are {now}" if was != now else f"the {what} differ in content: {now}"


def _quoted(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]}…"
