from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalfleet.errors import FailureKind
from evalfleet.model.report import ArmCounts, CaseView
from evalfleet.model.usage import Usage
from evalfleet.model.verdict import CaseStatus, RunStatus, Style
from evalfleet.reports.json_report import case_value, report_value
from evalfleet.reports.json_text import to_json
from evalfleet.reports.markdown import code, render_markdown, table_code
from evalfleet.reports.model import ReportModel
from evalfleet.reports.text import render_text
from evalfleet.reports.visible import visible_line

HOSTILE = "\x1b[2J`` ` <img src=x onerror=alert(1)> @someone #1 [x](http://y) | ]]>\n# title"


@pytest.fixture
def mixed(
    make_report: Callable[..., ReportModel], make_arm: Callable[..., ArmCounts], make_case: Callable[..., CaseView]
) -> ReportModel:
    """Ten cases: 4 pass, 2 fail, 1 agent crash, 1 verifier error, 1 infrastructure error, 1 not started."""
    arm = make_arm(
        passed=4,
        failed=2,
        errored_own=1,
        errored_other=2,
        pending=1,
        attempts=9,
        failures_by_kind={"agent": 1, "grader": 1, "infrastructure": 1},
        input_tokens=12_345,
        output_tokens=678,
        cost_usd=0.5,
        unknown_cost=2,
        seconds={"p50": 1.25, "p95": 75.0, "max": 80.0},
    )
    notable = tuple(
        make_case(ordinal=n, eval_id=f"sql/{n:04}", status=CaseStatus.FAILED, message=HOSTILE) for n in range(2)
    )
    return make_report(arm, notable=notable, status=RunStatus.LIMITED, stop_reason="max_failures")


def test_text_says_what_ran_and_every_class(mixed: ReportModel) -> None:
    text = "\n".join(render_text(mixed))
    assert "run 7f3k2m0q1x · checkout-sweep · limited (max_failures) · 10 cases · 3m 12s" in text
    assert "4 passed · 2 failed · 1 errored by the agent · 2 errored otherwise · 1 pending" in text
    assert "57.1 % (4/7)" in text
    assert "40.0 % … 70.0 %" in text
    assert "70.0 % (7/10)" in text
    assert "≥ $0.5000" in text
    assert "… 4 more: orchestrate show 7f3k2m0q1x" in text
    assert text.endswith("not accepted: the run is limited: max_failures")


def test_text_lets_no_control_character_through(mixed: ReportModel) -> None:
    for line in render_text(mixed):
        assert line.isprintable(), line
        assert line == line.rstrip()


def test_one_survivor_is_shown_with_what_it_covers(
    make_report: Callable[..., ReportModel], make_arm: Callable[..., ArmCounts]
) -> None:
    arm = make_arm(planned=30, passed=1, errored_other=29, by_eval={(3, 0, 0): 9, (3, 1, 1): 1})
    text = "\n".join(render_text(make_report(arm)))
    assert "100.0 % (1/1)" in text
    assert "3.3 % (1/30)" in text
    assert "3.3 % … 100.0 %" in text
    assert "mean over evals 100.0 % (1 of 10 evals)" in text


def test_score_arms_have_no_percentage(
    make_report: Callable[..., ReportModel], make_arm: Callable[..., ArmCounts]
) -> None:
    arm = make_arm(style=Style.SCORE, passed=8, errored_other=2, score_complete=8, earned_sum=20.0)
    report = make_report(arm)
    assert "2.5 points" in "\n".join(render_text(report))
    for rendered in ("\n".join(render_text(report)), render_markdown(report)):
        assert "8/10 complete" in rendered
        assert "%" not in rendered.replace("95 % interval", "")


def test_what_is_unknown_is_a_dash_never_zero(
    make_report: Callable[..., ReportModel], make_arm: Callable[..., ArmCounts]
) -> None:
    row = render_text(make_report(make_arm(pending=10)))[4]
    assert "$0" not in row
    assert row.split()[:2] == ["small", "–"]


def test_markdown_keeps_agent_text_inside_code_spans(mixed: ReportModel) -> None:
    document = render_markdown(mixed)
    outside = "".join(text for text, inside in spans(document) if not inside)
    for forbidden in ("<img", "@someone", "#1 ", "[x]", "\n# title", "\x1b"):
        assert forbidden not in outside
    inside = [text for text, is_code in spans(document) if is_code]
    assert sum("<img src=x onerror=alert(1)> @someone" in text for text in inside) == 2


def spans(document: str) -> Iterator[tuple[str, bool]]:
    """Split Markdown at its code spans the way CommonMark does: a run of backticks ends at an equal run."""
    position = 0
    while (start := document.find("`", position)) >= 0:
        length = len(document[start:]) - len(document[start:].lstrip("`"))
        end = start + length
        while (end := document.find("`", end)) >= 0:
            closing = len(document[end:]) - len(document[end:].lstrip("`"))
            if closing == length:
                break
            end += closing
        assert end >= 0, f"open code span at {document[start : start + 60]!r}"
        yield document[position:start], False
        yield document[start + length : end], True
        position = end + length
    yield document[position:], False


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "`plain`"),
        ("a`b", "``a`b``"),
        ("`", "`` ` ``"),
        (" x", "`  x `"),
        ("", "`   `"),
        ("a``b`c", "```a``b`c```"),
        ("two\nlines", r"`two\nlines`"),
    ],
)
def test_code_span(text: str, expected: str) -> None:
    assert code(text) == expected


@given(st.text(st.sampled_from("`a \n<"), max_size=12).filter(lambda text: text.strip(" ")))
def test_a_code_span_holds_exactly_its_text(text: str) -> None:
    before, inside, after = (part for part, _ in spans(f"so {code(text)} it is"))
    assert (before, after) == ("so ", " it is")
    # CommonMark takes one space from both ends when there is one at both
    padded = inside[0] == inside[-1] == " "
    assert (inside[1:-1] if padded else inside) == visible_line(text)


def test_a_bar_cannot_end_a_table_cell(
    make_report: Callable[..., ReportModel], make_arm: Callable[..., ArmCounts]
) -> None:
    assert table_code("a|b") == "`a¦b`"
    lines = render_markdown(make_report(make_arm("a|b", passed=10))).split("\n")
    widths = {line.count("|") for line in lines if line.startswith("| ")}
    assert len(widths) == 1


def test_json_is_strict_and_adds_up(mixed: ReportModel) -> None:
    value = json.loads(to_json(report_value(mixed)), parse_constant=pytest.fail)
    assert sum(value["totals"].values()) == value["planned"] == 10
    assert value["arms"][0]["headline"]["bounds"] == {"low": 0.4, "high": 0.7}
    assert value["accepted"] is False


def test_json_of_an_empty_run_has_nulls_not_nan(
    make_report: Callable[..., ReportModel], make_arm: Callable[..., ArmCounts]
) -> None:
    report = make_report(make_arm(planned=0), make_arm("score", style=Style.SCORE, planned=0))
    value = json.loads(to_json(report_value(report)), parse_constant=pytest.fail)
    assert value["arms"][0]["headline"]["rate"] is None
    assert value["arms"][1]["headline"]["mean"] is None


def test_a_case_listing_leaves_agent_text_out_unless_asked(make_case: Callable[..., CaseView]) -> None:
    case = make_case(
        status=CaseStatus.ERRORED, kind=FailureKind.JUDGE, reply=HOSTILE, message=HOSTILE, attempt=1 << 60 | 1
    )
    assert "onerror" not in to_json(case_value(case))
    assert case_value(case, text=True)["reply"] == HOSTILE
    assert case_value(case)["attempt"] == "1152921504606846977"


def test_case_values_are_complete(make_case: Callable[..., CaseView]) -> None:
    value: dict[str, Any] = case_value(make_case(usage=Usage(input_tokens=3), variants={"ask": "vague"}))
    assert value["usage"]["input_tokens"] == 3
    assert value["usage"]["output_tokens"] is None
    assert (value["class"], value["variants"]) == ("passed", {"ask": "vague"})


@pytest.mark.parametrize(
    ("contradicted", "attempts", "of"), [(1, 1, "1 of 1 attempt"), (1, 3, "1 of 3 attempts"), (2, 3, "2 of 3 attempts")]
)
def test_attempts_that_contradict_their_coverage_are_counted_in_a_sentence(
    make_report: Callable[..., ReportModel],
    make_arm: Callable[..., ArmCounts],
    contradicted: int,
    attempts: int,
    of: str,
) -> None:
    arm = make_arm(passed=10, attempts=attempts, contradicted=contradicted)
    assert f"turns of {of} contradict the coverage" in "\n".join(render_text(make_report(arm)))
