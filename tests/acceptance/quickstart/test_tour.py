"""The shipped tour: a weather query, evals made of rows, and a mapping by hand before and after its repair."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.acceptance.cli.conftest import Orchestrate

UNSEEN = "coverage:actions=unavailable (tool lifecycle events are not exposed)"


def submitted(orchestrate: Orchestrate, root: Path, experiment: str) -> dict[str, Any]:
    ended = orchestrate("submit", f"evals/tour/{experiment}", "--inline", "--json", cwd=root)
    assert ended.code == 0, ended.out + ended.err
    return ended.values[-1]


def shown(orchestrate: Orchestrate, report: dict[str, Any], arm: str, case: str) -> dict[str, Any]:
    return orchestrate("show", report["run"]["id"], case, "--arm", arm, "--json").values[0]


def outcomes(case: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["outcome"]["result"] for each in case["attempt"]["assertions"]}


def test_the_weather_query_and_both_rows_pass(orchestrate: Orchestrate, root: Path) -> None:
    report = submitted(orchestrate, root, "experiment.yaml")
    assert (report["accepted"], report["planned"], report["totals"]["passed"]) == (True, 3, 3)
    for name in ("weather/brooklyn", "sql/0000", "sql/0001"):
        assert shown(orchestrate, report, "local", name)["case"]["status"] == "passed"


def test_unseen_tools_form_no_verdict_and_the_repaired_mapping_does(orchestrate: Orchestrate, root: Path) -> None:
    report = submitted(orchestrate, root, "coverage.yaml")
    unseen = shown(orchestrate, report, "final-events", "refund")
    assert (unseen["case"]["status"], unseen["case"]["kind"]) == ("errored", "adapter")
    assert UNSEEN in unseen["case"]["message"]
    assert outcomes(unseen) == {
        "succeeded": "matched",
        "called_tool": "unavailable",
        "not_called_tool": "unavailable",
        "check": "matched",
        "max_tokens": "unavailable",
    }
    repaired = shown(orchestrate, report, "with-log", "refund")
    assert repaired["case"]["status"] == "passed"
    assert outcomes(repaired) == outcomes(unseen) | {"called_tool": "matched", "not_called_tool": "matched"}
