"""Redacts whole values: everything of an attempt that is kept goes through here, once. PURE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any, TypeVar, cast

from evalfleet.redact import Redactor

V = TypeVar("V")


def redacted(value: V, redactor: Redactor) -> V:
    """`value` with each text and each bytes in it redacted, however deep, keys of mappings included.

    Frozen dataclasses, tuples, lists and mappings are walked; what holds no secret is returned as it is, itself.
    """
    return cast("V", _walked(value, redactor)) if redactor else value


def _walked(value: Any, redactor: Redactor) -> Any:
    kind = cast("type[Any]", type(value))
    if kind is str:
        return redactor.text(value)
    if kind is bytes:
        return redactor.data(value)
    if kind is tuple or kind is list:
        items = [_walked(item, redactor) for item in value]
        if all(map(_same, items, value)):
            return value
        return tuple(items) if kind is tuple else items
    if isinstance(value, Mapping):
        return _walked_mapping(cast("Mapping[Any, Any]", value), redactor)
    names = _names(kind)
    if not names:
        return value
    changes: dict[str, Any] = {}
    for name in names:
        before = getattr(value, name)
        after = _walked(before, redactor)
        if after is not before:
            changes[name] = after
    return replace(value, **changes) if changes else value


def _walked_mapping(value: Mapping[Any, Any], redactor: Redactor) -> Mapping[Any, Any]:
    pairs = [(_walked(key, redactor), _walked(item, redactor)) for key, item in value.items()]
    unchanged = all(key is was and item is value[was] for (key, item), was in zip(pairs, value, strict=True))
    return value if unchanged else dict(pairs)


def _same(one: Any, other: Any) -> bool:
    return one is other


@cache
def _names(kind: type[Any]) -> tuple[str, ...]:
    """The fields of a dataclass; nothing of any other type."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()
