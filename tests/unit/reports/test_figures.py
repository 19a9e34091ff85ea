"""Figures agree with their nouns, and an unknown is never 0."""

from __future__ import annotations

import pytest

from evalfleet.model.usage import Usage
from evalfleet.reports.figures import counted, part_of
from evalfleet.reports.transcript import usage_facts


@pytest.mark.parametrize(
    ("number", "said"),
    [(0, "0 cases"), (1, "1 case"), (2, "2 cases"), (11, "11 cases"), (1_000_001, "1,000,001 cases")],
)
def test_a_count_agrees_with_its_noun(number: int, said: str) -> None:
    assert counted(number, "case") == said


@pytest.mark.parametrize(
    ("part", "whole", "said"), [(0, 1, "0 of 1 case"), (1, 1, "1 of 1 case"), (1, 2000, "1 of 2,000 cases")]
)
def test_a_part_agrees_with_its_whole(part: int, whole: int, said: str) -> None:
    assert part_of(part, whole, "case") == said


def test_tokens_agree_and_the_unknown_is_not_named() -> None:
    assert usage_facts(Usage(input_tokens=1, output_tokens=2)) == ["1 token in", "2 tokens out"]
