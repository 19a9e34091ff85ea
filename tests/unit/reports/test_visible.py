from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalfleet.model.events import MISSING
from evalfleet.reports.visible import cut, shown, visible, visible_line


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("a\x00b\x7f\x9b", r"a\x00b\x7f\x9b"),
        ("line\r\nnext\rover", "line\nnext\\rover"),
        ("\u202eevil\u2066", r"\u202eevil\u2066"),
        ("lone \ud800", r"lone \ud800"),
        ("\ufffe \U0001ffff", r"\ufffe \U0001ffff"),
        ("tags \U000e0041", r"tags \U000e0041"),
        ("naïve 日本 👩‍💻\tok", "naïve 日本 👩‍💻\tok"),
    ],
)
def test_visible(text: str, expected: str) -> None:
    assert visible(text) == expected


def test_a_line_stays_one_line() -> None:
    assert visible_line("a\nb\tc\r\nd\u2028e") == r"a\nb\tc\r\nd\u2028e"


@given(st.text(st.characters(codec=None)))
def test_nothing_that_drives_a_terminal_or_breaks_xml_stays(text: str) -> None:
    safe = visible_line(text)
    safe.encode("utf-8")
    assert not any(unicodedata.category(each) in ("Cc", "Cs", "Zl", "Zp") for each in safe)
    assert visible_line(safe) == safe


def test_cut_says_how_much_is_missing() -> None:
    assert cut("abcd" * 500, 4) == "abcd… [1,996 more characters]"
    assert cut("abcd", 4) == "abcd"
    assert cut("abcd" * 500, None) == "abcd" * 500


@pytest.mark.parametrize("size", range(1, 60))
def test_a_cut_text_is_shorter_than_the_whole_one(size: int) -> None:
    text = "x" * size
    assert cut(text, 4) == text or len(cut(text, 4)) < size


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (MISSING, "(nothing)"),
        (None, "null"),
        ("", '""'),
        ({"id": 9007199254740993}, '{"id": 9007199254740993}'),
        ("\ud800\x1b", '"\\ud800\\u001b"'),
        (float("nan"), "NaN"),
    ],
)
def test_shown(value: object, expected: str) -> None:
    assert shown(value) == expected
