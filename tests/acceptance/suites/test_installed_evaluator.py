"""An evaluator of an installed package is found by its entry point; one of the project by the same name is refused."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

from tests.acceptance.cli.conftest import Orchestrate

PACKAGE = """
from evalfleet import evaluator


@evaluator("says")
def says(context, parameters):
    return {"passed": parameters["word"] in context.observation["reply"], "evidence": {"by": "the package"}}
"""

PROJECT = PACKAGE.replace("the package", "the project")

SUITE = {
    "schemaVersion": 1,
    "id": "shop",
    "name": "Shop",
    "scenarios": [
        {
            "id": word,
            "name": word,
            "writePolicy": "read_only",
            "steps": [{"id": "a", "input": {"text": "a lamp"}}],
            "assertions": [{"id": "c", "kind": "custom", "evaluator": "says", "parameters": {"word": word}}],
        }
        for word in ("lamp", "desk")
    ],
}


def installed(orchestrate: Orchestrate, folder: Path) -> Orchestrate:
    """The command where a package with the evaluator `says` is installed."""
    described = folder / "says_package-1.0.dist-info"
    described.mkdir(parents=True)
    (folder / "says_package.py").write_text(PACKAGE)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: says-package\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text("[evalfleet.evaluators]\nsays = says_package:says\n")
    path = os.pathsep.join(filter(None, [str(folder), orchestrate.environment.get("PYTHONPATH")]))
    return dataclasses.replace(orchestrate, variables={"PYTHONPATH": path})


def test_an_evaluator_of_an_installed_package_judges(orchestrate: Orchestrate, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "evals").mkdir(parents=True)
    (project / "evals" / "shop.suite.json").write_text(json.dumps(SUITE))
    experiment = {"schema_version": 1, "name": "shop", "arms": {"parrot": {"adapter": "scripted"}}}
    (project / "experiment.yaml").write_text(json.dumps(experiment))
    submit = ("submit", "experiment.yaml", "--inline", "--json")
    without = orchestrate(*submit, cwd=project).values[0]["error"]
    assert {each["code"] for each in without["problems"]} == {"EVALUATOR_NOT_FOUND"}
    command = installed(orchestrate, tmp_path / "site")
    run = command(*submit, cwd=project).values[-1]["run"]["id"]
    (document,) = orchestrate("report", run, "--format", "json", cwd=project).values
    found = {case["scenarioId"]: (case["status"], case["assertions"][0]["evidence"]) for case in document["cases"]}
    assert found == {"lamp": ("passed", {"by": "the package"}), "desk": ("failed", {"by": "the package"})}
    (project / "evals" / "evaluators.py").write_text(PROJECT)
    twice = command(*submit, cwd=project).values[0]["error"]
    assert {each["code"] for each in twice["problems"]} == {"DUPLICATE_EVALUATOR"}
