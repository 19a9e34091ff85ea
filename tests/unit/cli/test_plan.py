from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from evalfleet.api.options import PlanOptions
from evalfleet.store.past_costs import PastCost

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Shell

EVALS = """
from evalfleet.planning.define import define_eval

@define_eval(external=NAME == "mail")
async def body(t): ...
"""
AGENT = """
from evalfleet.model.agent import agent
from evalfleet.model.coverage import COMPLETE_COVERAGE
from evalfleet.model.turn import Turn

@agent(coverage=COMPLETE_COVERAGE)
async def fake(turn, ctx):
    return Turn(reply="ok")
"""
EXPERIMENT = """
schema_version: 1
name: checkout
repetitions: 2
arms:
  a: {adapter: python, entry: "plan_agent:fake"}
  b: {adapter: python, entry: "plan_agent:fake", model: gpt}
"""


@pytest.fixture
def experiment(tmp_path: Path) -> str:
    (tmp_path / "evals").mkdir()
    for name in ("mail", "sql", "weather"):
        (tmp_path / f"evals/{name}.eval.py").write_text(EVALS.replace("NAME", repr(name)))
    (tmp_path / "plan_agent.py").write_text(AGENT)
    (tmp_path / "experiment.yaml").write_text(EXPERIMENT)
    return str(tmp_path / "experiment.yaml")


def test_plan(shell: Shell, experiment: str) -> None:
    assert shell("plan", experiment) == 0, shell.err
    lines = shell.out.splitlines()
    assert lines[0] == "checkout · 12 cases = 3 evals × 2 arms × 2 repetitions · pass-style"
    assert [line.split() for line in lines[2:5]] == [
        ["arm", "adapter", "model", "sandbox", "cases", "run", "carry", "blocked", "skip"],
        ["a", "python", "none", "6", "4", "0", "2", "0"],
        ["b", "python", "gpt", "none", "6", "4", "0", "2", "0"],
    ]
    assert "a: run 4: never settled before" in lines
    assert any(line.startswith("b: blocked 2: the eval writes to the outside world") for line in lines)


def test_a_plan_of_one_case_says_so(shell: Shell, experiment: str) -> None:
    assert shell("plan", experiment, "sql", "--arm", "b", "--set", "repetitions=1") == 0, shell.err
    assert shell.out.splitlines()[0] == "checkout · 1 case = 1 eval × 1 arm × 1 repetition · pass-style"


def test_plan_json(shell: Shell, experiment: str) -> None:
    assert shell("plan", experiment, "sql", "--arm", "b", "--set", "repetitions=5", "--json") == 0
    (value,) = shell.values
    assert (value["cases"], value["evals"], value["repetitions"]) == (5, 1, 5)
    assert [(arm["arm"], arm["run"]) for arm in value["arms"]] == [("b", 5)]
    assert shell.api.calls[0][3] == PlanOptions(arms=("b",), overrides={"repetitions": "5"})


def test_every_case_with_its_reason(shell: Shell, experiment: str) -> None:
    shell("plan", experiment, "sql", "--cases")
    assert shell.out.splitlines()[0] == "0 a sql #1 run: never settled before"
    shell("plan", experiment, "--cases", "--json")
    assert [value["case"] for value in shell.values] == list(range(12))
    assert {value["action"] for value in shell.values if value["eval"] == "mail"} == {"blocked"}


def test_what_is_wrong_with_the_experiment_is_a_line_each(shell: Shell, experiment: str) -> None:
    Path(experiment).write_text(EXPERIMENT + "repetition: 3\nlimit: {}\n")
    assert shell("plan", experiment) == 2
    assert len(shell.err.splitlines()) == 2
    assert all(line.startswith(f"error: {experiment}:") for line in shell.err.splitlines())


A = PastCost(run="7f3", mean=0.5, deviation=0.0, cases=40)
B = PastCost(run="7f3", mean=0.0, deviation=None, cases=2)


@pytest.mark.parametrize(
    ("costs", "said"),
    [
        ({}, None),
        ({"a": A}, "estimated cost: at least $2.00 (no earlier case of b has a known cost)"),
        ({"a": A, "b": B}, "estimated cost: $2.00"),
        ({"a": B, "b": B}, "estimated cost: $0.00"),
    ],
)
def test_what_running_may_cost(shell: Shell, experiment: str, costs: dict[str, PastCost], said: str | None) -> None:
    shell.api.costs = costs
    assert shell("plan", experiment) == 0
    assert [line for line in shell.out.splitlines() if "cost" in line] == ([said] if said else [])
    assert shell("plan", experiment, "--json") == 0
    first = shell.values[0]["arms"][0]
    known = costs.get("a")
    assert first["estimated_usd"] == (None if known is None else 4 * known.mean)
    assert first["estimated_from"] == (None if known is None else asdict(known))
