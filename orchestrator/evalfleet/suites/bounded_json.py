"""JSON within bounds: a private copy of a value from outside, made without recursion. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from evalfleet.errors import EvalfleetError

MAX_DEPTH = 60
MAX_VALUES = 500_000

LIMIT, CYCLE = "EVALUATION_DATA_LIMIT", "EVALUATION_DATA_CYCLE"

Path: TypeAlias = tuple[str | int, ...]

_TEXT = frozenset({str})
_SCALARS = frozenset({str, int, bool, type(None)})
_CONTAINERS = frozenset({dict, list})


class BoundsExceeded(EvalfleetError):
    """A value contains itself, or is deeper or larger than a suite may be. `path` says where that was seen."""

    def __init__(self, code: str, message: str, path: Path) -> None:
        self.code = code
        self.path = path
        super().__init__(message)


class NotJson(EvalfleetError):
    """A value holds something that JSON has no word for. `path` says where; the message never shows it."""

    def __init__(self, message: str, path: Path) -> None:
        self.path = path
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class _Place:
    """A container on the way down. `identity` is that of the original, by which a cycle is recognised."""

    identity: int
    step: str | int | None
    depth: int
    parent: _Place | None

    def holds(self, identity: int) -> bool:
        place: _Place | None = self
        while place is not None:
            if place.identity == identity:
                return True
            place = place.parent
        return False

    @property
    def own(self) -> Path:
        return () if self.parent is None or self.step is None else self.parent.path(self.step)

    def path(self, step: str | int) -> Path:
        parts = [step]
        place: _Place | None = self
        while place is not None and place.step is not None:
            parts.append(place.step)
            place = place.parent
        return tuple(reversed(parts))


def detached(value: Any, *, own: bool = False) -> Any:
    """A private copy of JSON as dicts, lists and scalars; mappings and tuples are objects and lists.

    With `own` nobody else holds the value: it is given back itself where nothing of it has to become something else.
    Raises BoundsExceeded for more than MAX_DEPTH levels below the root, more than MAX_VALUES values or a cycle, and
    NotJson for anything that is no JSON, numbers that are not finite included.
    """
    if is_plain(value):
        return value if own else _copied(value)
    copy = _Copy()
    root = copy.of(value, "", None)
    copy.finish()
    return root


def is_plain(value: Any) -> bool:
    """Whether it is JSON within bounds and of dicts, lists and scalars alone, as those who read files make it."""
    level: list[Any] = [value]
    values = 1
    for depth in range(MAX_DEPTH + 2):
        below: list[Any] = []
        for item in level:
            kind = cast("type[Any]", type(item))
            if kind is dict and depth <= MAX_DEPTH:
                if not _TEXT.issuperset(map(type, item)):
                    return False
                below.extend(item.values())
            elif kind is list and depth <= MAX_DEPTH:
                below.extend(item)
            elif kind not in _SCALARS and not (kind is float and math.isfinite(item)):
                return False
        if not below:
            return True
        values += len(below)
        if values > MAX_VALUES:
            return False
        level = below
    return False


def _copied(value: Any) -> Any:
    """A copy of what is plain."""
    if type(value) is dict:
        items = cast("dict[str, Any]", value).items()
        return {key: _copied(item) if type(item) in _CONTAINERS else item for key, item in items}
    if type(value) is list:
        return [_copied(item) for item in cast("list[Any]", value)]
    return value


class _Copy:
    def __init__(self) -> None:
        self._open: list[tuple[Any, dict[str, Any] | list[Any], _Place]] = []
        self._values = 0

    def of(self, item: Any, step: str | int, parent: _Place | None) -> Any:
        """The copy of `item`; a container's is filled by `finish`."""
        self._values += 1
        if self._values > MAX_VALUES:
            raise BoundsExceeded(LIMIT, f"holds more than {MAX_VALUES} values", _path(parent, step))
        if item is None or isinstance(item, bool):
            return item
        if isinstance(item, str):
            return str(item)
        if isinstance(item, int):
            return int(item)
        if isinstance(item, float):
            if not math.isfinite(item):
                raise NotJson("must be a finite number", _path(parent, step))
            return float(item)
        if isinstance(item, (Mapping, list, tuple)):
            return self._container(cast("Any", item), step, parent)
        raise NotJson(f"is a {type(item).__name__}, which JSON has no word for", _path(parent, step))

    def finish(self) -> None:
        while self._open:
            source, copy, place = self._open.pop()
            if isinstance(copy, list):
                copy.extend(self.of(item, index, place) for index, item in enumerate(cast("Iterable[Any]", source)))
                continue
            for key, item in cast("Mapping[Any, Any]", source).items():
                if not isinstance(key, str):
                    raise NotJson("holds a key that is no text", place.own)
                copy[str(key)] = self.of(item, key, place)

    def _container(
        self, item: Mapping[Any, Any] | list[Any] | tuple[Any, ...], step: str | int, parent: _Place | None
    ) -> dict[str, Any] | list[Any]:
        depth = 0 if parent is None else parent.depth + 1
        if parent is not None and parent.holds(id(item)):
            raise BoundsExceeded(CYCLE, "contains itself", _path(parent, step))
        if depth > MAX_DEPTH:
            raise BoundsExceeded(LIMIT, f"lies more than {MAX_DEPTH} levels deep", _path(parent, step))
        copy: dict[str, Any] | list[Any] = {} if isinstance(item, Mapping) else []
        self._open.append((item, copy, _Place(id(item), None if parent is None else step, depth, parent)))
        return copy


def _path(parent: _Place | None, step: str | int) -> Path:
    return () if parent is None else parent.path(step)
