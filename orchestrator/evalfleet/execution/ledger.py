"""The assertions of one attempt: registered at once, evaluated once and in source order, kept as rows."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from evalfleet.assertions.change_criteria import ChangeCriterion, FileChanged, FileDeleted, NoChanges, NotInDiff
from evalfleet.assertions.criteria import Check, Criterion, check_value, evaluate
from evalfleet.assertions.evidence import ScopeEvidence, scope_of
from evalfleet.assertions.match import EVALUATOR_ERROR, on_broken
from evalfleet.errors import AttemptFailure
from evalfleet.execution.input_requests import RequestFilter
from evalfleet.execution.judging import Judged, JudgedParts, answered
from evalfleet.execution.plain_assert import PlainAssert
from evalfleet.execution.signals import BodyStopped
from evalfleet.execution.state import AttemptState
from evalfleet.execution.suite_rows import with_answers
from evalfleet.execution.tracebacks import Place, caller, place_text
from evalfleet.execution.unrecorded import NOT_RECORDED, NotRecorded, Unrecorded
from evalfleet.grading.fold import ASSERT, judge_row
from evalfleet.grading.judge_prompts import Question
from evalfleet.model.assertion import AssertionPolicy, AssertionResult, AssertionRow, Result, ScopeKind
from evalfleet.model.events import InputRequested
from evalfleet.model.turn import TurnRecord

#: Assertions of one attempt: more are a loop that does not end, or rows that nobody will read.
ENTRY_LIMIT = 4_096

#: The titles of the groups around the statement that runs; each task and thread has its own.
GROUPS: ContextVar[tuple[str, ...]] = ContextVar("evalfleet_groups", default=())

#: Answered from the windows that are closed when the test body has ended.
_AT_THE_END = (FileChanged, FileDeleted, NoChanges, NotInDiff)

#: The reason of an assertion that was never evaluated.
NOT_EVALUATED = "not-evaluated"

#: Answered by a judge, when all that the agent did is recorded.
_A_JUDGES = (Judged, JudgedParts)

_DEFAULT_POLICY = AssertionPolicy()

#: The scope of an assertion on a workdir.
_SANDBOX = "sandbox"

_SCOPES_KEPT = 8  # read scopes that are held for the assertions to come


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a scoped assertion looks at, frozen at the call: the turns so far, and whether more are on the way.

    `others` are the attempt's turns, also later ones, of which a turn's scope needs those before it.
    """

    kind: ScopeKind
    label: str
    turns: tuple[TurnRecord, ...]
    in_flight: bool
    others: Sequence[TurnRecord] = ()


@dataclass(slots=True)
class Entry:
    """One registered assertion: what it asks, of what, how it was configured, and its result once it has one."""

    name: str
    criterion: Criterion | ChangeCriterion | Judged | JudgedParts | None
    subject: Any
    group: tuple[str, ...]
    place: Place
    described: Any = None
    label: str | None = None
    key: str | None = None
    gate: bool | None = None
    gate_min: float | None = None
    at_least: float | None = None
    points: float | None = None
    optional: bool = False
    outcome: AssertionResult | None = None

    @property
    def measures(self) -> bool:
        """Whether it yields a number rather than a yes or no."""
        return isinstance(self.criterion, Judged) or (
            isinstance(self.criterion, Check) and self.criterion.match.measures
        )

    @property
    def at_the_end(self) -> bool:
        """Whether it can only be answered when the test body has ended."""
        return isinstance(self.criterion, _AT_THE_END)

    @property
    def scope(self) -> str:
        if self.at_the_end:
            return _SANDBOX
        return self.subject.label if type(self.subject) is Snapshot else ScopeKind.VALUE.value

    @property
    def policy(self) -> AssertionPolicy:
        if self.gate is None and self.at_least is None and self.points is None and not self.optional:
            return _DEFAULT_POLICY
        return AssertionPolicy(
            gate=self.gate,
            gate_min=self.gate_min,
            at_least=self.at_least,
            points=self.points,
            optional=self.optional,
        )


class Ledger:
    """All assertions of one attempt, in the order of their calls."""

    def __init__(self, state: AttemptState) -> None:
        self.state = state
        self.entries: list[Entry] = []
        self._scopes: dict[tuple[str, int, bool], ScopeEvidence] = {}
        self._settling: asyncio.Lock | None = None

    def register(self, name: str, criterion: Criterion | ChangeCriterion | Judged, subject: Any) -> Entry:
        """Add an assertion that an author wrote three calls further out. Raises AuthoringError after the end."""
        entry = Entry(name, criterion, subject, GROUPS.get(), caller(3))
        self.keep(entry)
        return entry

    def keep(self, entry: Entry) -> None:
        """Add an assertion that no author's call registered: a scenario's. Raises AuthoringError after the end."""
        self.state.check_open(f"{entry.name}()")
        if len(self.entries) >= ENTRY_LIMIT:
            raise self.state.refuse(f"more than {ENTRY_LIMIT} assertions in one attempt", "TOO_MANY_ASSERTIONS")
        self.entries.append(entry)

    def note_assert(self, failed: PlainAssert) -> None:
        """Add a plain `assert` of the test body that failed."""
        described = {"criterion": ASSERT, "expression": failed.expression}
        entry = Entry(ASSERT, None, None, GROUPS.get(), failed.place, described, gate=True, outcome=failed.outcome)
        self.entries.append(entry)

    def require_request(
        self, wanted: RequestFilter, pending: Sequence[InputRequested], last: TurnRecord | None
    ) -> InputRequested:
        """The one of `pending` that is wanted, on the record as a gate; ends the body when there is not exactly one."""
        name = "require_input_request"
        self.state.check_open(f"{name}()")
        with self.telling():
            found = [request for request in pending if wanted.fits(request)]
        self.decide(name, wanted.describe(), None, wanted.outcome(found, pending, last), 3)
        return found[0]

    def decide(self, name: str, described: Any, subject: Any, outcome: AssertionResult, depth: int) -> None:
        """Add a gate that is decided already, written `depth` calls further out; ends the body unless it holds."""
        self.state.check_open(f"{name}()")
        entry = Entry(name, None, subject, GROUPS.get(), caller(depth), described, gate=True, outcome=outcome)
        self.entries.append(entry)
        if not outcome.holds:
            raise self.state.latch(BodyStopped())

    @property
    def asks_judge(self) -> bool:
        """Whether an assertion that is not yet evaluated is a judge's to answer."""
        return any(entry.outcome is None and isinstance(entry.criterion, _A_JUDGES) for entry in self.entries)

    @property
    def questions(self) -> dict[int, tuple[Question, ...]]:
        """What the judge has still to answer, by the index of the assertion."""
        return {
            index: criterion.questions if isinstance(criterion, JudgedParts) else (criterion.question,)
            for index, entry in enumerate(self.entries)
            if entry.outcome is None and isinstance(criterion := entry.criterion, _A_JUDGES)
        }

    async def settle(self) -> None:
        """Evaluate what is not yet evaluated and is no judge's to answer, in source order."""
        await self._settle_all(lambda entry: not isinstance(entry.criterion, _A_JUDGES))

    async def judge(self) -> None:
        """Have the judge answer what is its to answer, in source order."""
        await self._settle_all(lambda _: True)

    async def _settle_all(self, fits: Callable[[Entry], bool]) -> None:
        if self._settling is None:  # the usual case: the body never stopped by an assertion
            await self._settle(None, fits)
        else:
            async with self._settling:
                await self._settle(None, fits)

    async def settle_to(self, last: Entry) -> None:
        """Evaluate `last`, after all that were registered before it and can be; one caller at a time."""
        self._settling = self._settling or asyncio.Lock()
        async with self._settling:
            await self._settle(last, lambda entry: not entry.at_the_end)

    async def _settle(self, last: Entry | None, fits: Callable[[Entry], bool]) -> None:
        with self.telling():
            for index, entry in enumerate(self.entries):
                if entry.outcome is None and fits(entry):
                    entry.outcome = await self._evaluate(entry, index)
                if entry is last:
                    break

    @contextmanager
    def telling(self) -> Generator[None]:
        """Keep the tracebacks of matchers that break while the block runs."""
        token = on_broken.set(self.state.note_error)
        try:
            yield
        finally:
            on_broken.reset(token)

    def rows(self) -> tuple[AssertionRow, ...]:
        """The settled assertions as they are recorded. What was never evaluated is unavailable."""
        return tuple(self._row(index, entry) for index, entry in enumerate(self.entries))

    def holds(self, entry: Entry) -> bool | None:
        """Whether a settled entry holds, by its threshold; None when that can't be known."""
        if entry.outcome is None:
            return None
        style = self.state.job.definition.style
        return judge_row(style, entry.name, entry.outcome, entry.policy)[0]

    async def _evaluate(self, entry: Entry, index: int) -> AssertionResult:
        criterion, subject = entry.criterion, entry.subject
        if isinstance(criterion, JudgedParts):
            return await self._evaluate_parts(entry, criterion, index)
        if isinstance(criterion, Judged):
            if isinstance(subject, Unrecorded):
                return AssertionResult(result=Result.UNAVAILABLE, reason=NOT_RECORDED)
            return await answered(criterion, index, self.state)
        return await self._evaluate_own(criterion, subject)

    async def _evaluate_parts(self, entry: Entry, criterion: JudgedParts, index: int) -> AssertionResult:
        said = [await answered(Judged(question), index, self.state) for question in criterion.questions]
        outcome, entry.described = with_answers(criterion.described, said)
        entry.criterion = None
        return outcome

    async def _evaluate_own(self, criterion: Criterion | ChangeCriterion | None, subject: Any) -> AssertionResult:
        """What no judge is asked for."""
        try:
            if isinstance(subject, Unrecorded):
                raise NotRecorded
            if isinstance(criterion, Check):
                return await check_value(subject, criterion.match)
            if isinstance(criterion, _AT_THE_END):
                seen = self.state.attribution
                if seen is None:
                    raise NotRecorded
                return criterion.evaluate(seen)
            if criterion is not None:
                return evaluate(criterion, self._scope(subject))
        except (asyncio.CancelledError, KeyboardInterrupt):
            raise
        except NotRecorded:
            return AssertionResult(result=Result.UNAVAILABLE, reason=NOT_RECORDED)
        except AttemptFailure as failure:
            self.state.fail(failure, failure)
            return AssertionResult(result=Result.ERRORED, reason=f"{EVALUATOR_ERROR}{failure.code}")
        except BaseException as error:  # noqa: BLE001 - whatever a matcher raises, the other assertions stand
            self.state.note_error(error)
            return AssertionResult(result=Result.ERRORED, reason=f"{EVALUATOR_ERROR}{type(error).__name__}")
        return AssertionResult(result=Result.ERRORED, reason=f"{EVALUATOR_ERROR}nothing-to-evaluate")

    def _scope(self, seen: Snapshot) -> ScopeEvidence:
        """The evidence of a snapshot, read once for the assertions that share it, which mostly stand together."""
        key = (seen.label, len(seen.turns), seen.in_flight)
        scope = self._scopes.get(key)
        if scope is None:
            if len(self._scopes) >= _SCOPES_KEPT:
                self._scopes.clear()
            scope = self._scopes[key] = scope_of(seen.kind, seen.turns, seen.in_flight, seen.others)
        return scope

    def _row(self, index: int, entry: Entry) -> AssertionRow:
        outcome = entry.outcome or AssertionResult(result=Result.UNAVAILABLE, reason=NOT_EVALUATED)
        policy = entry.policy
        holds, earned, _ = judge_row(self.state.job.definition.style, entry.name, outcome, policy)
        return AssertionRow(
            index=index,
            name=entry.name,
            scope=entry.scope,
            criterion=entry.described if entry.criterion is None else entry.criterion.describe(),
            policy=policy,
            outcome=outcome,
            label=entry.label,
            key=entry.key,
            group=entry.group,
            source=place_text(entry.place, self.state.job.arm.project),
            earned=earned,
            holds=holds,
        )


def frozen(value: Any) -> Any:
    """`value` as it is now: a plain container is copied, so that changing it later changes no assertion."""
    if type(value) not in (list, dict, set):
        return value
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001 - what can't be copied is checked as it is
        return value
