"""`@tool`: what a signature becomes, and how strictly an agent's arguments are read."""

from __future__ import annotations

from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from evalfleet.model.tool import Tool, ToolArgumentError, tool


class Unit(Enum):
    CELSIUS = "celsius"
    KELVIN = "kelvin"


class Place(BaseModel):
    city: str
    country: str = "NO"


@tool
def weather(city: Annotated[str, "Where to look"], days: int = 1, unit: Unit = Unit.CELSIUS) -> str:
    """The weather forecast.

    Two lines are kept.
    """
    return f"{city} {days} {unit.value}"


@tool(name="book", description="Book it.")
async def reserve(place: Place, when: date, seats: tuple[int, ...], *, note: str | None = None) -> str:
    return f"{place.city} {when:%d.%m.} {seats} {note}"


@tool
def odd_names(schema: int, _hidden: int, model_config: float, json: str = "") -> list[Any]:
    return [schema, _hidden, model_config, json]


@tool
def nothing() -> None: ...


def test_the_signature_is_the_schema() -> None:
    assert weather.name == "weather"
    assert weather.description == "The weather forecast.\n\nTwo lines are kept."
    assert weather.parameters == {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "city": {"type": "string", "description": "Where to look"},
            "days": {"type": "integer", "default": 1},
            "unit": {"$ref": "#/$defs/Unit", "default": "celsius"},
        },
        "required": ["city"],
        "$defs": {"Unit": {"type": "string", "enum": ["celsius", "kelvin"], "title": "Unit"}},
    }
    assert (reserve.name, reserve.description, reserve.is_async) == ("book", "Book it.", True)
    assert nothing.parameters == {"type": "object", "additionalProperties": False, "properties": {}}
    assert nothing.description == ""


def test_a_tool_is_still_its_function() -> None:
    assert weather("Oslo", days=2) == "Oslo 2 celsius"


async def test_arguments_arrive_as_the_annotations_say() -> None:
    assert await weather.call({"city": "Oslo", "unit": "kelvin"}) == "Oslo 1 kelvin"
    arguments = {"place": {"city": "Oslo"}, "when": "2026-01-02", "seats": [1, 2]}
    assert await reserve.call(arguments) == "Oslo 02.01. (1, 2) None"
    assert await odd_names.call({"schema": 1, "_hidden": 2, "model_config": 3}) == [1, 2, 3.0, ""]
    assert await nothing.call({}) is None


@pytest.mark.parametrize(
    ("offered", "arguments", "says"),
    [
        (weather, {}, "weather: city: Field required"),
        (weather, {"city": 7}, "weather: city: Input should be a valid string, not 7"),
        (weather, {"city": "x", "days": "1"}, 'weather: days: Input should be a valid integer, not "1"'),
        (weather, {"city": "x", "days": True}, "weather: days: Input should be a valid integer, not true"),
        (weather, {"city": "x", "days": None}, "weather: days: Input should be a valid integer, not null"),
        (weather, {"city": "x", "unit": "K"}, "weather: unit: Input should be 'celsius' or 'kelvin', not \"K\""),
        (weather, {"city": "x", "wind": 1}, "weather: wind: Extra inputs are not permitted"),
        (weather, {"p0": "x"}, "weather: city: Field required; p0: Extra inputs are not permitted"),
        (reserve, {"place": {}, "when": "2026-01-02", "seats": []}, "book: place.city: Field required"),
        (nothing, {"x": 1}, "nothing: x: Extra inputs are not permitted"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_told_to_the_agent(offered: Tool, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ToolArgumentError) as caught:
        offered.bind(arguments)
    assert str(caught.value) == says


@given(st.text(st.characters()), st.integers())
def test_any_text_and_any_integer_reach_the_tool_exactly(city: str, days: int) -> None:
    assert weather.bind({"city": city, "days": days}) == {"city": city, "days": days}


def untyped(city, days: int) -> None: ...
def variadic(*cities: str) -> None: ...
def keywords(**cities: str) -> None: ...
def positional(city: str, /) -> None: ...
def unresolved(city: NoSuchType) -> None: ...  # noqa: F821


class Opaque: ...


def shapeless(city: Opaque) -> None: ...


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (untyped, "tool untyped: parameter 'city' needs a type annotation"),
        (variadic, "tool variadic: parameter 'cities' can't be passed by name"),
        (keywords, "tool keywords: parameter 'cities' can't be passed by name"),
        (positional, "tool positional: parameter 'city' can't be passed by name"),
        (unresolved, "tool unresolved: an annotation can't be resolved: name 'NoSuchType' is not defined"),
        (shapeless, "tool shapeless: a parameter's type has no JSON form"),
    ],
)
def test_what_no_agent_could_call_is_refused_at_once(function: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says.split(":")[1]) as caught:
        tool(function)
    assert str(caught.value).startswith(says)


def test_constraints_and_choices_are_checked_and_described() -> None:
    @tool
    def pick(size: Annotated[int, Field(ge=1, description="How many")], colour: Literal["red", "blue"]) -> None: ...

    properties = pick.parameters["properties"]
    assert properties["size"] == {"type": "integer", "minimum": 1, "description": "How many"}
    assert properties["colour"] == {"type": "string", "enum": ["red", "blue"]}
    with pytest.raises(ToolArgumentError, match="greater than or equal to 1, not 0"):
        pick.bind({"size": 0, "colour": "red"})
