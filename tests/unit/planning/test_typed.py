"""Plain scalars take the type that a pydantic field declares; everything else is left for the model to refuse."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from evalfleet.planning.typed import Typed, nearest, read_scalar
from evalfleet.planning.yaml_source import Plain, read_yaml


class Colour(Enum):
    NO = "NO"
    ON = "on"


@pytest.mark.parametrize(
    ("text", "expected", "value"),
    [
        ("017", str, "017"),
        ("true", str, "true"),
        ("1e3", int, 1000),
        ("1.5", int, 1.5),
        ("017", int, "017"),
        ("1_000", int, "1_000"),
        ("x", int, "x"),
        ("5e-6", float, 5e-6),
        ("3", float, 3),
        ("1e400", float, math.inf),
        ("-.inf", float | None, -math.inf),
        ("Infinity", int, math.inf),
        ("1e400", float | str, "1e400"),
        (".inf", Any, ".inf"),
        ("true", bool, True),
        ("yes", bool, "yes"),
        ("1", bool, "1"),
        ("NO", Colour, "NO"),
        ("on", Colour, "on"),
        ("NO", Literal["NO", "SE"], "NO"),
        ("1", Literal[1, 2], 1),
        ("1", Literal["1", "2"], "1"),
        ("true", Literal["true", False], "true"),
        ("off", Literal["never"] | bool, "off"),
        ("never", Literal["never"] | bool, "never"),
        ("true", Literal["never"] | bool, True),
        ("3", int | str, 3),
        ("3.5", int | str, "3.5"),
        ("3.5", float | str, 3.5),
        ("3", float | str, 3),
        ("017", int | str, "017"),
        ("true", int | str, "true"),
        ("NO", bool | str, "NO"),
        ("null", str, None),
        ("~", str | None, None),
        ("", int, None),
        ("3", Annotated[int | None, Field(ge=1)], 3),
        ("017", Annotated[str, Field(min_length=1)], "017"),
        ("1e3", Any, 1000.0),
        ("NO", Any, "NO"),
        ("1e3", JsonValue, 1000.0),
        ("017", str | JsonValue, "017"),
        ("x", BaseModel, "x"),
        ("3", dict[str, int], 3),
    ],
)
def test_a_plain_scalar_in_a_field_of_type(text: str, expected: Any, value: Any) -> None:
    found = read_scalar(Plain(text), expected)
    assert (found, type(found) is bool) == (value, type(value) is bool)


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    zip: str
    size: int = 0


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")

    known: str


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=True)

    inner: Inner
    many: list[Inner] = []
    by_name: dict[str, Inner] = {}
    sequence: Sequence[str] = ()
    pairs: tuple[int, ...] = ()
    mapping: Mapping[str, str | int] = {}
    maybe: Inner | str | None = None
    open: Open | None = None
    aliased: str = Field("", alias="other-name")
    free: dict[str, Any] = {}


DOCUMENT = """
inner: {zip: 017, size: 1e2}
many: [{zip: NO}, {zip: off, size: 3}]
by_name: {no: {zip: 1_000}}
sequence: [NO, 017]
pairs: [1, 2e0]
mapping: {a: 1, b: NO}
maybe: {zip: 3.10}
open: {known: 017, other: 1e3, more: {deep: NO}}
other-name: 017
free: {n: 1e3, t: 017}
"""


def test_every_container_passes_the_type_on() -> None:
    typed = Typed(read_yaml(DOCUMENT, "f"))
    found = typed.model(read_yaml(DOCUMENT, "f").value, Outer, ())
    assert typed.problems == []
    assert found == {
        "inner": {"zip": "017", "size": 100},
        "many": [{"zip": "NO"}, {"zip": "off", "size": 3}],
        "by_name": {"no": {"zip": "1_000"}},
        "sequence": ["NO", "017"],
        "pairs": [1, 2],
        "mapping": {"a": 1, "b": "NO"},
        "maybe": {"zip": "3.10"},
        "open": {"known": "017", "other": 1000.0, "more": {"deep": "NO"}},
        "other-name": "017",
        "free": {"n": 1000.0, "t": "017"},
    }


def test_an_unknown_key_is_reported_at_the_key_and_left_out() -> None:
    source = read_yaml("inner: {zip: x, sise: 3}\nmany:\n  - {zap: y}\naliased: z\n", "f")
    typed = Typed(source)
    assert typed.model(source.value, Outer, ()) == {"inner": {"zip": "x"}, "many": [{}], "aliased": "z"}
    assert [(p.field, p.line, p.column, p.hint) for p in typed.problems] == [
        ("inner.sise", 1, 17, "did you mean 'size'?"),
        ("many[0].zap", 3, 6, "did you mean 'zip'?"),
    ]


def test_the_nearest_name_is_offered_else_a_short_list() -> None:
    assert nearest("concurency", {"concurrency", "sandboxes"}) == "did you mean 'concurrency'?"
    assert nearest("zzz", {"b", "a"}) == "valid: a, b"
    assert nearest("zzz", set()) is None
    assert nearest("zzz", {f"name{n}" for n in range(13)}) is None
