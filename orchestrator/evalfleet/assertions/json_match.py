"""`json_match`: objects partially, arrays exactly, matchers at any depth."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from evalfleet.assertions.equality import MAX_DEPTH, Place, equal_leaves, pointer
from evalfleet.assertions.match import (
    Evaluation,
    Match,
    Polarity,
    as_part,
    decided,
    evaluate_now,
    require_boolean,
)
from evalfleet.assertions.snapshot import clip, snapshot
from evalfleet.errors import AuthoringError
from evalfleet.model.assertion import AssertionResult, Result
from evalfleet.model.events import MISSING


@dataclass(slots=True)
class _Walk:
    """What one comparison found: the first difference, and the result of every nested matcher."""

    difference: str | None = None
    children: list[AssertionResult] = field(default_factory=list[AssertionResult])

    def differs(self, place: Place) -> None:
        if self.difference is None:
            self.difference = pointer(place)


@dataclass(frozen=True, slots=True)
class JsonMatch(Match):
    pattern: Any
    nested: tuple[Match, ...]

    @property
    def polarity(self) -> Polarity:
        positive = all(match.polarity is Polarity.POSITIVE for match in self.nested)
        return Polarity.POSITIVE if positive else Polarity.MIXED

    def describe(self) -> Any:
        return {"match": "json_match", "pattern": _picture(self.pattern)}

    @property
    def is_quick(self) -> bool:
        return all(match.is_quick for match in self.nested)

    def quick(self, value: Any) -> bool:
        return _fits(self.pattern, value)

    def judge(self, value: Any) -> Evaluation:
        walk = _Walk()
        _compare(self.pattern, value, None, walk)
        broken = next((child for child in walk.children if child.result is Result.ERRORED), None)
        where = walk.difference
        reason = None if where is None else f"differs-at:{where}"
        outcome = decided(where is None, expected=_picture(self.pattern), actual=value, reason=reason)
        return AssertionResult(
            result=outcome.result if broken is None else Result.ERRORED,
            reason=outcome.reason if broken is None else broken.reason,
            expected=outcome.expected,
            actual=outcome.actual,
            children=tuple(walk.children),
        )


def json_match(pattern: Any) -> Match:
    """Matches JSON that holds at least what `pattern` names: other object keys are free, arrays match exactly.

    Scalars are compared as strictly as by `equals`; a matcher may stand at any depth, and sees "missing" when
    its key is absent. Raises AuthoringError for a pattern that is not finite JSON.
    """
    nested: list[Match] = []
    return JsonMatch(_checked(pattern, nested, MAX_DEPTH), tuple(nested))


def as_match(value: Any, place: str) -> Match:
    """`value` itself when it is a Boolean matcher, else what `json_match(value)` means."""
    return require_boolean(value if isinstance(value, Match) else json_match(value), place)


def _checked(pattern: Any, nested: list[Match], depth: int) -> Any:
    if isinstance(pattern, Match):
        nested.append(require_boolean(pattern, "json_match"))
        return pattern
    if depth == 0:
        raise AuthoringError(f"json_match: the pattern holds a cycle or more than {MAX_DEPTH} levels")
    if isinstance(pattern, Mapping):
        pairs = cast("Mapping[Any, Any]", pattern)
        for key in pairs:
            if not isinstance(key, str):
                raise AuthoringError(f"json_match: the object key {key!r} is not text")
        return {str(key): _checked(item, nested, depth - 1) for key, item in pairs.items()}
    if isinstance(pattern, (list, tuple)):
        return [_checked(item, nested, depth - 1) for item in cast("list[Any]", pattern)]
    if isinstance(pattern, float) and not math.isfinite(pattern):
        raise AuthoringError("json_match: NaN and infinity are not JSON; nest a matcher such as equals(...) instead")
    if pattern is None or isinstance(pattern, (str, bool, int, float)):
        return pattern
    raise AuthoringError(f"json_match: {type(pattern).__name__} is neither JSON nor a matcher")


def _compare(pattern: Any, value: Any, place: Place, walk: _Walk) -> None:
    if isinstance(pattern, Match):
        outcome = evaluate_now(pattern, value)
        walk.children.append(as_part(pattern, outcome))
        if not outcome.holds:
            walk.differs(place)
    elif isinstance(pattern, dict):
        found = cast("Mapping[Any, Any]", value if isinstance(value, Mapping) else {})
        if not isinstance(value, Mapping):
            walk.differs(place)
        for key, item in cast("dict[str, Any]", pattern).items():
            _compare(item, found.get(key, MISSING), (place, key), walk)
    elif isinstance(pattern, list):
        _compare_array(cast("list[Any]", pattern), value, place, walk)
    elif value is MISSING or not equal_leaves(pattern, value):
        walk.differs(place)


def _fits(pattern: Any, value: Any) -> bool:
    """What `_compare` would find, at the first difference."""
    if isinstance(pattern, Match):
        return pattern.quick(value)
    if isinstance(pattern, dict):
        if not isinstance(value, Mapping):
            return False
        found = cast("Mapping[Any, Any]", value)
        return all(_fits(item, found.get(key, MISSING)) for key, item in cast("dict[str, Any]", pattern).items())
    if isinstance(pattern, list):
        wanted = cast("list[Any]", pattern)
        if not isinstance(value, (list, tuple)):
            return False
        items = cast("list[Any]", value)
        return len(wanted) == len(items) and all(map(_fits, wanted, items))
    return value is not MISSING and equal_leaves(pattern, value)


def _compare_array(pattern: list[Any], value: Any, place: Place, walk: _Walk) -> None:
    items = cast("list[Any]", value) if isinstance(value, (list, tuple)) else []
    if not isinstance(value, (list, tuple)) or len(items) != len(pattern):
        walk.differs(place)
    for index, item in enumerate(pattern):
        _compare(item, items[index] if index < len(items) else MISSING, (place, index), walk)


def _picture(pattern: Any) -> Any:
    """The pattern as JSON, with `{"$match": …}` where a matcher stands."""
    if isinstance(pattern, Match):
        return {"$match": pattern.describe()}
    if isinstance(pattern, dict):
        return {clip(key): _picture(item) for key, item in cast("dict[str, Any]", pattern).items()}
    if isinstance(pattern, list):
        return [_picture(item) for item in cast("list[Any]", pattern)]
    return snapshot(pattern)
