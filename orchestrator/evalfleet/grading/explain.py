"""Why a gate failed, in one short text for listings; the whole evidence stays in the assertion's row. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, cast

from evalfleet.model.assertion import AssertionRow
from evalfleet.model.events import MISSING

Clean: TypeAlias = Callable[[str], str]

#: Characters of each value that the text quotes.
QUOTED = 80

#: Parts of a criterion that say what was wanted where `expected` only says how often, or in which order.
_WANTED = ("tool", "tools", "event", "events", "message", "expression")


def title(row: AssertionRow) -> str:
    """How an assertion is called in messages: its method, and its label when it has one."""
    return f"{row.name} ({row.label})" if row.label else row.name


def explain(row: AssertionRow, clean: Clean) -> str:
    """`check: expected includes "sunny", got "It rains"`, for a row that does not hold.

    `clean` removes what may not be shown, before anything is cut.
    """
    return ": ".join(filter(None, (title(row), ", ".join(_facts(row, clean)))))


def _facts(row: AssertionRow, clean: Clean) -> Iterator[str]:
    outcome, policy = row.outcome, row.policy
    if outcome.measurement is not None:
        least = policy.at_least if policy.gate_min is None else policy.gate_min
        yield f"measured {outcome.measurement:.4g}" + ("" if least is None else f", needs {least:g}")
        return
    criterion = _fields(row.criterion)
    wanted = next((criterion[name] for name in _WANTED if name in criterion), outcome.expected)
    matcher = criterion.get("match")
    if wanted is not MISSING:
        yield (
            f"expected {_quoted(wanted, clean)}" if matcher is None else f"expected {matcher} {_quoted(wanted, clean)}"
        )
    if wanted is not MISSING or outcome.actual is not MISSING:
        yield f"got {_quoted(outcome.actual, clean)}"
    if outcome.reason:
        yield _cut(clean(outcome.reason))


def _fields(criterion: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", criterion) if isinstance(criterion, dict) else {}


def _quoted(value: Any, clean: Clean) -> str:
    """A value as JSON, cut."""
    if value is MISSING:
        return "nothing"
    try:
        return _cut(clean(json.dumps(value, ensure_ascii=False)))
    except (TypeError, ValueError, RecursionError):
        return f"a {type(value).__name__}"


def _cut(text: str) -> str:
    return text if len(text) <= QUOTED else f"{text[:QUOTED]}…"
