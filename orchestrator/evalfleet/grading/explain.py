"""What an assertion wanted and why it failed, in words for people; the whole evidence stays in its row. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, cast

from evalfleet.model.assertion import AssertionRow
from evalfleet.model.events import MISSING

Clean: TypeAlias = Callable[[str], str]
#: Writes a JSON value on one line.
Quote: TypeAlias = Callable[[Any], str]

#: Characters of each value that the text quotes.
QUOTED = 80

#: Parts of a criterion that say what was wanted where `expected` only says how often, or in which order.
_WANTED = ("tool", "tools", "event", "events", "message", "expression", "diff")


def title(row: AssertionRow) -> str:
    """How an assertion is called in messages: its method, and its label when it has one."""
    return f"{row.name} ({row.label})" if row.label else row.name


def explain(row: AssertionRow, clean: Clean) -> str:
    """`check: expected includes "sunny", got "It rains"`, for a row that does not hold.

    `clean` removes what may not be shown, before anything is cut.
    """
    return ": ".join(filter(None, (title(row), ", ".join(_facts(row, clean)))))


def wanted(criterion: Any, expected: Any, quote: Quote) -> str | None:
    """What a criterion wanted: `excludes "rain"`, `{"kind": "tool", "name": "search", "count": "never"}`.

    A matcher is named with what it was given. `expected` is what the result says; None when nobody says anything.
    """
    fields = _fields(criterion)
    if (matcher := matcher_text(criterion, quote)) is not None:
        return matcher
    name = next((name for name in _WANTED if name in fields), None)
    if name is None:
        return None if expected is MISSING else quote(expected)
    part = fields[name]
    if "count" in _fields(part) and expected is not MISSING:  # the criterion has the last word on how often
        part = {**part, "count": expected}
    return matcher_text(part, quote) or quote(part)


def matcher_text(description: Any, quote: Quote) -> str | None:
    """`excludes "rain"`, `approx 3 (rel 0.1, abs 1e-12)`, `all_of(…, …)`; None for what describes no matcher."""
    match _fields(description):
        case {"match": str(name), "parts": [*parts]}:
            return f"{name}({', '.join(matcher_text(part, quote) or quote(part) for part in parts)})"
        case {"match": str(name), **given}:
            (_, first), *others = given.items() if given else [("", MISSING)]
            value = "" if first is MISSING else f" {quote(first)}"
            options = [
                key if option is True else f"{key} {quote(option)}" for key, option in others if option is not False
            ]
            return f"{name}{value} ({', '.join(options)})" if options else f"{name}{value}"
        case _:
            return None


def _facts(row: AssertionRow, clean: Clean) -> Iterator[str]:
    outcome, policy = row.outcome, row.policy
    if outcome.measurement is not None:
        least = policy.at_least if policy.gate_min is None else policy.gate_min
        yield f"measured {outcome.measurement:.4g}" + ("" if least is None else f", needs {least:g}")
        return

    def quote(value: Any) -> str:
        return _quoted(value, clean)

    said = wanted(row.criterion, outcome.expected, quote)
    if said is not None:
        yield f"expected {said}"
    if said is not None or outcome.actual is not MISSING:
        yield f"got {quote(outcome.actual)}"
    if outcome.reason:
        yield _cut(clean(outcome.reason))


def _fields(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


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
