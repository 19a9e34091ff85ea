"""Strict JSON equality: `True` is not `1`, `1` is `1.0`, big integers are exact, NaN equals NaN."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, cast

from evalfleet.errors import AuthoringError

#: A place inside a value as a linked list, innermost first; None is the value itself.
Place: TypeAlias = "tuple[Place, str | int] | None"

MAX_DEPTH = 100


def first_difference(left: Any, right: Any) -> str | None:
    """The JSON pointer of the first difference ("" is the whole value); None when the values are equal.

    Lists and tuples are both arrays. Values that are not JSON are equal when they share a type and `==` says so.
    Works without recursion and ends on cycles.
    """
    stack: list[tuple[Any, Any, Place]] = [(left, right, None)]
    seen: set[tuple[int, int]] = set()
    while stack:
        one, other, place = stack.pop()
        if isinstance(one, (Mapping, list, tuple)):
            pair = (id(cast("object", one)), id(other))
            if pair in seen:
                continue
            seen.add(pair)
            children = _children(cast("Any", one), other, place)
            if children is None:
                return pointer(place)
            stack.extend(reversed(children))
        elif not equal_leaves(one, other):
            return pointer(place)
    return None


def equal_leaves(left: Any, right: Any) -> bool:
    """Strict equality of two values that hold no others."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, (int, float)):
        return isinstance(right, (int, float)) and (left == right or (left != left and right != right))
    if isinstance(left, str):
        return isinstance(right, str) and str(left) == str(right)
    return type(left) is type(right) and bool(left == right)


def pointer(place: Place) -> str:
    """The RFC 6901 pointer of a place."""
    parts: list[str] = []
    while place is not None:
        place, step = place
        parts.append(str(step).replace("~", "~0").replace("/", "~1"))
    return "".join(f"/{part}" for part in reversed(parts))


def frozen(value: Any, place: str) -> Any:
    """A private copy of an expected value, so that later changes to the author's object change nothing.

    Raises AuthoringError for a key that is not text, a cycle, or more than MAX_DEPTH levels.
    """
    return _copy(value, place, MAX_DEPTH)


def _copy(value: Any, place: str, depth: int) -> Any:
    if not isinstance(value, (Mapping, list, tuple)):
        return value
    if depth == 0:
        raise AuthoringError(f"{place} holds a cycle or more than {MAX_DEPTH} levels")
    if isinstance(value, Mapping):
        pairs = cast("Mapping[Any, Any]", value)
        for key in pairs:
            if not isinstance(key, str):
                raise AuthoringError(f"{place} has the object key {key!r}; keys must be text")
        return {str(key): _copy(item, place, depth - 1) for key, item in pairs.items()}
    return [_copy(item, place, depth - 1) for item in cast("list[Any]", value)]


def _children(one: Any, other: Any, place: Place) -> list[tuple[Any, Any, Place]] | None:
    """The pairs to compare below two containers, or None when their shapes differ here."""
    if isinstance(one, Mapping):
        left = cast("Mapping[Any, Any]", one)
        if not isinstance(other, Mapping):
            return None
        right = cast("Mapping[Any, Any]", other)
        if len(left) != len(right) or any(key not in right for key in left):
            return None
        return [(item, right[key], (place, key)) for key, item in left.items()]
    if not isinstance(other, (list, tuple)):
        return None
    first, second = cast("list[Any]", one), cast("list[Any]", other)
    if len(first) != len(second):
        return None
    return [(item, second[index], (place, index)) for index, item in enumerate(first)]
