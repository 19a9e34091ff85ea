"""Matchers on text."""

from __future__ import annotations

import pickle
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalfleet.assertions.distance import levenshtein, likeness
from evalfleet.assertions.match import Match, evaluate_now
from evalfleet.assertions.matchers import excludes, has_sections, includes, includes_url, pattern, similarity
from evalfleet.assertions.texts import MAX_SIMILARITY_TEXT
from evalfleet.errors import AuthoringError
from evalfleet.model.assertion import Result
from evalfleet.model.events import MISSING


@pytest.mark.parametrize(
    ("match", "value", "expected"),
    [
        (includes("sunny"), "It is sunny.", True),
        (includes("Sunny"), "It is sunny.", False),
        (includes("Sunny", ignore_case=True), "It is sunny.", True),
        (includes("straße", ignore_case=True), "STRASSE", True),
        (includes("."), "abc", False),
        (includes("x"), "", False),
        (includes("x"), None, False),
        (includes("x"), ["x"], False),
        (includes("1"), 1, False),
        (excludes("rain"), "It is sunny.", True),
        (excludes("sun"), "It is sunny.", False),
        (excludes("SUN", ignore_case=True), "It is sunny.", False),
        (excludes("x"), None, False),
        (excludes("x"), MISSING, False),
        (pattern(r"\bsun"), "It is sunny.", True),
        (pattern(r"(?i)SUN"), "It is sunny.", True),
        (pattern(r"^It.*\.$"), "It is sunny.", True),
        (pattern(r"^b$"), "a\nb", False),
        (pattern(r"(?m)^b$"), "a\nb", True),
        (pattern("naïve"), "so naïve", True),
        (pattern("a"), "\ud800a", True),
        (pattern("x"), 5, False),
        (includes_url(), "see https://example.org/a.", True),
        (includes_url(2), "https://example.org https://example.org.", False),
        (includes_url(2), "[a](http://a.example) and <https://b.example/x?y=1>", True),
        (includes_url(), "ftp://example.org", False),
        (includes_url(), "https://", False),
        (includes_url(), 3, False),
        (has_sections(), "# One\ntext\n## Two\n", True),
        (has_sections(), "# One\n```\n# not a heading\n```\n", False),
        (has_sections(1), "#hashtag", False),
        (has_sections(1), "~~~\n```\n~~~\n# Real", True),
        (has_sections(1), None, False),
    ],
)
def test_text(match: Match, value: Any, expected: bool) -> None:
    found = evaluate_now(match, value)
    assert found.result is (Result.MATCHED if expected else Result.MISMATCHED)


def test_a_wrong_type_is_a_mismatch_that_says_so() -> None:
    assert evaluate_now(includes("x"), 7).reason == "wrong-type:int"
    assert evaluate_now(excludes("x"), MISSING).reason == "wrong-type:missing"


@pytest.mark.parametrize("expression", ["(?=a)", "(?<!a)b", r"(a)\1", "(a", "a{2000}", "*"])
def test_what_is_not_linear_is_refused_where_it_is_written(expression: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AuthoringError, match="linear-time engine"):
        pattern(expression)
    assert capfd.readouterr() == ("", "")


def test_a_hostile_text_can_not_stop_an_expression() -> None:
    started = time.perf_counter()
    assert not evaluate_now(pattern("(a+)+$"), "a" * 50_000 + "b").holds
    assert time.perf_counter() - started < 5  # a backtracking engine would outlive us


def test_a_pattern_survives_pickling() -> None:
    again = pickle.loads(pickle.dumps(pattern("a+b")))
    assert evaluate_now(again, "xaab").holds
    assert again.describe() == pattern("a+b").describe()


@pytest.mark.parametrize("make", [includes, excludes, pattern])
@pytest.mark.parametrize("text", ["", None, 5])
def test_an_empty_text_is_refused(make: Any, text: Any) -> None:
    with pytest.raises(AuthoringError, match="not empty"):
        make(text)


@pytest.mark.parametrize("make", [includes_url, has_sections])
@pytest.mark.parametrize("count", [0, -1, True, 1.0])
def test_a_minimum_is_a_whole_number_above_zero(make: Any, count: Any) -> None:
    with pytest.raises(AuthoringError, match="at least 1"):
        make(count)


@pytest.mark.parametrize(
    ("left", "right", "distance"),
    [
        ("", "", 0),
        ("a", "", 1),
        ("kitten", "sitting", 3),
        ("flaw", "lawn", 2),
        ("ab", "ba", 2),
        ("same", "same", 0),
        ("a" * 200, "a" * 199 + "b", 1),
        ("é", "e", 1),
    ],
)
def test_edit_distance(left: str, right: str, distance: int) -> None:
    assert levenshtein(left, right) == levenshtein(right, left) == distance


def slow_distance(left: str, right: str) -> int:
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(right, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]


@settings(deadline=None)
@given(st.text("abc", max_size=80), st.text("abc", max_size=80))
def test_edit_distance_is_that_of_the_textbook(left: str, right: str) -> None:
    assert levenshtein(left, right) == slow_distance(left, right)
    assert 0.0 <= likeness(left, right) <= 1.0


@pytest.mark.parametrize(
    ("expected", "value", "measurement"),
    [("abc", "abc", 1.0), ("", "", 1.0), ("abcd", "abc", 0.75), ("abc", "xyz", 0.0), ("abc", None, 0.0)],
)
def test_similarity_measures(expected: str, value: Any, measurement: float) -> None:
    found = evaluate_now(similarity(expected), value)
    assert (found.result, found.measurement) == (Result.MATCHED, measurement)


def test_a_text_too_long_to_compare_is_an_error_not_a_clipped_number() -> None:
    found = evaluate_now(similarity("a"), "a" * (MAX_SIMILARITY_TEXT + 1))
    assert (found.result, found.measurement) == (Result.ERRORED, None)
    with pytest.raises(AuthoringError):
        similarity("a" * (MAX_SIMILARITY_TEXT + 1))
