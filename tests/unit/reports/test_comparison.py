"""Two sides held against each other: what is paired, what is tested, and what is left undecided."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import pytest

from evalfleet.errors import ConfigurationError, FailureKind
from evalfleet.model.comparison import Finding, Side, SideCase
from evalfleet.model.verdict import CaseStatus, ScoreState, Style
from evalfleet.reports.compared import markdown_comparisons, render_comparisons
from evalfleet.reports.comparison import Comparison, compare_sides
from evalfleet.reports.comparison_value import comparisons_value
from evalfleet.reports.exit_code import ExitCode, gate_code
from evalfleet.reports.independence import SharedResponses
from evalfleet.reports.pairing import pair_sides
from evalfleet.reports.statistics import Interval

#: Outcomes of a case by one letter: passed, failed, errored by the agent, errored otherwise, pending, skipped.
OUTCOMES: dict[str, tuple[CaseStatus, FailureKind | None]] = {
    "+": (CaseStatus.PASSED, None),
    "-": (CaseStatus.FAILED, None),
    "a": (CaseStatus.ERRORED, FailureKind.AGENT),
    "?": (CaseStatus.ERRORED, FailureKind.PROVIDER),
    ".": (CaseStatus.PENDING, None),
    "s": (CaseStatus.SKIPPED, None),
}


def case(run: str, ordinal: int, letter: str = "+", **fields: Any) -> SideCase:
    status, kind = OUTCOMES[letter]
    values: dict[str, Any] = {
        "eval_id": f"sums/{ordinal:04}",
        "definition": "sums",
        "row": b"%d" % ordinal,
        "variants": None,
        "repetition": 0,
        "style": Style.PASS,
        "score_state": None,
        "earned": None,
        "origin": None if letter == "." else (run, ordinal + 1),
    }
    return SideCase(**{"ordinal": ordinal, "status": status, "kind": kind, **values, **fields})


def side(run: str, cases: Iterable[SideCase], **judged: dict[str, str]) -> Side:
    return Side(run=run, arm="small", cases=list(cases), judged=judged)


def outcomes(run: str, letters: str, repetitions: int = 1) -> Side:
    """A side of one eval a letter, or one for each so many letters, which are its repetitions."""
    return side(
        run,
        [
            case(run, ordinal, letter, row=b"%d" % (ordinal // repetitions), repetition=ordinal % repetitions)
            for ordinal, letter in enumerate(letters)
        ],
    )


def scores(run: str, points: Sequence[float | None]) -> Side:
    return side(
        run,
        [
            case(
                run,
                ordinal,
                style=Style.SCORE,
                earned=earned,
                score_state=ScoreState.PARTIAL if earned is None else ScoreState.COMPLETE,
            )
            for ordinal, earned in enumerate(points)
        ],
    )


def compared(first: Side, second: Side) -> Comparison:
    (found,) = compare_sides([(first, second)])
    return found


def of(first: str, second: str, repetitions: int = 1) -> Comparison:
    return compared(outcomes("r1", first, repetitions), outcomes("r2", second, repetitions))


# --- pairing --------------------------------------------------------------------------------------------------


def test_cases_are_paired_by_content_wherever_they_stand() -> None:
    first = side("r1", [case("r1", n) for n in range(4)])
    second = side("r2", [case("r2", 9 - n, row=b"%d" % n, eval_id=f"sums/{9 - n:04}") for n in range(4)])
    pairs = pair_sides(first, second).pairs
    assert [(pair.first.ordinal, pair.second.ordinal) for pair in pairs] == [(0, 9), (1, 8), (2, 7), (3, 6)]


@pytest.mark.parametrize(
    "other",
    [{"definition": "sums_2"}, {"row": b"other"}, {"row": None}, {"variants": '{"a":"b"}'}, {"repetition": 1}],
)
def test_a_case_that_asks_something_else_is_alone(other: dict[str, Any]) -> None:
    pairing = pair_sides(side("r1", [case("r1", 0)]), side("r2", [case("r2", 0, **other)]))
    assert (len(pairing.pairs), pairing.alone_first, pairing.alone_second) == (0, 1, 1)


def test_a_row_that_stands_twice_is_two_evals_in_order() -> None:
    twice = [[case(run, n, row=b"same", repetition=n // 2) for n in range(4)] for run in ("r1", "r2")]
    pairs = pair_sides(*(side("r", cases) for cases in twice)).pairs
    assert [(pair.number, pair.first.ordinal, pair.second.ordinal) for pair in pairs] == [
        (0, 0, 0), (1, 1, 1), (0, 2, 2), (1, 3, 3),
    ]  # fmt: skip


def test_an_eval_that_is_judged_otherwise_is_no_pair() -> None:
    cases = [[case(run, 0), case(run, 1, definition="b")] for run in ("r1", "r2")]
    before = side("r1", cases[0], sums={"source": "1", "judge": "x"}, b={"source": "1"})
    after = side("r2", cases[1], sums={"source": "2"}, b={"source": "1"})
    pairing = pair_sides(before, after)
    assert pairing.changed == {"sums": ("source", "judge")}
    assert (len(pairing.pairs), pairing.alone_first, pairing.alone_second) == (1, 1, 1)
    text = "\n".join(render_comparisons([compared(before, after)]))
    assert "eval sums is judged otherwise (source, judge): orchestrate rescore judges a run again" in text


# --- tests ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "p"),
    [("++--", "++--", 1), ("-------+" + "+" * 9, "------+-" + "+" * 9, 1), ("-----", "+++++", 0.0625)],
)
def test_pairs_get_mcnemars_exact_test(first: str, second: str, p: float) -> None:
    tested = of(first, second).tested
    assert tested is not None and tested.p == pytest.approx(p) == tested.corrected
    assert tested.test == "exact McNemar"
    assert tested.interval is not None and tested.interval.low < tested.interval.high


def test_the_eval_is_the_unit_and_not_its_repetitions() -> None:
    found = of("+++" * 7 + "---" * 3, "+++" * 5 + "---" * 5, repetitions=3)
    assert found.tested is not None
    assert (found.tested.evals, found.tested.first_better, found.tested.second_better) == (10, 2, 0)
    assert found.tested.p == pytest.approx(0.5)
    assert (found.evals, found.counts.pairs) == (10, 30)


def test_repetitions_that_disagree_are_flipped_and_resampled_by_eval() -> None:
    found = of("++-" * 12, "+--" * 12, repetitions=3)
    assert found.tested is not None
    assert (found.tested.test, found.tested.interval_by) == ("sign flips by eval", "bootstrap by eval")
    assert found.tested.difference == pytest.approx(-1 / 3)
    assert found.tested.interval is None  # every eval differs by as much: there is no variation to resample
    assert found.finding is Finding.WORSE
    assert of("++-" * 12, "+--" * 12, repetitions=3) == found


def test_uneven_repetitions_weigh_evals_not_answers() -> None:
    first = side("r1", [case("r1", 0, "+"), *(case("r1", n, "-", row=b"b", repetition=n) for n in range(1, 10))])
    second = side("r2", [case("r2", 0, "-"), *(case("r2", n, "-", row=b"b", repetition=n) for n in range(1, 10))])
    assert (compared(first, second).first_mean, compared(first, second).difference) == (0.5, -0.5)


def test_a_thousand_pairs_show_five_points() -> None:
    first = "+" * 600 + "-" * 400
    second = "+" * 550 + "-" * 50 + "+" * 100 + "-" * 300
    found = of(first, second)
    assert found.finding is Finding.BETTER
    assert found.difference == pytest.approx(0.05)
    assert render_comparisons([found])[3].startswith("r2:small against r1:small: 5.0 pp better over 1,000 evals (p < ")


def test_nothing_is_found_where_nothing_is_more_often_than_the_level() -> None:
    draw = Random(17)
    found = 0
    for _ in range(1_000):
        chances = [draw.random() for _ in range(40)]
        letters = ["".join("-+"[draw.random() < chance] for chance in chances) for _ in range(2)]
        found += of(*letters).finding is not Finding.NO_DIFFERENCE
    assert 0 < found <= 50 + 3 * (1_000 * 0.05 * 0.95) ** 0.5


def test_several_comparisons_are_corrected_for_being_several() -> None:
    pair = (outcomes("r1", "-" * 6 + "+" * 9), outcomes("r2", "+" * 15))
    alone, both = compare_sides([pair]), compare_sides([pair, pair])
    assert [each.finding for each in (*alone, *both)] == [Finding.BETTER, *[Finding.NO_DIFFERENCE] * 2]
    assert both[0].tested is not None and both[0].tested.corrected == pytest.approx(2 * 0.03125)
    assert "  p = 0.031 by itself, p = 0.063 among all of these (Holm)" in render_comparisons(both)


# --- what is missing ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "missing", "bounds", "finding"),
    [
        ("-" * 10, "+" * 10, 0, (1, 1), Finding.BETTER),
        ("-" * 10, "a" * 10, 0, (0, 0), Finding.NO_DIFFERENCE),  # an agent that crashes did not pass
        ("-" * 10, "+" * 8 + "??", 2, (0.8, 1), Finding.BETTER),
        ("-" * 8 + "..", "+" * 8 + "?.", 2, (0.6, 1), Finding.BETTER),
        ("-" * 20, "+" * 8 + "?" * 12, 12, (0.4, 1), Finding.BETTER),
        ("+" * 10 + "-" * 8, "?" * 10 + "+" * 8, 10, (-2 / 18, 8 / 18), Finding.INCONCLUSIVE),
        ("+-", "+?", 1, (0, 0.5), Finding.INCONCLUSIVE),
        ("??", "++", 2, (0, 1), Finding.INCONCLUSIVE),
        ("ss", "++", 0, None, Finding.INCONCLUSIVE),
    ],
)
def test_missing_cases_bound_the_difference(
    first: str, second: str, missing: int, bounds: tuple[float, float] | None, finding: Finding
) -> None:
    found = of(first, second)
    assert found.counts.missing == missing
    assert (found.bounds is None) == (bounds is None)
    if found.bounds is not None:
        assert (found.bounds.low, found.bounds.high) == pytest.approx(bounds)
    assert found.finding is finding
    assert (found.reason is not None) == (finding is Finding.INCONCLUSIVE)


def test_what_is_missing_is_counted_on_each_side_and_what_is_skipped_leaves() -> None:
    counts = of("+.?s+", "?..+s").counts
    assert (counts.pairs, counts.compared, counts.missing, counts.left) == (5, 0, 3, 2)
    assert (counts.missing_first, counts.missing_second) == (2, 3)


# --- shared responses -----------------------------------------------------------------------------------------


def test_sides_that_share_every_response_are_told_so_and_get_no_figures_of_chance() -> None:
    carried = side("r2", [case("r1", n, letter) for n, letter in enumerate("-" * 8 + "+" * 8)])
    found = compared(outcomes("r1", "-" * 8 + "+" * 8), carried)
    assert (found.tested, found.shared) == (None, SharedResponses(16, 16))
    assert (found.finding, found.difference) == (Finding.INCONCLUSIVE, 0)
    text = "\n".join(render_comparisons([found]))
    assert "inconclusive, 100.0 % shared responses, not independent: there is nothing to test" in text
    assert "p = " not in text and "interval by" not in text
    assert comparisons_value([found])["comparisons"][0]["tested"] is None


def test_equal_outcomes_are_no_sign_of_shared_responses() -> None:
    found = of("+-" * 20, "+-" * 20)
    assert found.shared == SharedResponses(0, 40)
    assert found.tested is not None and found.tested.p == 1


def test_the_shared_part_is_left_out_of_the_test() -> None:
    fresh = [case("r2", n, "+") for n in range(8)]
    carried = [case("r1", n, "-") for n in range(8, 40)]
    found = compared(outcomes("r1", "-" * 40), side("r2", [*fresh, *carried]))
    assert found.tested is not None
    assert (found.tested.evals, found.tested.difference, found.difference) == (8, 1, 0.2)
    assert "  80.0 % shared responses, not independent: 32 pairs left out of the test" in render_comparisons([found])


def test_judging_the_same_responses_again_is_no_second_look() -> None:
    again = side("r1", [case("r1", n, "+") for n in range(10)])
    found = compared(outcomes("r1", "-" * 10), again)
    assert (found.finding, len(found.flips)) == (Finding.INCONCLUSIVE, 10)


# --- scores ---------------------------------------------------------------------------------------------------


def test_scores_are_compared_by_their_mean_difference() -> None:
    found = compared(scores("r1", [1, 2, 3, 4] * 5), scores("r2", [2, 2, 4, 5] * 5))
    assert (found.first_mean, found.second_mean, found.difference) == (2.5, 3.25, 0.75)
    assert found.tested is not None and found.tested.test == "sign flips by eval"
    assert found.tested.interval is not None
    assert 0.5 < found.tested.interval.low < 0.75 < found.tested.interval.high < 1
    assert found.finding is Finding.BETTER
    assert "0.75 points better" in render_comparisons([found])[3]


def test_a_missing_score_is_bounded_by_nothing() -> None:
    found = compared(scores("r1", [1, 2, 3, None] * 5), scores("r2", [2, 3, 4, 5] * 5))
    assert (found.counts.compared, found.counts.missing, found.bounds) == (15, 5, None)
    assert (found.finding, found.reason) == (Finding.INCONCLUSIVE, "nothing bounds the scores that are missing")


def test_verdicts_and_scores_are_not_compared() -> None:
    with pytest.raises(ConfigurationError, match="arm small of run r1 and arm small of run r2 hold evals of pass and"):
        compared(outcomes("r1", "+"), scores("r2", [1]))


# --- what is said ---------------------------------------------------------------------------------------------


def test_flips_are_listed_both_ways_and_not_all_at_once() -> None:
    found = of("-" * 30 + "+", "+" * 30 + "-")
    lines = render_comparisons([found])
    assert "  30 cases gained:" in lines and "  1 case lost:" in lines
    assert "  … 10 more: --all shows them" in lines
    assert sum("not passed  passed" in line for line in lines) == 20
    every = render_comparisons([found], every_flip=True)
    assert sum("not passed  passed" in line for line in every) == 30
    assert "  sums/0030 #1  passed  not passed  30    30" in every


def test_text_of_others_stays_harmless() -> None:
    eval_id = "a|b`<b>\x1b[31m"
    sides = [side(run, [case(run, 0, letter, eval_id=eval_id)]) for run, letter in (("1", "+"), ("2", "-"))]
    found = [compared(*sides)]
    assert "\x1b" not in "".join(render_comparisons(found)) + markdown_comparisons(found)
    assert "- ``a|b`<b>\\x1b[31m #1``: passed → not passed (cases 0 and 0)" in markdown_comparisons(found)


@pytest.mark.parametrize("letters", [("", ""), ("+", ""), ("..", ".."), ("ss", "ss"), ("+", "+"), ("??", "+-")])
def test_whatever_is_undefined_is_null_and_renders(letters: tuple[str, str]) -> None:
    found = [of(*letters)]
    json.dumps(comparisons_value(found), allow_nan=False)
    assert "nan" not in "\n".join([*render_comparisons(found), markdown_comparisons(found)]).lower()


@pytest.mark.parametrize(
    ("findings", "code"),
    [
        ([Finding.BETTER, Finding.NO_DIFFERENCE], ExitCode.ACCEPTED),
        ([Finding.BETTER, Finding.INCONCLUSIVE], ExitCode.INCONCLUSIVE),
        ([Finding.INCONCLUSIVE, Finding.WORSE], ExitCode.NOT_ACCEPTED),
    ],
)
def test_a_gate_stops_at_the_worst_finding(findings: list[Finding], code: ExitCode) -> None:
    assert gate_code(findings) is code


def test_the_interval_is_over_evals_and_the_bounds_over_all_that_count() -> None:
    found = of("+" * 10 + "-" * 10, "+" * 10 + "-" * 10)
    assert found.bounds == Interval(0, 0)
    assert found.tested is not None and found.tested.interval is not None
    assert found.tested.interval.low < 0 < found.tested.interval.high
