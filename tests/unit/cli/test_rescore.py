from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from evalfleet.api.options import RescoreOptions
from evalfleet.errors import RunHeld
from evalfleet.model.grading import Basis
from evalfleet.model.verdict import CaseStatus
from tests.unit.cli.fake_api import FakeRun, case, detail

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Shell


@pytest.fixture
def run(with_run: Callable[[FakeRun], FakeRun]) -> FakeRun:
    kept = replace(detail(0, "sunny"), basis=Basis.KEPT, kept_because="not-recorded: why")
    return with_run(FakeRun([case(0), case(1, CaseStatus.FAILED)], {0: kept, 1: detail(1, "rain")}))


def test_it_says_how_many_were_judged_on_what_and_which_verdicts_changed(shell: Shell, run: FakeRun) -> None:
    assert shell("rescore", "7f3") == 1
    assert shell.out.splitlines()[:8] == [
        "grading 2 of run 7f3k2m0q1x: 500 attempts",
        "  480 replayed",
        "  20 kept",
        "  15 verdicts changed:",
        "    12 passed → failed",
        "    3 passed → errored",
        "  3 diverged: the eval sends what was not recorded (REPLAY_DIVERGED)",
        "",
    ]
    assert "not accepted" in shell.out
    assert run.opened == run.closed == 1


def test_programs_get_one_document_with_the_report(shell: Shell, run: FakeRun) -> None:
    assert shell("rescore", "7f3", "--json") == 1
    (value,) = shell.values
    assert value["report"]["totals"]["failed"] == 1
    assert {name: item for name, item in value.items() if name != "report"} == {
        "run": "7f3k2m0q1x",
        "grading": 2,
        "attempts": 500,
        "bases": {"replayed": 480, "kept": 20},
        "changed": [
            {"from": "passed", "to": "failed", "attempts": 12},
            {"from": "passed", "to": "errored", "attempts": 3},
        ],
        "diverged": 3,
    }


def test_nothing_to_judge_and_nothing_that_changed_are_said(shell: Shell, run: FakeRun) -> None:
    shell.api.rescored = replace(shell.api.rescored, grading=None, bases={}, changes={}, diverged=0)
    shell("rescore", "7f3", "--only-unavailable")
    assert shell.out.startswith("nothing of run 7f3k2m0q1x was there to be judged again\n")
    shell.api.rescored = replace(shell.api.rescored, grading=3, bases={Basis.FOLDED: 1})
    shell("rescore", "7f3")
    assert shell.out.splitlines()[:3] == [
        "grading 3 of run 7f3k2m0q1x: 1 attempt",
        "  1 folded",
        "  0 verdicts changed",
    ]


def test_what_was_asked_is_passed_on(shell: Shell, run: FakeRun, tmp_path: Path) -> None:
    shell("rescore", "7f3", "--evals", str(tmp_path), "--only-unavailable", "--reason", "the judge was away")
    wanted = RescoreOptions(evals=tmp_path, only_unavailable=True, reason="the judge was away")
    assert shell.api.calls == [("rescore", "7f3", wanted)]
    assert shell("rescore", "7f3", "--evals", str(tmp_path / "gone")) == 2


def test_a_run_that_is_worked_on_exits_2(shell: Shell, run: FakeRun) -> None:
    shell.api.fail = RunHeld("run 7f3k2m0q1x is being worked on by process 11 on here")
    assert shell("rescore", "7f3") == 2
    assert "process 11 on here" in shell.err


@pytest.mark.parametrize("command", ["report", "show"])
def test_another_grading_can_be_read_and_reports_say_which(shell: Shell, run: FakeRun, command: str) -> None:
    assert shell(command, "7f3", "--grading", "2") == 0
    assert run.run.grading == 2
    assert shell(command, "7f3", "--grading", "-1") == 2


@pytest.mark.parametrize(
    ("form", "said"),
    [("text", "completed, grading 2"), ("md", "completed, grading 2"), ("junit", 'name="sweep (grading 2)"')],
)
def test_every_report_says_which_grading_it_shows(shell: Shell, run: FakeRun, form: str, said: str) -> None:
    shell("report", "7f3", "--grading", "2", "--format", form)
    assert said in shell.out
    shell("report", "7f3", "--format", form)
    assert "grading" not in shell.out


def test_an_attempt_says_what_its_judgement_stands_on(shell: Shell, run: FakeRun) -> None:
    shell("show", "7f3", "0")
    assert "  judged again: its earlier judgement was kept\n    not-recorded: why\n" in shell.out
    shell("show", "7f3", "1")
    assert "judged again" not in shell.out
    shell("show", "7f3", "0", "--json")
    (value,) = shell.values
    assert (value["attempt"]["basis"], value["attempt"]["kept_because"]) == ("kept", "not-recorded: why")
