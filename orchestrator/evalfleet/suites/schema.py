"""The document of a suite as strict models: version 1, and version 2, which adds to it. Pure.

Keys are those of the file. What may not be said by shape alone stands with the operators, and in `parse`.
"""

from __future__ import annotations

from typing import Annotated, Any, Generic, Literal, TypeAlias, TypeVar, cast

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from evalfleet.suites.operators import OPERATORS

#: Names that other languages give a meaning of their own.
REFUSED_SEGMENTS = frozenset({"__proto__", "prototype", "constructor"})

ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,159}$"

Operator1: TypeAlias = Literal["equals", "matches", "contains", "exists", "absent", "gte", "lte", "length"]
Operator2: TypeAlias = Literal[
    "equals", "matches", "contains", "exists", "absent", "gte", "lte", "length",
    "gt", "lt", "not_equals", "one_of", "approx", "set_equals", "matches_regex", "count",
]  # fmt: skip

O = TypeVar("O", bound=str)  # noqa: E741
A = TypeVar("A")


def _segment(value: Any) -> Any:
    if type(value) is int and value >= 0:
        return value
    if not isinstance(value, str):
        raise PydanticCustomError("segment", "must be a name, or the index of an element from 0")
    if value in REFUSED_SEGMENTS or len(value) > 240:
        raise PydanticCustomError("segment", "must be a name of at most 240 characters, and none of JavaScript's own")
    return value


def _said(value: Any) -> Any:
    if value is None:
        raise PydanticCustomError("null", "is null: leave the key out")
    return value


#: For a key that may be left out: None stands for that inside, and may not be written.
Said = BeforeValidator(_said)

Id = Annotated[str, StringConstraints(pattern=ID_PATTERN)]
Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500)]
Label = Annotated[str, StringConstraints(max_length=500)]
Tag = Annotated[str, StringConstraints(min_length=1, max_length=160)]
Reason = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2_000)]
Index = Annotated[int, Field(ge=0)]
Path = Annotated[list[Annotated[str | Index, BeforeValidator(_segment)]], Field(max_length=40)]
JsonObject: TypeAlias = dict[str, Any]
Assertions = Annotated[list[A], Field(max_length=200)]
Children = Annotated[list[A], Field(min_length=1, max_length=100)]
Steps = Annotated[list[A], Field(min_length=1, max_length=500)]
Scenarios = Annotated[list[A], Field(min_length=1, max_length=10_000)]
Description = Annotated[str, StringConstraints(max_length=5_000)]


class Strict(BaseModel):
    """Unknown keys are errors, nothing is converted, and a key that is not meant is left out, never null."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
        alias_generator=to_camel,
    )


class Criterion1(Strict):
    id: Id
    label: Annotated[Label | None, Said] = None


class Criterion2(Criterion1):
    severity: Literal["required", "advisory"] = "required"


class Check(Strict, Generic[O]):
    """`value` is required by every operator but `exists` and `absent`."""

    kind: Literal["check"]
    path: Path
    operator: O
    value: Any = None

    @model_validator(mode="after")
    def _fits(self) -> Check[O]:
        operator = OPERATORS[self.operator]
        if operator.takes_value and "value" not in self.model_fields_set:
            raise _at("value", "is required by this operator")
        if fault := operator.fault(self.value):
            raise _at("value", fault)
        return self


class Check1(Check[Operator1], Criterion1):
    pass


class Composite1(Criterion1):
    kind: Literal["all", "any"]
    assertions: Children[Assertion1]


class Negation1(Criterion1):
    kind: Literal["not"]
    assertion: Assertion1


class Custom1(Criterion1):
    kind: Literal["custom"]
    evaluator: Id
    parameters: JsonObject


class Check2(Check[Operator2], Criterion2):
    """`tolerance` belongs to `approx`: the largest difference that is still equal."""

    tolerance: Annotated[Annotated[float, Field(ge=0)] | None, Said] = None

    @model_validator(mode="after")
    def _tolerates(self) -> Check2:
        if (self.operator == "approx") == (self.tolerance is None):
            raise _at("tolerance", "is required by `approx`, and by no other operator")
        return self


class Composite2(Criterion2):
    kind: Literal["all", "any"]
    assertions: Children[Assertion2]


class Negation2(Criterion2):
    kind: Literal["not"]
    assertion: Assertion2


class Custom2(Criterion2):
    kind: Literal["custom"]
    evaluator: Id
    parameters: JsonObject


class Judge2(Criterion2):
    """What the experiment's judge says of the text at `path`: its score must reach `minimum`."""

    kind: Literal["judge"]
    recipe: Literal["closed_qa", "rubric", "factuality", "summarizes"]
    criterion: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=20_000)]
    path: Path
    minimum: Annotated[float, Field(ge=0, le=1)]


Assertion1: TypeAlias = Annotated[Check1 | Composite1 | Negation1 | Custom1, Field(discriminator="kind")]
Assertion2: TypeAlias = Annotated[Check2 | Composite2 | Negation2 | Custom2 | Judge2, Field(discriminator="kind")]


class VariantDocument(Strict):
    id: Id
    input: JsonObject


class StepDocument(Strict):
    id: Id
    input: JsonObject
    variants: Annotated[Children[VariantDocument] | None, Said] = None


class Step1(StepDocument):
    assertions: Assertions[Assertion1] = []


class Step2(StepDocument):
    assertions: Assertions[Assertion2] = []


class ScenarioDocument(Strict):
    """`writePolicy` says whether the scenario writes to the outside world; nobody guesses it."""

    id: Id
    name: Name
    description: Annotated[Description | None, Said] = None
    tags: Annotated[list[Tag], Field(max_length=100)] = []
    write_policy: Literal["read_only", "external"]
    skip_reason: Annotated[Reason | None, Said] = None
    metadata: JsonObject = {}


class Scenario1(ScenarioDocument):
    steps: Steps[Step1]
    assertions: Assertions[Assertion1] = []


class Scenario2(ScenarioDocument):
    steps: Steps[Step2]
    assertions: Assertions[Assertion2] = []


class SuiteDocument(Strict):
    id: Id
    name: Name
    metadata: JsonObject = {}


class Suite1(SuiteDocument):
    schema_version: Literal[1]
    scenarios: Scenarios[Scenario1]
    assertions: Assertions[Assertion1] = []


class Suite2(SuiteDocument):
    schema_version: Literal[2]
    scenarios: Scenarios[Scenario2]
    assertions: Assertions[Assertion2] = []


_NULL = {"type": "null"}

ASSERTIONS: TypeAdapter[list[Any]] = TypeAdapter(Assertions[Assertion2])


def suite_schema() -> dict[str, Any]:
    """The JSON Schema of `*.suite.yaml` and `*.suite.json`, as published in `docs/suite.schema.json`."""
    either: TypeAdapter[Any] = TypeAdapter(Annotated[Suite1 | Suite2, Field(discriminator="schema_version")])
    schema = without_null_defaults(either.json_schema(mode="validation"))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "evalfleet suite", **schema}


def _at(key: str, what: str) -> PydanticCustomError:
    """An error of a model at one of its keys."""
    return PydanticCustomError("criterion", "{what}", {"what": what, "key": key})


def without_null_defaults(schema: Any) -> Any:
    """A JSON Schema whose optional keys may be left out, and not be null."""
    if isinstance(schema, list):
        return [without_null_defaults(item) for item in cast("list[Any]", schema) if item != _NULL]
    if not isinstance(schema, dict):
        return schema
    said = [pair for pair in cast("dict[str, Any]", schema).items() if pair != ("default", None)]
    clean = {key: without_null_defaults(item) for key, item in said}
    if len(clean.get("anyOf", ())) == 1:
        return dict(sorted((clean.pop("anyOf")[0] | clean).items()))
    return clean
