"""What the bench makes of its figures: ratios within a round, medians over rounds, verdicts."""

from __future__ import annotations

import pytest

from bench.figures import PRODUCT, Figure, Figures
from bench.goals import Judged, judge, marginal
from bench.tables import render


def figure(named: tuple[str, str, str], n: int, number: int = 1, cpu: float = 1.0, **values: float) -> Figure:
    workload, tool, case = named
    return Figure(
        workload=workload,
        tool=tool,
        case=case,
        n=n,
        round=number,
        command=f"{tool} {case}",
        wall=cpu,
        cpu=cpu,
        load=0.5,
        values={"rss": 1.0, **values},
    )


SUBMIT = ("W1", PRODUCT, "submit")
INSPECT = ("W1", "inspect", "null")


def chosen(judged: list[Judged], goal: str, word: str = "") -> Judged:
    return next(item for item in judged if item.goal == goal and word in item.what)


def test_what_a_row_costs_is_without_the_start() -> None:
    figures = Figures((figure(SUBMIT, 1, cpu=7.0), figure(SUBMIT, 1001, cpu=7.5)))
    assert marginal(figures, SUBMIT, 1001, 1) == pytest.approx(0.0005)


def test_a_cost_that_the_noise_hides_is_none() -> None:
    figures = Figures((figure(SUBMIT, 1, cpu=7.0), figure(SUBMIT, 100, cpu=6.9)))
    assert marginal(figures, SUBMIT, 100, 1) is None


def test_ratios_are_formed_within_a_round_and_their_median_is_judged() -> None:
    figures = Figures(
        tuple(
            item
            for number, (ours, theirs) in enumerate([(1.0, 10.0), (3.0, 60.0), (9.0, 100.0)], 1)
            for item in (
                figure(SUBMIT, 1, number, cpu=0.0),
                figure(SUBMIT, 101, number, cpu=ours),
                figure(INSPECT, 1, number, cpu=0.0),
                figure(INSPECT, 101, number, cpu=theirs),
            )
        )
    )
    goal = chosen(judge(figures, 10), "G1")
    assert goal.values == pytest.approx((0.1, 0.05, 0.09))
    assert goal.value == pytest.approx(0.09)
    assert goal.verdict == "not"


def test_a_full_read_is_judged_by_its_rows_and_not_by_its_start() -> None:
    ours, theirs = ("W5", PRODUCT, "full"), ("W5", "inspect", "full")
    read = [figure(ours, 1, cpu=0.5), figure(ours, 1000, cpu=0.6), figure(ours, 10_001, cpu=1.5)]
    goal = chosen(judge(Figures((*read, figure(theirs, 1, cpu=1.5), figure(theirs, 1001, cpu=2.5))), 10), "G10", "full")
    assert goal.value == pytest.approx(0.1)
    assert goal.what == "CPU of a row in a full read of 10,001 / Inspect's in 1,001"


def test_a_sandbox_is_judged_by_its_rows_beside_their_bare_commands() -> None:
    bare, local = ("W3", "floor", "bare commands"), ("W3", PRODUCT, "local")
    figures = Figures(
        (figure(bare, 1, cpu=0.1), figure(bare, 501, cpu=2.1), figure(local, 1, cpu=1.0), figure(local, 501, cpu=3.4))
    )
    judged = judge(figures, 10)
    assert chosen(judged, "G7", "local").value == pytest.approx(1.2)
    assert chosen(judged, "G7", "bubblewrap").verdict == "not measured"


@pytest.mark.parametrize(
    ("value", "least", "verdict", "real"),
    [
        (0.9, False, "ok", False),
        (0.5, False, "ok", True),
        (1.1, False, "not", False),
        (0.9, True, "not", False),
        (1.0, True, "ok", True),
    ],
)
def test_a_bound_holds_from_its_own_side(value: float, least: bool, verdict: str, real: bool) -> None:
    bounds = (1.0, 0.95) if least else (1.0, 0.5)
    goal = Judged(goal="G", what="x", values=(value,), must=bounds[0], real=bounds[1], least=least)
    assert (goal.verdict, goal.reaches_real) == (verdict, real)


def test_what_was_not_measured_is_neither_ok_nor_not() -> None:
    assert {item.verdict for item in judge(Figures(()), 10)} == {"not measured"}


def test_a_lost_row_in_any_kill_of_any_round_counts() -> None:
    told = {"doubled": 0.0, "executed_twice": 4.0, "orphans_last": 0.1, "first_row_fresh": 5.0}
    kills = [
        figure(("W4", PRODUCT, "kill everything"), 100, 1, lost=0.0, first_row_resumed=5.5, **told),
        figure(("W4", PRODUCT, "kill the driver"), 100, 2, lost=1.0, first_row_resumed=5.5, **told),
    ]
    judged = judge(Figures(tuple(kills)), 10)
    assert chosen(judged, "G8", "lost").verdict == "not"
    assert chosen(judged, "G8", "again").verdict == "ok"
    assert chosen(judged, "G9").value == pytest.approx(0.5)


def test_the_document_names_every_goal_and_every_command() -> None:
    figures = Figures((figure(SUBMIT, 1), figure(SUBMIT, 1000, store=700_000.0, cpu=2.0)))
    judged = judge(figures, 10)
    text = render(figures, judged, {"cores": "2"}, "python -m bench")
    assert all(f"| {item.goal} |" in text for item in judged)
    assert "| W1 | evalfleet | submit | 1,000 | 2.00 | 2.00 | 1.001 | 0 | 700 | 0.5 |" in text
    assert "`evalfleet submit`" in text
