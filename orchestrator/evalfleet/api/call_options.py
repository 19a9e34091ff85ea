"""What a call of `evalfleet.run` may be given: everything that can't be meant is told at once, before anything runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from evalfleet.errors import DefinitionError, Problem
from evalfleet.suites.locations import nearest

OPTIONS_INVALID = "EVALUATION_OPTIONS_INVALID"


def check_options(given: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raises DefinitionError naming every option that there is not, or whose value can't be."""
    problems = [_problem(name, message, hint) for name, message, hint in _wrong(given, known)]
    if problems:
        raise DefinitionError(OPTIONS_INVALID, problems)


def _wrong(given: Mapping[str, Any], known: Sequence[str]) -> Iterator[tuple[str, str, str | None]]:
    for name, value in given.items():
        if name not in known:
            yield name, "there is no such option", nearest(name, known)
        elif name in _FORMS and not _FORMS[name][0](value):
            yield name, f"must be {_FORMS[name][1]}, not {value!r}"[:200], None


def _problem(name: str, message: str, hint: str | None) -> Problem:
    return Problem(OPTIONS_INVALID, message, field=name, hint=hint)


def _is_seconds(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0


def _is_texts(value: object) -> bool:
    return not isinstance(value, str) and isinstance(value, Sequence) and all(map(_is_text, cast("Any", value)))


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _is_overrides(value: object) -> bool:
    if not isinstance(value, Mapping):
        return False
    overrides = cast("Mapping[object, object]", value)
    return all(isinstance(part, str) for pair in overrides.items() for part in pair)


def _maybe(check: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or check(value)


_FORMS: dict[str, tuple[Callable[[object], bool], str]] = {
    "select": (_is_texts, "a list of eval id prefixes"),
    "arms": (_is_texts, "a list of names of arms"),
    "overrides": (_is_overrides, "a mapping of dotted fields to values as text"),
    "reuse": (lambda value: isinstance(value, bool), "True or False"),
    "address": (_maybe(_is_text), "an address, or None"),
    "event_deadline": (_is_seconds, "a number of seconds above 0"),
    "on_event": (_maybe(callable), "a function, or None"),
    "on_progress": (_maybe(callable), "a function, or None"),
}
