"""Strict equality and the matchers on whole values."""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalfleet.assertions.equality import first_difference, pointer
from evalfleet.assertions.match import Match, evaluate_now
from evalfleet.assertions.matchers import (
    approx,
    command_succeeded,
    equals,
    is_defined,
    is_false,
    is_true,
    json_match,
    one_of,
)
from evalfleet.errors import AuthoringError
from evalfleet.model.assertion import Result
from evalfleet.model.events import MISSING
from evalfleet.sandbox_ports import CommandResult


class Colour(StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("expected", "actual", "same"),
    [
        (True, True, True),
        (True, 1, False),
        (1, True, False),
        (False, 0, False),
        (0, False, False),
        ([True], [1], False),
        (True, "true", False),
        (1, 1.0, True),
        (1.0, 1, True),
        (0, -0.0, True),
        (0.1 + 0.2, 0.3, False),
        (math.nan, math.nan, True),
        ([math.nan], [math.nan], True),
        (math.nan, 1.0, False),
        (math.inf, math.inf, True),
        (9007199254740993, 9007199254740993, True),
        (9007199254740993, 9007199254740992, False),
        (9007199254740993, 9007199254740992.0, False),
        (9007199254740992, 9007199254740992.0, True),
        (10**400, 10**400, True),
        (10**400, 10**400 + 1, False),
        (10**400, math.inf, False),
        (2**63, 2**63, True),
        ("a", "a", True),
        ("a", Colour.RED, False),
        ("red", Colour.RED, True),
        ("é", "e\u0301", False),
        ("\ud800", "\ud800", True),
        ("1", 1, False),
        (None, None, True),
        (None, False, False),
        (None, MISSING, False),
        ([1, 2], [2, 1], False),
        ([1, 2], (1, 2), True),
        ([], {}, False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"a": 1}, {"a": 1, "b": None}, False),
        ({"a": None}, {}, False),
        (b"abc", b"abc", True),
        (b"abc", "abc", False),
        (datetime.date(2026, 1, 2), datetime.date(2026, 1, 2), True),
    ],
)
def test_strict_equality(expected: Any, actual: Any, same: bool) -> None:
    result = evaluate_now(equals(expected), actual).result
    assert result is (Result.MATCHED if same else Result.MISMATCHED)


@pytest.mark.parametrize(
    ("left", "right", "where"),
    [
        (1, 2, ""),
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3]}}, "/a/b/1"),
        ({"a/b": {"~": 1}}, {"a/b": {"~": 2}}, "/a~1b/~0"),
        ({"first": 1, "second": 2}, {"first": 0, "second": 0}, "/first"),
        ({"a": [1]}, {"a": [1, 2]}, "/a"),
        ([{"x": 1}], [{"x": 1}], None),
    ],
)
def test_the_first_difference_has_a_place(left: Any, right: Any, where: str | None) -> None:
    assert first_difference(left, right) == where


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@settings(deadline=None)
@given(json_values)
def test_every_json_value_equals_itself_and_matches_itself(value: Any) -> None:
    assert first_difference(value, value) is None
    assert evaluate_now(equals(value), value).holds


@settings(deadline=None)
@given(json_values, json_values)
def test_equality_is_symmetric_and_implies_json_match(left: Any, right: Any) -> None:
    same = first_difference(left, right) is None
    assert (first_difference(right, left) is None) is same
    if same and "nan" not in repr(left) and "inf" not in repr(left):
        assert evaluate_now(json_match(left), right).holds


def test_deep_and_cyclic_values_are_compared_without_recursion() -> None:
    deep_left: list[Any] = []
    deep_right: list[Any] = []
    for _ in range(20_000):
        deep_left, deep_right = [deep_left], [deep_right]
    assert first_difference(deep_left, deep_right) is None
    loop: list[Any] = [1]
    loop.append(loop)
    other: list[Any] = [1]
    other.append(other)
    assert first_difference(loop, other) is None


def test_a_later_change_to_the_expected_object_changes_nothing() -> None:
    expected = {"a": [1]}
    match = equals(expected)
    expected["a"].append(2)
    assert evaluate_now(match, {"a": [1]}).holds


def test_a_mismatch_says_where() -> None:
    found = evaluate_now(equals({"city": "Rome"}), {"city": "Oslo"})
    assert (found.reason, found.expected, found.actual) == ("differs-at:/city", {"city": "Rome"}, {"city": "Oslo"})


@pytest.mark.parametrize("expected", [{1: "a"}, [[{True: 1}]]])
def test_object_keys_are_text(expected: Any) -> None:
    with pytest.raises(AuthoringError, match="keys must be text"):
        equals(expected)


def test_a_cyclic_expectation_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    for build in (equals, json_match, one_of):
        with pytest.raises(AuthoringError, match="cycle"):
            build(loop)


def test_the_pointer_of_a_place() -> None:
    assert pointer(None) == ""
    assert pointer(((None, "a"), 0)) == "/a/0"


def holds(match: Match, value: Any) -> bool:
    found = evaluate_now(match, value)
    assert found.result in (Result.MATCHED, Result.MISMATCHED)
    return found.holds


@pytest.mark.parametrize(
    ("match", "value", "expected"),
    [
        (one_of("a", 1), "a", True),
        (one_of("a", 1), 1.0, True),
        (one_of("a", 1), True, False),
        (one_of(None), MISSING, False),
        (approx(0.3), 0.1 + 0.2, True),
        (approx(0.3), 0.31, False),
        (approx(0.3, abs=0.02), 0.31, True),
        (approx(100, rel=0.01), 101, True),
        (approx(100, rel=0.01), 102, False),
        (approx(0), 1e-13, True),
        (approx(1), True, False),
        (approx(1), "1", False),
        (approx(1), math.nan, False),
        (approx(1), math.inf, False),
        (approx(10**400), 10**400 + 1, True),
        (approx(10**400), 1.0, False),
        (approx(9007199254740993, rel=0, abs=0), 9007199254740992, False),
        (is_defined(), 0, True),
        (is_defined(), "", True),
        (is_defined(), None, False),
        (is_defined(), MISSING, False),
        (is_true(), True, True),
        (is_true(), 1, False),
        (is_true(), "true", False),
        (is_false(), False, True),
        (is_false(), 0, False),
        (is_false(), None, False),
    ],
)
def test_matchers_on_values(match: Match, value: Any, expected: bool) -> None:
    assert holds(match, value) is expected


@pytest.mark.parametrize(
    "build",
    [
        lambda: one_of(),
        lambda: approx("1"),  # type: ignore[arg-type]
        lambda: approx(True),
        lambda: approx(math.nan),
        lambda: approx(1, abs=math.inf),
        lambda: approx(1, rel=-1),
    ],
)
def test_misuse_is_an_authoring_error(build: Any) -> None:
    with pytest.raises(AuthoringError):
        build()


@dataclass
class Reported:
    exit_code: Any


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (CommandResult(exit_code=0, stdout=b"", stderr=b"warning", duration=0.1), True),
        (CommandResult(exit_code=1, stdout=b"fine", stderr=b"", duration=0.1), False),
        (CommandResult(exit_code=None, stdout=b"", stderr=b"", duration=0.1, timed_out=True), False),
        (Reported(0), True),
        (Reported(False), False),
        (Reported("0"), False),
        ("exit_code: 0", False),
        (None, False),
    ],
)
def test_command_succeeded(value: Any, expected: bool) -> None:
    assert holds(command_succeeded(), value) is expected


def test_a_commands_row_keeps_the_end_of_what_it_printed() -> None:
    result = CommandResult(exit_code=2, stdout=b"x" * 5000 + b"the end", stderr=b"\xff", duration=0.1)
    actual = evaluate_now(command_succeeded(), result).actual
    assert actual["exit_code"] == 2
    assert actual["stdout"].endswith("the end")
    assert len(actual["stdout"]) < 2100
    assert actual["stderr"] == "\ufffd"
