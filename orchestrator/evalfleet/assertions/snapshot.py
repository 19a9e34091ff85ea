"""Bounded JSON pictures of values for the record. They explain a result and never take part in it."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Iterable, Mapping
from typing import Any, cast

from evalfleet.model.events import MISSING

MAX_TEXT = 8192
MAX_ITEMS = 256
MAX_KEYS = 64
MAX_DEPTH = 8
_MAX_INT_BITS = 4096  # far below what Python refuses to print


def snapshot(value: Any) -> Any:
    """`value` as bounded JSON: long text is clipped and says so, what is not JSON becomes a `$…` placeholder.

    MISSING stays MISSING at the top. Never raises.
    """
    if type(value) is str and len(value) <= MAX_TEXT:
        return value
    return value if value is MISSING else _picture(value, MAX_DEPTH)


def _picture(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return clip(str(value))
    if isinstance(value, (int, float)):
        return _number(value)
    if value is MISSING:
        return {"$missing": True}
    if isinstance(value, (bytes, bytearray)):
        return {"$bytes": len(value), "text": clip(bytes(value[:MAX_TEXT]).decode("utf-8", "replace"))}
    if depth == 0:
        return {"$type": _type_name(value), "$clipped": "depth"}
    if isinstance(value, Mapping):
        return _fields(cast("Mapping[Any, Any]", value).items(), depth)
    if isinstance(value, (list, tuple, set, frozenset)):
        return _items(list(cast("Iterable[Any]", value)), depth)
    return _object(value, depth)


def clip(text: str) -> str:
    """The first MAX_TEXT characters with the number left out, unless that saves nothing."""
    note = f"… (+{len(text) - MAX_TEXT} characters)"
    return text if len(text) <= MAX_TEXT + len(note) else text[:MAX_TEXT] + note


def _number(value: int | float) -> Any:
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$number": repr(float(value))}
    bits = value.bit_length()
    return int(value) if bits <= _MAX_INT_BITS else {"$number": f"an integer of {bits} bits"}


def _fields(pairs: Iterable[tuple[Any, Any]], depth: int) -> dict[str, Any]:
    result: dict[str, Any] = {}
    rest = 0
    for key, item in pairs:
        if len(result) < MAX_KEYS:
            name = clip(key) if isinstance(key, str) else f"${type(key).__name__}:{len(result)}"
            result[name] = _picture(item, depth - 1)
        else:
            rest += 1
    if rest:
        result["$clipped"] = f"+{rest} keys"
    return result


def _items(items: list[Any], depth: int) -> list[Any]:
    result = [_picture(item, depth - 1) for item in items[:MAX_ITEMS]]
    if len(items) > MAX_ITEMS:
        result.append({"$clipped": f"+{len(items) - MAX_ITEMS} items"})
    return result


def _object(value: Any, depth: int) -> dict[str, Any]:
    picture: dict[str, Any] = {"$type": _type_name(value)}
    names = _field_names(value)
    if names:
        picture.update(_fields(((name, getattr(value, name, MISSING)) for name in names), depth))
    elif type(value).__module__.partition(".")[0] in sys.stdlib_module_names:
        picture["text"] = clip(str(value))  # dates, decimals, paths: their text is safe to ask for
    return picture


def _field_names(value: Any) -> list[str]:
    if dataclasses.is_dataclass(value):
        return [item.name for item in dataclasses.fields(value) if item.repr]
    declared: Any = getattr(cast("Any", type(value)), "model_fields", None)  # pydantic, without importing it
    return list(cast("dict[str, Any]", declared)) if isinstance(declared, dict) else []


def _type_name(value: Any) -> str:
    return type(value).__qualname__
