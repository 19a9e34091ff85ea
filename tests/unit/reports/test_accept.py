from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from evalfleet.errors import DefinitionError
from evalfleet.model.report import ArmCounts, RunAggregate, RunInfo
from evalfleet.model.verdict import RunStatus, Style
from evalfleet.reports.accept import Accepted, accept_rule, decide_acceptance
from evalfleet.reports.exit_code import ExitCode, exit_code

MIN_90: dict[str, Any] = {"pass_rate": {"min": 0.9}}


@pytest.mark.parametrize(
    ("rule", "counts", "decision", "reason"),
    [
        ({}, {"passed": 10}, True, None),
        ({}, {"passed": 9, "failed": 1}, False, "arm small: not every case passed: 1 failed"),
        ({}, {"passed": 9, "errored_other": 1}, False, "arm small: not every case passed: 1 errored otherwise"),
        ({}, {"passed": 9, "blocked": 1}, False, "arm small: not every case passed: 1 blocked"),
        ({}, {"passed": 9, "skipped": 1}, False, "arm small: 1 of 10 cases skipped (write allow_skips: true"),
        ({"allow_skips": True}, {"passed": 9, "skipped": 1}, True, None),
        ({}, {"passed": 9, "not_needed": 1}, True, None),
        ({}, {"not_needed": 10}, False, "arm small: no case passed"),
        (MIN_90, {"passed": 9, "failed": 1}, True, None),
        (MIN_90, {"passed": 8, "failed": 2}, False, "arm small: pass rate at most 0.8000, below 0.9"),
        (MIN_90, {"passed": 8, "failed": 1, "errored_other": 1}, None, "between 0.8000 and 0.9000"),
        (MIN_90, {"passed": 8, "errored_own": 1, "failed": 1}, False, "at most 0.8000"),
        (MIN_90, {"passed": 9, "errored_other": 1}, True, None),
        (MIN_90, {"errored_other": 10}, None, "10 of 10 cases unanswered"),
        (MIN_90, {"passed": 9, "skipped": 1}, False, "1 of 10 cases skipped"),
        ({"mean_score": {"min": 1}}, {"passed": 10}, False, "accept.mean_score does not apply"),
        ({**MIN_90, "arms": ["other"]}, {"passed": 10}, False, "accept.arms names other"),
    ],
)
def test_rule(
    rule: dict[str, Any],
    counts: dict[str, int],
    decision: bool | None,
    reason: str | None,
    make_run: Callable[..., RunInfo],
    make_arm: Callable[..., ArmCounts],
) -> None:
    accepted = decide_acceptance(
        RunAggregate(run=make_run(), arms=(make_arm(**counts),)), accept_rule({"accept": rule})
    )
    assert accepted.decision is decision
    assert (reason or "") in "\n".join(accepted.reasons)
    assert bool(accepted.reasons) == (decision is not True)


@pytest.mark.parametrize(
    ("results", "decision", "reason"),
    [
        ([], True, None),
        ([{"id": "a", "passed": True}], True, None),
        ([{"id": "a", "passed": False}], False, "arm small: suite shop: a does not hold"),
        ([{"id": "a", "label": "all ran", "passed": False}], False, "arm small: suite shop: all ran does not hold"),
        ([{"id": "a", "passed": False, "severity": "advisory"}], True, None),
        ([{"id": "a", "passed": False, "errorCode": "X"}], None, "arm small: suite shop: a can't be judged (X)"),
        ([{"id": "a", "passed": False, "errorCode": "X"}, {"id": "b", "passed": False}], False, "b does not hold"),
        (None, None, "arm small: the criteria of suite shop were not evaluated: orchestrate resume"),
    ],
)
def test_the_criteria_of_suites(
    results: list[dict[str, Any]] | None,
    decision: bool | None,
    reason: str | None,
    make_run: Callable[..., RunInfo],
    make_arm: Callable[..., ArmCounts],
) -> None:
    run = make_run(lock={"suite_criteria": ["shop"]})
    found = {} if results is None else {("shop", "small"): results}
    accepted = decide_acceptance(
        RunAggregate(run=run, arms=(make_arm(passed=10),), suite_results=found), accept_rule({})
    )
    assert accepted.decision is decision
    assert (reason or "") in "\n".join(accepted.reasons)
    assert bool(accepted.reasons) == (decision is not True)


@pytest.mark.parametrize(
    ("minimum", "complete", "earned", "decision"),
    [(2.0, 10, 20.0, True), (2.0, 10, 19.0, False), (2.0, 5, 12.0, None), (2.0, 5, 20.0, True), (2.0, 0, 0.0, None)],
)
def test_mean_score(
    minimum: float,
    complete: int,
    earned: float,
    decision: bool | None,
    make_run: Callable[..., RunInfo],
    make_arm: Callable[..., ArmCounts],
) -> None:
    arm = make_arm(
        style=Style.SCORE, passed=complete, errored_other=10 - complete, score_complete=complete, earned_sum=earned
    )
    rule = accept_rule({"accept": {"mean_score": {"min": minimum}}})
    assert decide_acceptance(RunAggregate(run=make_run(), arms=(arm,)), rule).decision is decision


def test_the_rule_may_name_the_arms_that_decide(
    make_run: Callable[..., RunInfo], make_arm: Callable[..., ArmCounts]
) -> None:
    arms = (make_arm("mine", passed=10), make_arm("baseline", failed=10))
    rule = accept_rule({"accept": {"pass_rate": {"min": 0.9}, "arms": ["mine"]}})
    assert decide_acceptance(RunAggregate(run=make_run(), arms=arms), rule) == Accepted(True)


@pytest.mark.parametrize(
    ("accept", "field"),
    [
        ({"pass_rate": {"min": 90}}, "accept.pass_rate.min"),
        ({"pass_rate": {"minimum": 0.9}}, "accept.pass_rate"),
        ({"pas_rate": {"min": 0.9}}, "accept.pas_rate"),
        ({"mean_score": {"min": float("nan")}}, "accept.mean_score.min"),
    ],
)
def test_a_wrong_rule_names_its_field(accept: dict[str, Any], field: str) -> None:
    with pytest.raises(DefinitionError, match=field):
        accept_rule({"accept": accept})


@pytest.mark.parametrize(
    ("status", "decision", "code"),
    [
        (RunStatus.COMPLETED, True, ExitCode.ACCEPTED),
        (RunStatus.COMPLETED, False, ExitCode.NOT_ACCEPTED),
        (RunStatus.COMPLETED, None, ExitCode.INCONCLUSIVE),
        (RunStatus.LIMITED, False, ExitCode.LIMITED),
        (RunStatus.CANCELLED, False, ExitCode.CANCELLED),
        (RunStatus.RUNNING, None, ExitCode.INFRASTRUCTURE),
    ],
)
def test_exit_code(status: RunStatus, decision: bool | None, code: ExitCode) -> None:
    assert exit_code(status, decision) is code


def test_the_numbers_are_the_published_ones() -> None:
    assert [int(each) for each in ExitCode] == [0, 1, 2, 3, 4, 5, 130]


@pytest.mark.parametrize("status", [RunStatus.LIMITED, RunStatus.CANCELLED])
def test_only_a_completed_run_is_accepted(
    status: RunStatus, make_run: Callable[..., RunInfo], make_arm: Callable[..., ArmCounts]
) -> None:
    aggregate = RunAggregate(run=make_run(status=status, stop_reason="budget.usd"), arms=(make_arm(passed=10),))
    assert decide_acceptance(aggregate, accept_rule({})) == Accepted(False, (f"the run is {status.value}: budget.usd",))


def test_a_run_that_lost_its_driver_says_how_to_go_on(
    make_run: Callable[..., RunInfo], make_arm: Callable[..., ArmCounts]
) -> None:
    aggregate = RunAggregate(run=make_run(status=RunStatus.RUNNING, interrupted=True), arms=(make_arm(pending=10),))
    accepted = decide_acceptance(aggregate, accept_rule({}))
    assert accepted.decision is None
    assert "orchestrate resume 7f3k2m0q1x" in accepted.reasons[0]
