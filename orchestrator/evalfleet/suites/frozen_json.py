"""JSON that nobody can change: dicts and lists in all else, equal to others and written as they are. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, cast


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise TypeError("evidence can't be changed: copy.deepcopy() gives a copy of your own")


class FrozenObject(dict[str, Any]):
    """An object whose keys stay as they are; `copy.deepcopy` makes a plain dict of it."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


class FrozenList(list[Any]):
    """A list whose elements stay as they are; `copy.deepcopy` makes a plain list of it."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)


def frozen_json(value: Any) -> Any:
    """A copy of bounded JSON that can't be changed at any depth."""
    if isinstance(value, FrozenObject | FrozenList):
        return cast("Any", value)
    if isinstance(value, Mapping):
        return FrozenObject({key: frozen_json(item) for key, item in cast("Mapping[str, Any]", value).items()})
    if isinstance(value, list | tuple):
        return FrozenList(frozen_json(item) for item in cast("Iterable[Any]", value))
    return value
