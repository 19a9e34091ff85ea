"""Reads plain YAML scalars as the types a pydantic model declares, and names unknown keys with their places.

A plain scalar becomes: in a Boolean field `true` or `false`; in a number field the number it means, whole
numbers also from `1e3`; in a text field its text as written; in a Literal or enum field the member it spells;
in a union the member that the rule for untyped places would give, else text; null is null everywhere. What does
not fit stays text, so that the model reports it. Quoted text is never anything but text.
"""

from __future__ import annotations

import types
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Mapping as MappingABC
from difflib import get_close_matches
from enum import Enum
from typing import Annotated, Any, Literal, TypeAlias, Union, cast, get_args, get_origin

from pydantic import BaseModel, JsonValue
from pydantic.fields import FieldInfo

from evalfleet.errors import Problem
from evalfleet.planning.yaml_source import Path, Plain, Source, boolean, is_null, number, resolve, special

Type: TypeAlias = Any

_UNIONS = (Union, types.UnionType)
_LISTS = (list, tuple, set, frozenset, Sequence)


def nearest(name: str, valid: Collection[str]) -> str | None:
    """The valid name that `name` was probably meant to be, as a hint; else the list when it is short."""
    close = get_close_matches(name, sorted(valid), n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"valid: {', '.join(sorted(valid))}" if 0 < len(valid) <= 12 else None


class Typed:
    """One pass over a document against a model. `problems` collects unknown keys; the rest is the model's to say."""

    def __init__(self, source: Source) -> None:
        self.problems: list[Problem] = []
        self._source = source

    def model(self, value: Any, model: type[BaseModel], path: Path) -> Any:
        """`value` as JSON data for `model`; unknown keys are reported and left out."""
        if not isinstance(value, dict):
            return resolve(value)
        fields = field_names(model)
        closed = model.model_config.get("extra") != "allow"
        result: dict[str, Any] = {}
        for key, item in cast("dict[str, Any]", value).items():
            if key in fields:
                result[key] = self.read(item, fields[key].annotation, (*path, key))
            elif closed:
                self._unknown(key, fields, (*path, key))
            else:
                result[key] = resolve(item)
        return result

    def read(self, value: Any, expected: Type, path: Path) -> Any:
        """`value` as JSON data for a field annotated with `expected`."""
        expected = _bare(expected)
        if isinstance(value, Plain):
            return read_scalar(value, expected)
        if isinstance(value, dict):
            return self._mapping(cast("dict[str, Any]", value), expected, path)
        if isinstance(value, list):
            item = _item_type(expected)
            items = cast("list[Any]", value)
            return [self.read(part, item, (*path, index)) for index, part in enumerate(items)]
        return value

    def _mapping(self, value: dict[str, Any], expected: Type, path: Path) -> Any:
        for member in _members(expected):
            if isinstance(member, type) and issubclass(member, BaseModel):
                return self.model(value, member, path)
            origin = get_origin(member)
            if isinstance(origin, type) and issubclass(origin, MappingABC):
                item = get_args(member)[1]
                return {key: self.read(part, item, (*path, key)) for key, part in value.items()}
        return resolve(value)

    def _unknown(self, key: str, fields: Mapping[str, FieldInfo], path: Path) -> None:
        message = f"{key!r} is not a known key here"
        hint = nearest(key, fields)
        self.problems.append(self._source.problem("UNKNOWN_KEY", message, path, hint=hint, at_key=True))


def field_names(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The keys that `model` accepts, with their fields."""
    names: dict[str, FieldInfo] = {}
    for name, field in model.model_fields.items():
        alias = field.validation_alias if isinstance(field.validation_alias, str) else field.alias
        names[alias or name] = field
        if alias and model.model_config.get("populate_by_name"):
            names[name] = field
    return names


def type_at(model: type[BaseModel], parts: Sequence[str]) -> Type | None:
    """The type that `model` declares at a dotted path, None when it declares nothing there."""
    expected: Type = model
    for part in parts:
        expected = next(
            (inner for member in _members(_bare(expected)) if (inner := _inner(member, part)) is not None), None
        )
        if expected is None:
            return None
    return expected


def _inner(expected: Type, key: str) -> Type | None:
    if isinstance(expected, type) and issubclass(expected, BaseModel):
        field = field_names(expected).get(key)
        return None if field is None else field.annotation
    origin = get_origin(expected)
    return get_args(expected)[1] if isinstance(origin, type) and issubclass(origin, MappingABC) else None


def read_scalar(text: Plain, expected: Type) -> JsonValue:
    """The value that a plain scalar means where `expected` is wanted."""
    if is_null(text):
        return None
    members = _members(_bare(expected))
    if len(members) == 1:
        return _read_as(text, members[0])
    return _read_union(text, members)


def _read_union(text: Plain, members: tuple[Type, ...]) -> JsonValue:
    for member in members:
        if _chooses(member) and not isinstance(found := _read_as(text, member), Plain):
            return found
    found = resolve(text)
    kinds = {member for member in members if isinstance(member, type)}
    if isinstance(found, str) or type(found) in kinds or (isinstance(found, int) and float in kinds):
        return found
    return str(text) if str in kinds and not kinds & {Any, object} else found


def _read_as(text: Plain, expected: Type) -> JsonValue:
    """The scalar as `expected`; `Plain` again when it spells no member of a Literal or enum."""
    if expected in (Any, object):
        return resolve(text)
    if expected is str:
        return str(text)
    if expected is bool:
        found = boolean(text)
        return str(text) if found is None else found
    if expected in (int, float):
        return _as_number(text, expected)
    if get_origin(expected) is Literal:
        return _choice(text, get_args(expected))
    if isinstance(expected, type) and issubclass(expected, Enum):
        return _choice(text, tuple(member.value for member in expected))
    if isinstance(expected, type) and not issubclass(expected, (BaseModel, MappingABC)):
        return str(text)
    return resolve(text)


def _as_number(text: Plain, expected: Type) -> JsonValue:
    found = number(text)
    if found is None:  # NaN and infinities go on as such, for the model to refuse as what they are
        found = special(text)
    if found is None:
        return str(text)
    if expected is int and isinstance(found, float) and found.is_integer():
        return int(found)
    return found


def _choice(text: Plain, values: tuple[Any, ...]) -> JsonValue:
    if str(text) in values:
        return str(text)
    found = resolve(text)
    return found if any(found == value and type(found) is type(value) for value in values) else text


def _chooses(expected: Type) -> bool:
    return get_origin(expected) is Literal or (isinstance(expected, type) and issubclass(expected, Enum))


def _bare(expected: Type) -> Type:
    """The annotation without Annotated and named aliases; pydantic's own JsonValue counts as untyped."""
    if expected is JsonValue:
        return Any
    if (aliased := getattr(expected, "__value__", None)) is not None:
        return _bare(aliased)
    if get_origin(expected) is Annotated:
        return _bare(get_args(expected)[0])
    return expected


def _members(expected: Type) -> tuple[Type, ...]:
    """The alternatives of a union without None, or the type alone."""
    if get_origin(expected) in _UNIONS:
        flat = [part for member in get_args(expected) for part in _members(_bare(member))]
        return tuple(member for member in flat if member is not type(None)) or (Any,)
    return (expected,)


def _item_type(expected: Type) -> Type:
    for member in _members(expected):
        arguments: tuple[Type, ...] = get_args(member)
        if arguments and get_origin(member) in _LISTS:
            return arguments[0]
    return Any
