"""Matchers an author writes: predicates and scores."""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from evalfleet.assertions.match import Evaluation, Match, Polarity, broken, decided, measured
from evalfleet.assertions.snapshot import snapshot
from evalfleet.errors import AuthoringError
from evalfleet.model.assertion import AssertionResult, Result

Predicate = Callable[[Any], "bool | Awaitable[bool]"]
Scorer = Callable[[Any], "float | Awaitable[float | None] | None"]


@dataclass(frozen=True, slots=True)
class Satisfies(Match):
    label: str
    predicate: Predicate

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.predicate)

    def describe(self) -> Any:
        return {"match": "satisfies", "label": self.label}

    def judge(self, value: Any) -> Evaluation:
        answer = self.predicate(value)
        return self._later(answer, value) if inspect.isawaitable(answer) else self._read(answer, value)

    async def _later(self, answer: Awaitable[Any], value: Any) -> AssertionResult:
        return self._read(await answer, value)

    def _read(self, answer: Any, value: Any) -> AssertionResult:
        if not isinstance(answer, bool):
            return broken(f"non-boolean ({type(answer).__name__})", value)
        return decided(answer, expected=self.label, actual=value)


@dataclass(frozen=True, slots=True)
class SatisfiesAll(Satisfies):
    """A predicate on all there is of something: where some of it may be missing, neither answer is certain."""

    @property
    def polarity(self) -> Polarity:
        return Polarity.MIXED


def satisfies_all(label: str, predicate: Predicate) -> Match:
    """What `events_satisfy` asks of the events."""
    return SatisfiesAll(_named(label, "events_satisfy"), _callable(predicate, "events_satisfy"))


def satisfies(label: str, predicate: Predicate) -> Match:
    """Matches when `predicate(value)` is True; it may be async. An answer that is not a bool is an error."""
    return Satisfies(_named(label, "satisfies"), _callable(predicate, "satisfies"))


def define_match(name: str, predicate: Predicate) -> Match:
    """A matcher of your own, shown as `name` in reports; the same rules as `satisfies`."""
    return Satisfies(_named(name, "define_match"), _callable(predicate, "define_match"))


@dataclass(frozen=True, slots=True)
class ScoreMatch(Match):
    measures: ClassVar[bool] = True
    name: str
    scorer: Scorer

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.scorer)

    def describe(self) -> Any:
        return {"match": "score", "name": self.name}

    def judge(self, value: Any) -> Evaluation:
        answer = self.scorer(value)
        return self._later(answer, value) if inspect.isawaitable(answer) else self._read(answer, value)

    async def _later(self, answer: Awaitable[Any], value: Any) -> AssertionResult:
        return self._read(await answer, value)

    def _read(self, answer: Any, value: Any) -> AssertionResult:
        fault = measurement_fault(answer)
        if fault is not None:
            return broken(fault, answer)
        if answer is None:
            return AssertionResult(
                result=Result.UNAVAILABLE, reason="evaluator:unscored", expected=self.name, actual=snapshot(value)
            )
        return measured(float(answer), expected=self.name, actual=value)


def define_score_match(name: str, scorer: Scorer) -> Match:
    """A measurement of your own: `scorer(value)` gives a number in [0, 1], or None for "not scored".

    True counts as 1 and False as 0. Anything else – NaN, a text, 7 – is an evaluator error, never 0.
    """
    return ScoreMatch(_named(name, "define_score_match"), _callable(scorer, "define_score_match"))


def measurement_fault(answer: Any) -> str | None:
    """Why `answer` is not a measurement in [0, 1]; None when it is one, or None itself."""
    if answer is None or isinstance(answer, bool):
        return None
    if not isinstance(answer, (int, float)):
        return f"not-a-number ({type(answer).__name__})"
    if isinstance(answer, float) and not math.isfinite(answer):
        return "non-finite"
    return None if 0 <= answer <= 1 else "out-of-range"


def _named(name: Any, place: str) -> str:
    if not isinstance(name, str) or not name.strip():
        raise AuthoringError(f"{place} needs a name that is not empty")
    return name


def _callable(function: Any, place: str) -> Any:
    if not callable(function):
        raise AuthoringError(f"{place} needs a function, not {type(function).__name__}")
    return function
