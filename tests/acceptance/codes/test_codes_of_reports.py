"""The codes of a report that stand for several of ours: each triggered in a real run, and read from its report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from evalfleet.reports.document_checks import check_document
from tests.acceptance.codes.bodies import submit
from tests.acceptance.codes.other_package import with_other_package
from tests.unit.reports.documents import VALIDATOR

if TYPE_CHECKING:
    from tests.acceptance.cli.conftest import Orchestrate

EVAL = """
from evalfleet import define_eval

@define_eval(description="Says hello.")
async def says(t):
    (await t.send("hello")).succeeded()
"""

#: What an adapter does, the code of the case, and the statuses and codes of its turns.
ARMS: dict[str, tuple[str, list[tuple[str, str | None]]]] = {
    "EVALUATION_TRANSPORT_FAILED": ("raises", [("error", "EVALUATION_TRANSPORT_FAILED")]),
    "EVALUATION_SESSION_FAILED": ("does not open", []),
    "EVALUATION_TIMEOUT": ("hangs", [("error", "EVALUATION_TIMEOUT")]),
    "EVALUATION_OBSERVATION_INVALID": ("returns a number", [("error", "EVALUATION_OBSERVATION_INVALID")]),
    "EVALUATION_CLEANUP_FAILED": ("does not close", [("passed", None)]),
}


@pytest.fixture(scope="module")
def written(orchestrate: Orchestrate, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """The reports of one run by arm, as text and as values."""
    project: Path = tmp_path_factory.mktemp("project")
    (project / "evals").mkdir()
    (project / "evals" / "says.eval.py").write_text(EVAL)
    command = with_other_package(orchestrate, tmp_path_factory.mktemp("package"))
    arms = {code.lower(): {"adapter": "rude", "does": does} for code, (does, _) in ARMS.items()}
    ended = submit(command, project, {"arms": arms, "limits": {"turn_timeout": "500ms"}})
    reported = command("report", ended.values[-1]["run"]["id"], "--format", "json")
    return reported.out, reported.values[0]["arms"]


@pytest.mark.parametrize("code", ARMS)
def test_a_code_of_a_report(written: tuple[str, dict[str, Any]], code: str) -> None:
    report = written[1][code.lower()]
    VALIDATOR.validate(report)
    check_document(report, "report.json")
    (case,) = report["cases"]
    assert (case["status"], case["errorCode"]) == ("error", code)
    assert [(turn["status"], turn.get("errorCode")) for turn in case["turns"]] == ARMS[code][1]
    assert report["summary"]["error"] == report["summary"]["total"] == 1
    hidden = "passed" if code == "EVALUATION_CLEANUP_FAILED" else None
    assert case.get("outcomeBeforeCleanup") == hidden


def test_what_an_adapter_raised_is_in_no_report(written: tuple[str, dict[str, Any]]) -> None:
    assert "broken on order" not in written[0] and "ZeroDivisionError" not in written[0]
