"""The shipped suite: what passes, fails, is left out and blocked is exactly what its document says."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.acceptance.cli.conftest import Orchestrate

SHIPPED = Path(__file__).parents[3] / "evals" / "suite"


def test_the_shipped_suite_ends_as_its_clerk_deserves(orchestrate: Orchestrate, tmp_path: Path) -> None:
    project = shutil.copytree(SHIPPED, tmp_path / "suite", ignore=shutil.ignore_patterns("__pycache__"))
    listed = orchestrate("list", "--project", str(project), "--lint", "--json")
    assert [value["variants"] for value in listed.values] == [3, 1, 1, 1]
    ended = orchestrate("submit", str(project / "experiment.yaml"), "--inline", "--json")
    assert ended.code == 0, ended.err
    run = ended.values[-1]["run"]["id"]
    cases = [value for value in orchestrate("show", run, "--json").values if "case" in value]
    found = {(case["eval"], *case["variants"].values(), case["repetition"]): case["status"] for case in cases}
    expected = {
        ("checkout/choose-and-pay", "by-place"): "passed",
        ("checkout/choose-and-pay", "by-name"): "passed",
        ("checkout/choose-and-pay", "vaguely"): "failed",
        ("checkout/sold-out",): "passed",
        ("checkout/refund",): "blocked",
        ("checkout/gift-card",): "skipped",
    }
    assert found == {(*key, n): status for key, status in expected.items() for n in range(2)}


def test_one_scenario_edited_is_one_scenario_run_again(orchestrate: Orchestrate, tmp_path: Path) -> None:
    project = shutil.copytree(SHIPPED, tmp_path / "suite", ignore=shutil.ignore_patterns("__pycache__"))
    experiment, suite = project / "experiment.yaml", project / "evals" / "checkout.suite.yaml"
    assert orchestrate("submit", str(experiment), "--inline").code == 0
    text = suite.read_text("utf-8")
    suite.write_text(text.replace("name: Ask for what is sold out", "name: Renamed").replace("smoke", "quick"))
    planned = orchestrate("plan", str(experiment), "--reuse", "--json").values[-1]
    assert planned["arms"][0]["carry"] == 8, "neither a name nor a tag shapes an attempt"
    suite.write_text(suite.read_text("utf-8").replace("value: sold out", "value: sold"))
    planned = orchestrate("plan", str(experiment), "--reuse", "--json").values[-1]
    assert (planned["arms"][0]["carry"], planned["arms"][0]["run"]) == (6, 2)
    assert any("changed" in reason["reason"] and "source" in reason["reason"] for reason in planned["reasons"])
