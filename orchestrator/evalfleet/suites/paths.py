"""Following a check's path. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from evalfleet.model.events import MISSING
from evalfleet.model.suite import SuitePath


def look(value: Any, path: SuitePath) -> Any:
    """What stands at `path` below `value`, MISSING when nothing does; never an error.

    A whole number addresses an element of a list, a text a key of an object, and neither the other's.
    """
    for segment in path:
        if isinstance(segment, str):
            value = cast("Mapping[str, Any]", value).get(segment, MISSING) if isinstance(value, Mapping) else MISSING
        elif isinstance(value, list | tuple):
            items = cast("list[Any]", value)
            value = items[segment] if 0 <= segment < len(items) else MISSING
        else:
            return MISSING
    return value
