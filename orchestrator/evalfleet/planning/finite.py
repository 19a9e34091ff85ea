"""Where a value from outside holds a number that is none: NaN, an infinity, or what a float can't hold. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeAlias, cast

from pydantic import BaseModel

Path: TypeAlias = tuple[str | int, ...]

REFUSAL = "must be a finite number"
HINT = "NaN, Infinity and numbers beyond 1.8e308 are none"

_LEAVES = frozenset({str, bytes, int, bool, type(None)})


def not_finite(value: Any, path: Path = ()) -> Path | None:
    """The place of the first such number in JSON or in what pydantic made of it, None when there is none.

    Parts have the names they are written with. A field that took its default says what its author chose, and passes.
    """
    if isinstance(value, float):
        return None if math.isfinite(value) else path
    for key, item in _parts(value):
        if type(item) not in _LEAVES and (found := not_finite(item, (*path, key))) is not None:
            return found
    return None


def _parts(value: Any) -> Iterable[tuple[str | int, Any]]:
    if isinstance(value, BaseModel):
        return _written(value)
    if isinstance(value, Mapping):
        return ((str(key), item) for key, item in cast("Mapping[Any, Any]", value).items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return enumerate(cast("list[Any]", value))
    if is_dataclass(value):
        return ((field.name, getattr(value, field.name)) for field in fields(value))
    return ()


def _written(value: BaseModel) -> Iterable[tuple[str, Any]]:
    declared, said = type(value).model_fields, value.model_fields_set
    for name, item in (vars(value) | (value.model_extra or {})).items():
        if name in said:
            field = declared.get(name)
            alias = None if field is None else field.validation_alias
            yield alias if isinstance(alias, str) else name, item
