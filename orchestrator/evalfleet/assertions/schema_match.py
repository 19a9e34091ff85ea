"""`matches`: a value against a pydantic type or a JSON Schema. On its own, as its libraries take long to import."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import jsonschema.validators
from jsonschema import Draft202012Validator, SchemaError
from jsonschema import ValidationError as SchemaFault
from pydantic import BaseModel, PydanticSchemaGenerationError, TypeAdapter, ValidationError
from referencing import Registry

from evalfleet.assertions.equality import frozen, pointer
from evalfleet.assertions.match import Evaluation, Match, decided, wrong_type
from evalfleet.assertions.snapshot import snapshot
from evalfleet.assertions.texts import compile_linear, searches
from evalfleet.errors import AuthoringError
from evalfleet.model.events import MISSING

_validators: Any = jsonschema.validators  # the package has no types

_LITERAL = frozenset({"const", "enum", "default", "examples"})  # keywords whose value is no schema
_SHOWN = 8  # faults named in the reason


@dataclass(frozen=True, slots=True)
class MatchesType(Match):
    """A pydantic type, read strictly as JSON: no text becomes a number, `1` is no bool."""

    name: str
    adapter: TypeAdapter[Any]
    model: type | None

    def describe(self) -> Any:
        return {"match": "matches", "type": self.name}

    def judge(self, value: Any) -> Evaluation:
        if self.model is not None and isinstance(value, self.model):
            return decided(True, expected=self.name, actual=value)
        text = _json_text(value)
        if text is None:
            return wrong_type(value, expected=self.name)
        try:
            self.adapter.validate_json(text, strict=True)
        except ValidationError as error:
            faults = [(_place(fault["loc"]), fault["type"]) for fault in error.errors(include_url=False)]
            return decided(False, expected=self.name, actual=value, reason=_reason(faults))
        return decided(True, expected=self.name, actual=value)


@dataclass(frozen=True, slots=True)
class MatchesSchema(Match):
    schema: Any
    validator: Any

    def describe(self) -> Any:
        return {"match": "matches", "schema": snapshot(self.schema)}

    def judge(self, value: Any) -> Evaluation:
        text = _json_text(value)
        if text is None:
            return wrong_type(value, expected=self.schema)
        found = self.validator.iter_errors(json.loads(text))
        faults = [(_place(fault.absolute_path), str(fault.validator)) for fault in found]
        reason = _reason(faults) if faults else None
        return decided(not faults, expected=self.schema, actual=value, reason=reason)

    def __reduce__(self) -> tuple[Any, ...]:
        return matches, (self.schema,)


def matches(schema: Any) -> Match:
    """Matches a value that a pydantic model or type, or a JSON Schema (a mapping), accepts; conversions are ignored.

    Types are strict. `pattern` in a JSON Schema runs in the linear-time engine, and references outside of the
    schema are not loaded. Raises AuthoringError for a schema that is none.
    """
    if isinstance(schema, (Mapping, bool)):
        return _json_schema(cast("Any", schema))
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(schema)
    except (PydanticSchemaGenerationError, TypeError) as error:
        raise AuthoringError(
            f"matches takes a pydantic model, a type or a JSON Schema, not {type(schema).__name__}"
        ) from error
    model = cast("type[BaseModel]", schema) if _is_model(schema) else None
    return MatchesType(schema.__name__ if isinstance(schema, type) else str(schema), adapter, model)


def _is_model(schema: Any) -> bool:
    return isinstance(schema, type) and issubclass(schema, BaseModel)


def _json_schema(schema: Any) -> Match:
    copy = frozen(schema, "matches")
    kind = _validators.validator_for(copy, default=Draft202012Validator)
    try:
        kind.check_schema(copy, format_checker=None)
    except SchemaError as error:
        where = _place(error.absolute_path) or "/"
        raise AuthoringError(f"matches: not a JSON Schema at {where}: {error.message}") from error
    _check_patterns(copy)
    linear = _validators.extend(kind, {"pattern": _pattern})
    nothing_remote: Any = cast("Any", Registry)()
    return MatchesSchema(copy, linear(copy, registry=nothing_remote))


def _check_patterns(schema: Any) -> None:
    """Refuse at once what the linear-time engine can't compile."""
    stack = [schema]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            fields = cast("dict[str, Any]", item)
            if isinstance(fields.get("pattern"), str):
                compile_linear(fields["pattern"], "matches")
            stack.extend(part for keyword, part in fields.items() if keyword not in _LITERAL)
        elif isinstance(item, list):
            stack.extend(cast("list[Any]", item))


def _pattern(_validator: Any, expression: str, instance: Any, _schema: Any) -> Iterator[SchemaFault]:
    if isinstance(instance, str) and not searches(compile_linear(expression, "matches"), instance):
        yield SchemaFault("the text does not match the pattern")


def _json_text(value: Any) -> str | None:
    """The value as JSON text; None when it is not JSON."""
    if value is MISSING:
        return None
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return None


def _place(steps: Any) -> str:
    place: Any = None
    for step in steps:
        place = (place, step)
    return pointer(place)


def _reason(faults: list[tuple[str, str]]) -> str:
    """Where the value breaks the schema and by which rule; never a value."""
    named = ", ".join(f"{place or '/'} {rule}" for place, rule in faults[:_SHOWN])
    return f"schema:{named}" + (f" (+{len(faults) - _SHOWN})" if len(faults) > _SHOWN else "")
