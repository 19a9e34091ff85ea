"""What YAML text means here: no guessing by the look of a scalar, and a place for everything."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalfleet.errors import DefinitionError
from evalfleet.planning.yaml_source import Plain, dotted, number, read_yaml, resolve


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("choices: [NO, SE, ON]", {"choices": ["NO", "SE", "ON"]}),
        ("target: off", {"target": "off"}),
        ("no: 1", {"no": 1}),
        ("on: yes", {"on": "yes"}),
        ("n: 1e3", {"n": 1000.0}),
        ("n: 5e-6", {"n": 5e-6}),
        ("n: 3.10", {"n": 3.1}),
        ("n: .5", {"n": 0.5}),
        ("n: -7", {"n": -7}),
        ("n: 017", {"n": "017"}),
        ("n: 1_000", {"n": "1_000"}),
        ("n: 0x1F", {"n": "0x1F"}),
        ("n: 0o17", {"n": "0o17"}),
        ("n: .inf", {"n": ".inf"}),
        ("n: .nan", {"n": ".nan"}),
        ("n: 1e999", {"n": "1e999"}),
        ("n: 08:30", {"n": "08:30"}),
        ("as_of: 2026-01-02", {"as_of": "2026-01-02"}),
        ("op: =", {"op": "="}),
        ("blocked: true", {"blocked": True}),
        ("blocked: 'true'", {"blocked": "true"}),
        ("nothing: ~", {"nothing": None}),
        ("nothing: null", {"nothing": None}),
        ("nothing:", {"nothing": None}),
        ("text: ''", {"text": ""}),
        ("text: !!str 3", {"text": "3"}),
        ("text: |\n  3", {"text": "3"}),
        ("%YAML 1.1\n---\ntext: no", {"text": "no"}),
        ("\ufefftext: x", {"text": "x"}),
    ],
)
def test_a_scalar_in_an_untyped_place_means(text: str, value: object) -> None:
    found = resolve(read_yaml(text, "f").value)
    assert json.dumps(found) == json.dumps(value)


def test_a_key_that_stands_twice_is_refused_with_both_lines() -> None:
    with pytest.raises(DefinitionError) as caught:
        read_yaml("limits: {turns: 5}\nmodel: m1\nlimits: {tokens: 100}\n", "f.yaml")
    (problem,) = caught.value.problems
    assert (problem.code, problem.line, problem.field) == ("DUPLICATE_KEY", 3, "limits")
    assert "lines 1 and 3" in problem.message


def test_a_merge_brings_keys_that_the_mapping_lacks_and_earlier_sources_win() -> None:
    source = read_yaml("a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc:\n  <<: [*a, *b]\n  x: 3\n", "f")
    assert resolve(source.value)["c"] == {"x": 3, "y": 1, "z": 2}
    assert source.places["c", "x"].line == 5
    assert source.places["c", "z"].line == 2


def test_a_quoted_merge_key_is_a_key() -> None:
    assert resolve(read_yaml("'<<': 1", "f").value) == {"<<": 1}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: &a [*a]", 1),
        ("b: &b {<<: *b}", 1),
        ("a: 1\n? [x]\n: 2", 2),
        ("a: !!binary aGk=", 1),
        ("a: !!python/object:os.system x", 1),
        ('a: "\\ud800"', 1),
        ("a: " + "[" * 200, 1),
        ("<<: 3", 1),
    ],
)
def test_what_can_not_be_a_json_value_is_refused(text: str, line: int) -> None:
    with pytest.raises(DefinitionError) as caught:
        read_yaml(text, "f")
    assert [problem.line for problem in caught.value.problems] == [line]


def test_aliases_that_multiply_end_in_an_error_not_in_all_memory() -> None:
    levels = ["a0: &a0 [" + ",".join(["x"] * 10) + "]"]
    levels += [f"a{n}: &a{n} [" + ",".join([f"*a{n - 1}"] * 10) + "]" for n in range(1, 9)]
    with pytest.raises(DefinitionError, match="multiply without end"):
        read_yaml("\n".join(levels), "f")


def test_every_value_has_the_place_where_it_is_written() -> None:
    source = read_yaml("a:\n  - x\n  - {b: 'y'}\n", "f")
    assert {dotted(path): (place.line, place.column) for path, place in source.places.items()} == {
        "": (1, 1),
        "a": (2, 3),
        "a[0]": (2, 5),
        "a[1]": (3, 5),
        "a[1].b": (3, 9),
    }


@given(st.text())
def test_any_text_reads_as_a_value_or_as_problems(text: str) -> None:
    try:
        resolve(read_yaml(text, "f").value)
    except DefinitionError as error:
        assert error.problems


@given(st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False)))
def test_a_number_that_json_prints_reads_back(value: float) -> None:
    assert number(json.dumps(value)) == value
    assert resolve(Plain(json.dumps(value))) == value
