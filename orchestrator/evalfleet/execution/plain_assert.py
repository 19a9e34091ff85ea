"""A failed plain `assert` of a test body as a failed gate: its source line, its text and the values of its parts."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import FrameType
from typing import Any, Final

from evalfleet.assertions.evidence import coverage_reason, unwrap
from evalfleet.assertions.probed_asserts import UNSET, parts, probe
from evalfleet.assertions.snapshot import clip, snapshot
from evalfleet.errors import describe
from evalfleet.execution.tracebacks import Place, innermost, is_own
from evalfleet.execution.unrecorded import Unrecorded
from evalfleet.model.assertion import AssertionResult, Result
from evalfleet.model.events import MISSING

_UNKNOWN: Final = object()
_SHOWN = 16  # parts whose values are kept with the row

#: Comparisons that fail on something that was seen; all others may only lack what was not collected.
_REFUTED = (ast.NotIn, ast.NotEq, ast.IsNot)
_EXCEEDED = (ast.Lt, ast.LtE)


@dataclass(frozen=True, slots=True)
class PlainAssert:
    """A failed assert: where it stands, its expression as text, and what was compared."""

    place: Place
    expression: str
    outcome: AssertionResult


def read_assert(error: AssertionError) -> PlainAssert | None:
    """What the failed assert says; None when it arose in our own code, so that the author is not blamed.

    A comparison of a value read off a turn fails as unavailable where its channel may lack what would have held.
    """
    place = innermost(error)
    if place is None or is_own(place[0].f_code.co_filename):
        return None
    frame, line = place
    lines = linecache.getlines(frame.f_code.co_filename)
    test = _asserted("".join(lines), line)
    text = ast.unparse(test) if test is not None else "".join(lines[line - 1 : line])
    said = clip(describe(error)) or None
    outcome = AssertionResult(result=Result.MISMATCHED, reason=said)
    return PlainAssert(
        place=(frame.f_code.co_filename, line),
        expression=clip(text.strip()),
        outcome=outcome if test is None else _outcome(test, _Values(test, frame), said),
    )


@lru_cache(maxsize=256)
def _asserted(source: str, line: int) -> ast.expr | None:
    """What the assert that spans `line` of the source asserts; None when there is none to be read."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return None
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return found[-1].test if found else None


class _Values:
    """The values of an assert's parts: those that were kept, else those of names, which cost no evaluation."""

    def __init__(self, test: ast.expr, frame: FrameType) -> None:
        self._local = frame.f_locals
        self._global = frame.f_globals
        kept = {id(part): probe(number) for number, part in enumerate(parts(test))}
        self._kept = kept if probe(0) in self._local else {}

    @property
    def are_kept(self) -> bool:
        return bool(self._kept)

    def of(self, node: ast.expr) -> Any:
        """The value of `node`, `_UNKNOWN` when it was not evaluated or not kept."""
        match node:
            case ast.Constant(value=value):
                return value
            case _ if self._kept:
                kept: Any = self._local.get(self._kept.get(id(node), ""), UNSET)
                return _UNKNOWN if _is_unset(kept) or type(kept) is Unrecorded else kept
            case ast.Name(id=name):
                return self._local.get(name, self._global.get(name, _UNKNOWN))
            case ast.Attribute(value=inner, attr=name):
                owner = self.of(inner)
                return _UNKNOWN if owner is _UNKNOWN else _attribute(owner, name)
            case ast.List(elts=items) | ast.Tuple(elts=items):
                values = [self.of(item) for item in items]
                return _UNKNOWN if any(value is _UNKNOWN for value in values) else values
            case _:
                return _UNKNOWN

    def was_evaluated(self, node: ast.expr) -> bool:
        inside = list(parts(node))
        return not self._kept or not inside or any(self.of(part) is not _UNKNOWN for part in inside)


def _outcome(test: ast.expr, values: _Values, said: str | None) -> AssertionResult:
    left, right, operation = _decisive(test, values)
    actual, expected = (MISSING if side is None else _shown(values.of(side)) for side in (left, right))
    gap = _gap(values.of(left), operation) or (None if right is None else _gap(values.of(right), operation))
    return AssertionResult(
        result=Result.MISMATCHED if gap is None else Result.UNAVAILABLE,
        reason=said if gap is None else gap,
        expected=expected,
        actual=actual,
        children=tuple(_parts_shown(test, values, (left, right))),
    )


def _decisive(test: ast.expr, values: _Values) -> tuple[ast.expr, ast.expr | None, ast.cmpop | ast.Not | None]:
    """The comparison that failed, as its sides and its operator: the last one that was evaluated."""
    match test:
        case ast.BoolOp(values=operands) if values.are_kept:
            reached = [operand for operand in operands if values.was_evaluated(operand)]
            return _decisive((reached or operands)[-1], values)
        case ast.UnaryOp(op=ast.Not() as operation, operand=operand):
            left, right, _ = _decisive(operand, values)
            return left, right, operation
        case ast.Compare(left=left, ops=operations, comparators=comparators):
            sides = [left, *comparators]
            last = next((at for at in range(len(comparators), 1, -1) if values.was_evaluated(sides[at])), 1)
            return sides[last - 1], sides[last], operations[last - 1]
        case _:
            return test, None, None


def _gap(value: Any, operation: ast.cmpop | ast.Not | None) -> str | None:
    """Why the comparison may have failed only since evidence is missing; None when it failed on what is there."""
    _, channel, entry = unwrap(value)
    if channel is None or entry is None or entry.is_complete or isinstance(operation, (ast.Not, *_REFUTED, *_EXCEEDED)):
        return None
    return coverage_reason(channel, entry)


def _parts_shown(test: ast.expr, values: _Values, sides: tuple[ast.expr, ast.expr | None]) -> Iterator[AssertionResult]:
    """The parts with a value worth showing, but for the two that stand beside them."""
    told = {ast.unparse(side) for side in sides if side is not None}
    for part in parts(test):
        text = ast.unparse(part)
        picture = MISSING if text in told else _shown(values.of(part))
        if picture is MISSING or (isinstance(picture, dict) and picture.keys() == {"$type"}):
            continue
        told.add(text)
        yield AssertionResult(result=Result.MISMATCHED, expected={"part": clip(text)}, actual=picture)
        if len(told) >= _SHOWN:
            return


def _shown(value: Any) -> Any:
    return MISSING if value is _UNKNOWN else snapshot(unwrap(value)[0])


def _is_unset(value: object) -> bool:
    return type(value) is tuple and value == UNSET


def _attribute(owner: Any, name: str) -> Any:
    try:
        return getattr(owner, name)
    except Exception:  # noqa: BLE001 - a property that raises only means that there is nothing to show
        return _UNKNOWN
