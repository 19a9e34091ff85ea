"""A failed plain `assert` of a test body as a failed gate: its source line, its text and the compared values."""

from __future__ import annotations

import ast
import linecache
from dataclasses import dataclass
from functools import lru_cache
from types import FrameType
from typing import Any, Final

from evalfleet.assertions.evidence import unwrap
from evalfleet.assertions.snapshot import clip, snapshot
from evalfleet.errors import describe
from evalfleet.execution.tracebacks import Place, innermost, is_own
from evalfleet.model.assertion import AssertionResult, Result
from evalfleet.model.events import MISSING

_UNKNOWN: Final = object()


@dataclass(frozen=True, slots=True)
class PlainAssert:
    """A failed assert: where it stands, its expression as text, and what was compared."""

    place: Place
    expression: str
    outcome: AssertionResult


def read_assert(error: AssertionError) -> PlainAssert | None:
    """What the failed assert says; None when it arose in our own code, so that the author is not blamed."""
    place = innermost(error)
    if place is None or is_own(place[0].f_code.co_filename):
        return None
    frame, line = place
    statement = _statement(frame.f_code.co_filename, line)
    actual, expected = _compared(statement.test, frame) if statement is not None else (MISSING, MISSING)
    text = ast.unparse(statement.test) if statement is not None else linecache.getline(frame.f_code.co_filename, line)
    return PlainAssert(
        place=(frame.f_code.co_filename, line),
        expression=clip(text.strip()),
        outcome=AssertionResult(
            result=Result.MISMATCHED,
            reason=clip(describe(error)) or None,
            expected=snapshot(expected),
            actual=snapshot(actual),
        ),
    )


@lru_cache(maxsize=256)
def _statement(filename: str, line: int) -> ast.Assert | None:
    """The assert statement that spans `line` of the file, None when its source can't be read."""
    try:
        tree = ast.parse("".join(linecache.getlines(filename)))
    except (SyntaxError, ValueError):
        return None
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return found[-1] if found else None


def _compared(test: ast.expr, frame: FrameType) -> tuple[Any, Any]:
    """The values on the left and on the right of a comparison, or the value that was asserted to be true."""
    match test:
        case ast.Compare(left=left, comparators=[right]):
            return _value(left, frame), _value(right, frame)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _value(operand, frame), MISSING
        case _:
            return _value(test, frame), MISSING


def _value(node: ast.expr, frame: FrameType) -> Any:
    value = _evaluated(node, frame)
    return MISSING if value is _UNKNOWN else unwrap(value)[0]


def _evaluated(node: ast.expr, frame: FrameType) -> Any:
    """The value of a name, a constant or an attribute; never calls what an author could have written to act."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return frame.f_locals.get(name, frame.f_globals.get(name, _UNKNOWN))
        case ast.Attribute(value=inner, attr=name):
            owner = _evaluated(inner, frame)
            return _UNKNOWN if owner is _UNKNOWN else _attribute(owner, name)
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            values = [_evaluated(part, frame) for part in parts]
            return _UNKNOWN if any(value is _UNKNOWN for value in values) else values
        case _:
            return _UNKNOWN


def _attribute(owner: Any, name: str) -> Any:
    try:
        return getattr(owner, name)
    except Exception:  # noqa: BLE001 - a property that raises only means that there is nothing to show
        return _UNKNOWN
