"""Suites in files: what is read, and where in the file something is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalfleet.errors import DefinitionError, Problem
from evalfleet.model.suite import Suite
from evalfleet.planning.json_source import read_json
from evalfleet.planning.suite_file import read_suite
from evalfleet.suites.parse import parse_suite
from tests.unit.suites.documents import check, scenario, step, suite

YAML = """\
schemaVersion: 1
id: 7
name: 2026
scenarios:
- id: on
  name: yes
  tags: [1, two]
  writePolicy: read_only
  steps:
  - id: 1
    input: {text: hi, count: 1, flag: true, odd: 017}
    assertions:
    - {id: x, kind: check, path: [items, 0], operator: equals, value: null}
"""


def write(folder: Path, name: str, text: str | bytes) -> Path:
    file = folder / name
    file.write_bytes(text.encode("utf-8") if isinstance(text, str) else text)
    return file


def refused(file: Path) -> list[Problem]:
    with pytest.raises(DefinitionError) as raised:
        read_suite(file)
    assert {problem.file for problem in raised.value.problems} == {str(file)}
    return list(raised.value.problems)


def read(folder: Path, text: str, name: str = "a.suite.yaml") -> Suite:
    return read_suite(write(folder, name, text))


def test_names_are_text_whatever_they_look_like_and_inputs_are_what_yaml_says(tmp_path: Path) -> None:
    (parsed,) = read(tmp_path, YAML).scenarios
    assert (parsed.id, parsed.name, parsed.tags, parsed.steps[0].id) == ("on", "yes", ("1", "two"), "1")
    assert parsed.steps[0].input == {"text": "hi", "count": 1, "flag": True, "odd": "017"}


def test_the_same_suite_from_json_and_from_yaml(tmp_path: Path) -> None:
    document = suite(scenario("a", step(assertions=[check("equals", ["a", 0], value=[1.5, None, "x"])])))
    text = json.dumps(document)
    assert read(tmp_path, text) == read(tmp_path, text, "a.suite.json") == parse_suite(document)


@pytest.mark.parametrize("name", ["a.suite.yaml", "a.suite.json"])
def test_a_byte_order_mark_is_no_part_of_it(tmp_path: Path, name: str) -> None:
    assert read(tmp_path, "\ufeff" + json.dumps(suite()), name).id == "shop"


def test_problems_have_their_place_in_yaml(tmp_path: Path) -> None:
    broken = YAML.replace("read_only", "readonly").replace("tags:", "tgas:").replace("[items, 0]", "[items, -1]")
    found = refused(write(tmp_path, "a.suite.yaml", broken))
    assert [(problem.line, problem.column, problem.field) for problem in found] == [
        (7, 3, "scenarios.0.tgas"),
        (8, 16, "scenarios.0.writePolicy"),
        (13, 42, "scenarios.0.steps.0.assertions.0.path.1"),
    ]


def test_problems_have_their_place_in_json(tmp_path: Path) -> None:
    text = (
        '{"schemaVersion": 1, "id": "s", "name": "n",\n "scenarios": [\n  {"id": "a", "nmae": "x",\n   "steps": []}]}'
    )
    found = refused(write(tmp_path, "a.suite.json", text))
    assert [(problem.line, problem.column, problem.field) for problem in found] == [
        (3, 3, "scenarios.0.name"),
        (3, 3, "scenarios.0.writePolicy"),
        (3, 15, "scenarios.0.nmae"),
        (4, 13, "scenarios.0.steps"),
    ]


FILES: list[tuple[str, str, str | bytes, list[tuple[str, int | None, int | None]]]] = [
    ("no JSON", "a.suite.json", '{"a":\n }', [("INVALID_JSON", 2, 2)]),
    ("more than JSON", "a.suite.json", "{} {}", [("INVALID_JSON", 1, 4)]),
    ("a key twice", "a.suite.json", '{"id": "a",\n "id": "b"}', [("DUPLICATE_KEY", 2, 2)]),
    ("a key twice, deep", "a.suite.json", '{"x": [{"k": 1, "k": 2}]}', [("DUPLICATE_KEY", 1, 17)]),
    ("NaN", "a.suite.json", '{"x": NaN}', [("INVALID_JSON", 1, 7)]),
    ("an infinity", "a.suite.json", '{"x": [1,\n -Infinity]}', [("INVALID_JSON", 2, 2)]),
    ("a number that no float holds", "a.suite.json", '{"x": 1e400}', [("INVALID_JSON", 1, 7)]),
    ("a whole number that no float holds", "a.suite.json", f'{{"x": {"9" * 400}}}', [("INVALID_JSON", 1, 7)]),
    ("many digits and a power", "a.suite.json", f'{{"x": {"9" * 290}e50}}', [("INVALID_JSON", 1, 7)]),
    ("a number of 5000 digits", "a.suite.json", "9" * 5000, [("INVALID_JSON", None, None)]),
    ("100 000 levels", "a.suite.json", "[" * 100_000, [("INVALID_JSON", None, None)]),
    ("a list", "a.suite.json", "[]", [("EVALUATION_SUITE_INVALID", 1, 1)]),
    ("nothing", "a.suite.yaml", "", [("EVALUATION_SUITE_INVALID", 1, 1)]),
    ("a key twice in YAML", "a.suite.yaml", "id: a\nid: b\n", [("DUPLICATE_KEY", 2, 1)]),
    ("no YAML", "a.suite.yaml", "id: [", [("INVALID_YAML", 1, 6)]),
    ("another encoding", "a.suite.yaml", b"id: a\nname: \xff", [("INVALID_ENCODING", 2, 7)]),
]


@pytest.mark.parametrize(("name", "text", "found"), [row[1:] for row in FILES], ids=[row[0] for row in FILES])
def test_a_file_that_is_no_document(tmp_path: Path, name: str, text: str | bytes, found: list[Any]) -> None:
    problems = refused(write(tmp_path, name, text))
    assert [(problem.code, problem.line, problem.column) for problem in problems] == found


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    (problem,) = refused(tmp_path / "gone.suite.yaml")
    assert problem.message == "can't be read: No such file or directory"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=15,
)


@given(json_values, st.sampled_from([None, 1]), st.booleans())
def test_every_value_of_json_has_its_place(value: Any, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    source = read_json(text, "x.json")
    assert source.value == value
    lines = text.split("\n")
    stack: list[tuple[Any, tuple[str | int, ...]]] = [(value, ())]
    count = 0
    while stack:
        item, path = stack.pop()
        count += 1
        place = source.places[path]
        begins = lines[place.line - 1][place.column - 1 :]
        assert begins.startswith(json.dumps(item, indent=indent, ensure_ascii=ascii_only).split("\n")[0][:1])
        if path and isinstance(path[-1], str):
            key = lines[place.key_line - 1][place.key_column - 1 :]
            assert key.startswith(json.dumps(path[-1], ensure_ascii=ascii_only))
        pairs = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else ()
        stack.extend((child, (*path, part)) for part, child in pairs)
    assert count == len(source.places)
