"""One recorded assertion as lines: what it wanted, what was there, why it could not be known, and where it stands."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from evalfleet.grading.explain import matcher_text, wanted
from evalfleet.model.assertion import AssertionPolicy, AssertionResult, AssertionRow, Result
from evalfleet.reports.visible import cut, shown, visible_line

_MARKS = {Result.MATCHED: "✓", Result.MISMATCHED: "✗", Result.UNAVAILABLE: "?", Result.ERRORED: "!"}


def assertion_lines(row: AssertionRow, limit: int | None) -> Iterator[str]:
    """The assertion and, below it, its evidence and every child, with a source line when it is known."""
    label = visible_line(" › ".join((*row.group, row.label or row.name)))
    subject = visible_line(f"{row.name} {row.scope}" if row.label else row.scope)
    facts = [subject, *_policy(row.policy), *_numbers(row)]
    place = f"  {visible_line(row.source)}" if row.source else ""
    yield f"  {_mark(row)} {label} · {' · '.join(facts)}{place}"
    if row.outcome.result is not Result.MATCHED:
        said = wanted(row.criterion, row.outcome.expected, partial(shown, limit=limit)) or shown(row.criterion, limit)
        yield f"      expected {visible_line(said)}"
    yield from _evidence(row.outcome, "      ", limit)


def _mark(row: AssertionRow) -> str:
    """A matched measurement below its threshold does not hold, so it may not look as if it did."""
    if row.outcome.result is Result.MATCHED and row.holds is False:
        return _MARKS[Result.MISMATCHED]
    return _MARKS[row.outcome.result]


def _policy(policy: AssertionPolicy) -> Iterator[str]:
    if policy.gate_min is not None:
        yield f"gate ≥ {policy.gate_min:g}"
    elif policy.gate:
        yield "gate"
    if policy.at_least is not None:
        yield f"at least {policy.at_least:g}, recorded only"
    if policy.optional:
        yield "optional"


def _numbers(row: AssertionRow) -> Iterator[str]:
    if row.outcome.measurement is not None:
        yield f"measured {row.outcome.measurement:g}"
    if row.policy.points is not None:
        earned = "unknown" if row.earned is None else f"{row.earned:g}"
        yield f"{earned} of {row.policy.points:g} points"


def is_value(child: AssertionResult) -> bool:
    """Whether it is no result, but the value of a part of a plain assert."""
    expected: Any = child.expected
    return isinstance(expected, dict) and "part" in expected


def _evidence(result: AssertionResult, indent: str, limit: int | None) -> Iterator[str]:
    """A matched result needs no explanation; the others say everything that is known."""
    if result.reason:
        yield f"{indent}{result.result.value}: {visible_line(cut(result.reason, limit))}"
    values = [child for child in result.children if is_value(child)]
    if result.result is not Result.MATCHED and len(values) == len(result.children):
        yield f"{indent}actual   {shown(result.actual, limit)}"
    for child in values:
        yield f"{indent}where    {visible_line(str(child.expected['part']))} is {shown(child.actual, limit)}"
    for child in result.children[len(values) :]:
        said = matcher_text(child.expected, partial(shown, limit=limit)) or shown(child.expected, limit)
        yield f"{indent}{_MARKS[child.result]} {visible_line(said)}"
        yield from _evidence(child, f"{indent}    ", limit)
