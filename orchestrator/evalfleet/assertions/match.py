"""The matcher: a frozen criterion on one value, its Kleene composition, and its reading under a coverage gap."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, ClassVar, TypeAlias

from evalfleet.assertions.snapshot import snapshot
from evalfleet.errors import AttemptFailure, AuthoringError
from evalfleet.model.assertion import AssertionResult, Result
from evalfleet.model.events import MISSING

Evaluation: TypeAlias = AssertionResult | Awaitable[AssertionResult]

WRONG_TYPE = "wrong-type:"
EVALUATOR_ERROR = "evaluator-error:"

#: Told the exception behind an evaluator error, for the attempt's diagnostics: a result never holds its text.
on_broken: ContextVar[Callable[[Exception], None]] = ContextVar("evalfleet_on_broken", default=lambda _: None)


class Polarity(Enum):
    """Which answer of a matcher stays true when more evidence turns up."""

    POSITIVE = "matched stays"
    NEGATIVE = "mismatched stays"
    MIXED = "neither stays"


class Match(ABC):
    """A frozen criterion on one value; `&`, `|` and `~` compose.

    Subclasses implement `describe` and `judge`; a wrong type is a mismatch, and whatever `judge` raises becomes
    an evaluator error.
    """

    __slots__ = ()
    measures: ClassVar[bool] = False

    @property
    def polarity(self) -> Polarity:
        return Polarity.POSITIVE

    @property
    def is_async(self) -> bool:
        return False

    @property
    def is_quick(self) -> bool:
        """Whether `quick` may be asked; then matching neither fails nor calls what an author wrote."""
        return False

    @abstractmethod
    def describe(self) -> Any:
        """The criterion as a JSON value."""

    def quick(self, value: Any) -> bool:
        """Whether it matches, without pictures: for the many candidates of which only a few are shown."""
        raise NotImplementedError

    @abstractmethod
    def judge(self, value: Any) -> Evaluation:
        """The result for `value`; may raise."""

    def evaluate(self, value: Any) -> Evaluation:
        """The result for `value`, errored when the matcher breaks; awaitable with an async predicate."""
        try:
            outcome = self.judge(value)
        except AttemptFailure:
            raise  # already attributed, for example a sandbox that a predicate asked and that died
        except Exception as error:  # noqa: BLE001 - an author's predicate may raise anything; it breaks the matcher
            on_broken.get()(error)
            return broken(type(error).__name__, value)
        return outcome if isinstance(outcome, AssertionResult) else _settled(outcome, value)

    def under_gap(self, outcome: AssertionResult, gap: str) -> AssertionResult:
        """How `outcome` reads when evidence may be missing: only what more evidence can't change stays."""
        if outcome.result in (Result.ERRORED, Result.UNAVAILABLE):
            return outcome
        stays = (
            self.polarity is Polarity.POSITIVE and outcome.holds and not self.measures,
            self.polarity is Polarity.NEGATIVE and not outcome.holds and not _is_wrong_type(outcome),
        )
        return outcome if any(stays) else replace(outcome, result=Result.UNAVAILABLE, reason=gap, measurement=None)

    def __and__(self, other: Match) -> Match:
        return all_of(self, other)

    def __or__(self, other: Match) -> Match:
        return any_of(self, other)

    def __invert__(self) -> Match:
        return negate(self)


async def _settled(outcome: Awaitable[AssertionResult], value: Any) -> AssertionResult:
    try:
        return await outcome
    except AttemptFailure:
        raise
    except Exception as error:  # noqa: BLE001 - as in evaluate
        on_broken.get()(error)
        return broken(type(error).__name__, value)


async def evaluate_match(match: Match, value: Any) -> AssertionResult:
    """Evaluate any matcher, waiting for an async predicate."""
    outcome = match.evaluate(value)
    return outcome if isinstance(outcome, AssertionResult) else await outcome


def evaluate_now(match: Match, value: Any) -> AssertionResult:
    """Evaluate where nothing can be awaited; a predicate that really waits is an evaluator error there."""
    outcome = match.evaluate(value)
    if isinstance(outcome, AssertionResult):
        return outcome
    if inspect.iscoroutine(outcome):
        try:
            outcome.send(None)
        except StopIteration as done:
            return done.value
        outcome.close()
    return broken("async-predicate", value)


def require_boolean(match: Match, place: str, *, can_await: bool = False) -> Match:
    """`match`, refused with an AuthoringError when it measures, or awaits where `place` can't."""
    if match.measures:
        raise AuthoringError(f"{place} takes matchers that match or not; {_name(match)} measures")
    if match.is_async and not can_await:
        raise AuthoringError(f"{place} can't await; give it a matcher with a plain (not async) predicate")
    return match


# --- results ---------------------------------------------------------------------------------------------------


def decided(holds: bool, *, expected: Any, actual: Any, reason: str | None = None) -> AssertionResult:
    """A matched or mismatched result with bounded pictures of what was expected and seen."""
    return AssertionResult(
        result=Result.MATCHED if holds else Result.MISMATCHED,
        reason=reason,
        expected=snapshot(expected),
        actual=snapshot(actual),
    )


def wrong_type(value: Any, *, expected: Any) -> AssertionResult:
    """A mismatch because the value is of another type than the matcher speaks about."""
    kind = "missing" if value is MISSING else type(value).__name__
    return decided(False, expected=expected, actual=value, reason=f"{WRONG_TYPE}{kind}")


def measured(number: float, *, expected: Any, actual: Any, reason: str | None = None) -> AssertionResult:
    """A formed measurement in [0, 1]."""
    return AssertionResult(
        result=Result.MATCHED,
        reason=reason,
        expected=snapshot(expected),
        actual=snapshot(actual),
        measurement=number,
    )


def broken(what: str, value: Any = MISSING) -> AssertionResult:
    """An evaluator error: our own or an author's code did not give an answer."""
    return AssertionResult(result=Result.ERRORED, reason=f"{EVALUATOR_ERROR}{what}", actual=snapshot(value))


def as_part(match: Match, outcome: AssertionResult) -> AssertionResult:
    """The result as a child of a larger one: it names its matcher, since no criterion stands beside a child."""
    return replace(outcome, expected=match.describe())


def _is_wrong_type(outcome: AssertionResult) -> bool:
    return outcome.reason is not None and outcome.reason.startswith(WRONG_TYPE)


# --- Kleene composition ----------------------------------------------------------------------------------------


def kleene_and(results: Iterable[Result]) -> Result:
    """Errored before mismatched before unavailable before matched: no part can launder an error."""
    return _first_of(results, (Result.ERRORED, Result.MISMATCHED, Result.UNAVAILABLE), Result.MATCHED)


def kleene_or(results: Iterable[Result]) -> Result:
    """Errored before matched before unavailable before mismatched."""
    return _first_of(results, (Result.ERRORED, Result.MATCHED, Result.UNAVAILABLE), Result.MISMATCHED)


def kleene_not(result: Result) -> Result:
    """Matched and mismatched change places; unavailable and errored stay."""
    return {Result.MATCHED: Result.MISMATCHED, Result.MISMATCHED: Result.MATCHED}.get(result, result)


def _first_of(results: Iterable[Result], order: Sequence[Result], otherwise: Result) -> Result:
    present = set(results)
    return next((result for result in order if result in present), otherwise)


class Mode(Enum):
    ALL = "all_of"
    ANY = "any_of"
    NOT = "negate"


@dataclass(frozen=True, slots=True)
class Composite(Match):
    """`and`, `or` or `not` over parts; every part is evaluated and kept."""

    mode: Mode
    parts: tuple[Match, ...]

    @property
    def polarity(self) -> Polarity:
        polarities = {part.polarity for part in self.parts}
        if len(polarities) > 1:
            return Polarity.MIXED
        polarity = polarities.pop()
        if self.mode is Mode.NOT:
            flipped = {Polarity.POSITIVE: Polarity.NEGATIVE, Polarity.NEGATIVE: Polarity.POSITIVE}
            return flipped.get(polarity, polarity)
        return polarity

    @property
    def is_async(self) -> bool:
        return any(part.is_async for part in self.parts)

    @property
    def is_quick(self) -> bool:
        return all(part.is_quick for part in self.parts)

    def quick(self, value: Any) -> bool:
        held = [part.quick(value) for part in self.parts]
        return not held[0] if self.mode is Mode.NOT else all(held) if self.mode is Mode.ALL else any(held)

    def describe(self) -> Any:
        return {"match": self.mode.value, "parts": [part.describe() for part in self.parts]}

    def judge(self, value: Any) -> Evaluation:
        outcomes = [part.evaluate(value) for part in self.parts]
        children = [outcome for outcome in outcomes if isinstance(outcome, AssertionResult)]
        return self._fold(children) if len(children) == len(outcomes) else self._join(outcomes)

    async def _join(self, outcomes: Sequence[Evaluation]) -> AssertionResult:
        return self._fold([outcome if isinstance(outcome, AssertionResult) else await outcome for outcome in outcomes])

    def under_gap(self, outcome: AssertionResult, gap: str) -> AssertionResult:
        if len(outcome.children) != len(self.parts):
            return outcome  # the composite itself broke
        pairs = zip(self.parts, outcome.children, strict=True)
        return self._fold([part.under_gap(child, gap) for part, child in pairs])

    def _fold(self, children: Sequence[AssertionResult]) -> AssertionResult:
        results = [child.result for child in children]
        if self.mode is Mode.NOT:
            result = kleene_not(results[0])
        else:
            result = (kleene_and if self.mode is Mode.ALL else kleene_or)(results)
        speaking = result in (Result.ERRORED, Result.UNAVAILABLE)
        reason = next((child.reason for child in children if child.result is result), None) if speaking else None
        return AssertionResult(
            result=result,
            reason=reason,
            expected=self.mode.value,
            actual=children[0].actual,
            children=tuple(as_part(part, child) for part, child in zip(self.parts, children, strict=True)),
        )


def all_of(*parts: Match) -> Match:
    """Matches when every part does."""
    return _composite(Mode.ALL, parts)


def any_of(*parts: Match) -> Match:
    """Matches when at least one part does."""
    return _composite(Mode.ANY, parts)


def negate(part: Match) -> Match:
    """Matches when `part` does not."""
    return _composite(Mode.NOT, (part,))


def _composite(mode: Mode, parts: tuple[Match, ...]) -> Match:
    if not parts:
        raise AuthoringError(f"{mode.value} needs at least one matcher")
    for part in parts:
        if not isinstance(part, Match):  # pyright: ignore[reportUnnecessaryIsInstance] - authors need not type-check
            raise AuthoringError(f"{mode.value} takes matchers, not {type(part).__name__}")
        require_boolean(part, mode.value, can_await=True)
    return Composite(mode, parts)


def _name(match: Match) -> str:
    return type(match).__name__
