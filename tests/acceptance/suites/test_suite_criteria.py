"""What a suite asks of all its cases: known when the run has ended, in the report, and part of its acceptance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evalfleet.reports.document_import import import_report
from tests.acceptance.cli.conftest import Orchestrate

AGENT = """
from evalfleet import COMPLETE_COVERAGE, Turn, Usage, agent

@agent(coverage=COMPLETE_COVERAGE)
async def echo(turn, ctx):
    return Turn(reply=turn.text, observation={"id": turn.text}, usage=Usage(input_tokens=1, output_tokens=1))
"""

EVALUATORS = """
from evalfleet import evaluator

@evaluator("distinct-ids")
def distinct(context, parameters):
    found = [case["turns"][0]["observation"]["id"] for case in context.cases if case["turns"]]
    return {"passed": len(set(found)) == len(found), "evidence": {"ids": found}}

@evaluator("breaks")
def breaks(context, parameters):
    raise RuntimeError("a private text")
"""

SUITE = """
schemaVersion: 1
id: shop
name: Shop
scenarios:
  - id: one
    name: One
    writePolicy: read_only
    steps: [{id: a, input: {text: x}}]
  - id: two
    name: Two
    writePolicy: read_only
    steps: [{id: a, input: {text: SECOND}, assertions: [{id: ok, kind: check, path: [id], operator: exists}]}]
assertions:
"""

CUSTOM = "  - {id: ids, kind: custom, evaluator: distinct-ids, parameters: {}}\n"
PASSED = "  - {id: all, kind: check, path: [summary, passed], operator: equals, value: 2}\n"
BROKEN = "  - {id: odd, kind: custom, evaluator: breaks, parameters: {}}\n"


def submitted(orchestrate: Orchestrate, folder: Path, criteria: str, second: str = "y") -> dict[str, Any]:
    (folder / "evals").mkdir()
    (folder / "evals" / "shop.suite.yaml").write_text(SUITE.replace("SECOND", second) + criteria)
    (folder / "evals" / "evaluators.py").write_text(EVALUATORS)
    (folder / "echo.py").write_text(AGENT)
    experiment = "schema_version: 1\nname: shop\narms:\n  mine: {adapter: python, entry: 'echo:echo'}\n"
    (folder / "experiment.yaml").write_text(experiment)
    ended = orchestrate("submit", "experiment.yaml", "--inline", "--json", cwd=folder)
    report = orchestrate("report", ended.values[-1]["run"]["id"], "--format", "json", cwd=folder)
    return {
        "code": ended.code,
        "summary": ended.values[-1],
        "document": report.values[0],
        "said": ended.out + ended.err,
    }


@pytest.mark.parametrize(
    ("criteria", "second", "code", "reason"),
    [
        (PASSED + CUSTOM, "y", 0, None),
        (PASSED + CUSTOM, "x", 1, "arm mine: suite shop: ids does not hold"),
        (PASSED.replace("2}", "3}"), "y", 1, "arm mine: suite shop: all does not hold"),
        (BROKEN, "y", 5, "arm mine: suite shop: odd can't be judged (EVALUATOR_FAILED)"),
    ],
)
def test_the_criteria_of_a_suite_decide_beside_its_cases(
    orchestrate: Orchestrate, tmp_path: Path, criteria: str, second: str, code: int, reason: str | None
) -> None:
    found = submitted(orchestrate, tmp_path, criteria, second)
    assert found["code"] == code, found["said"]
    assert found["summary"]["reasons"] == ([] if reason is None else [reason])
    results = {each["id"]: each for each in found["document"]["assertions"]}
    assert list(results) == [part.split(",")[0] for part in criteria.split("{id: ")[1:]]
    assert found["document"]["summary"]["passed"] == 2, "no case is changed by them"
    read = import_report(found["document"], "report.json")
    assert read.documents["mine"]["assertions"] == found["document"]["assertions"]
    if "ids" in results:
        assert sorted(results["ids"]["evidence"]["ids"]) == ["x", second]
    assert "a private text" not in found["said"] + repr(found["document"])
