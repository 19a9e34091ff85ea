"""Criteria that hold a judge's: evaluated but for it at once, and to their end when it has answered. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from evalfleet.model.suite import SuiteOutcome
from evalfleet.suites.calling import NOT_ASKED, Answer
from evalfleet.suites.evaluate import folded


def waiting(outcome: SuiteOutcome) -> Iterator[SuiteOutcome]:
    """The parts of an outcome that a judge is still to be asked about, in order."""
    if outcome.children:
        for child in outcome.children:
            yield from waiting(child)
    elif outcome.reason == NOT_ASKED:
        yield outcome


def is_broken(outcome: SuiteOutcome) -> bool:
    """Whether it can't be judged, whatever the judge will say of what it is still to be asked about."""
    if outcome.children:
        return any(map(is_broken, outcome.children))
    return outcome.error_code is not None and outcome.reason != NOT_ASKED


def answered(outcome: SuiteOutcome, answers: Iterable[Answer]) -> SuiteOutcome:
    """The outcome with an answer to each of its waiting parts, in their order."""
    return _answered(outcome, iter(answers))


def _answered(outcome: SuiteOutcome, answers: Iterator[Answer]) -> SuiteOutcome:
    if outcome.children:
        children = tuple([_answered(child, answers) for child in outcome.children])
        return replace(outcome, children=children, **folded(outcome.kind, children))
    if outcome.reason != NOT_ASKED:
        return outcome
    said = next(answers)
    return replace(outcome, passed=said.passed, error_code=said.error_code, reason=said.reason, evidence=said.evidence)
