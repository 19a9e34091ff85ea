"""The shipped example does what its documents say."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.acceptance.cli.conftest import Orchestrate

EXPERIMENT = "evals/quickstart/experiment.yaml"
#: Attempts that may be under way, or ended and not yet written, when the command is killed.
IN_FLIGHT = 64
BUG, FIX = "        return 12\n", "        return 12 * (NUMBERS.get(number) or int(number))\n"


class DyingOrchestrate(Orchestrate):
    """The command, killed right after it has written its third batch."""

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, "EVALFLEET_FAILPOINT": "after_commit:3"}


def happened(classes: dict[str, int]) -> dict[str, int]:
    """The classes that any case came to."""
    return {name: number for name, number in classes.items() if number}


@pytest.fixture(scope="module")
def report(orchestrate: Orchestrate, root: Path) -> dict[str, Any]:
    ended = orchestrate("submit", EXPERIMENT, "--inline", "--json", cwd=root)
    assert ended.code == 0, ended.out + ended.err
    return ended.values[-1]


def test_it_passes_some_fails_some_and_breaks_nowhere(report: dict[str, Any]) -> None:
    assert (report["accepted"], report["planned"]) == (True, 252)
    assert happened(report["totals"]) == {"passed": 217, "failed": 35}
    arms = {arm["arm"]: happened(arm["classes"]) for arm in report["arms"]}
    assert arms == {"careful": {"passed": 117, "failed": 9}, "hasty": {"passed": 100, "failed": 26}}


def test_a_failing_case_says_what_was_expected_and_what_came(orchestrate: Orchestrate, report: dict[str, Any]) -> None:
    run = report["run"]["id"]
    ambiguous = orchestrate("show", run, "baskets/two-dozen-mugs", "--arm", "careful")
    assert (ambiguous.code, ambiguous.out) == (2, "")
    assert "38 (careful baskets/two-dozen-mugs #1)" in ambiguous.err
    shown = orchestrate("show", run, "38")
    assert shown.code == 0, shown.err
    lines = [line.strip() for line in shown.out.splitlines()]
    assert "user      How much are two dozen mugs?" in lines
    assert 'tool      discount_for({"pieces": 12})' in lines
    assert any(line.startswith("✗ names the right total") for line in lines)
    assert 'expected includes "€276.48"' in lines
    assert 'actual   "That is €138.24."' in lines


def test_reports_come_out_and_parse(orchestrate: Orchestrate, report: dict[str, Any], tmp_path: Path) -> None:
    run = report["run"]["id"]
    ended = orchestrate("report", run, "--format", "md,junit", "-o", str(tmp_path))
    assert ended.code == 0, ended.err
    suites = ElementTree.parse(tmp_path / "junit.xml").getroot()
    counted = {
        suite.attrib["name"]: tuple(suite.attrib[name] for name in ("tests", "failures", "errors")) for suite in suites
    }
    assert counted == {"careful": ("126", "9", "0"), "hasty": ("126", "26", "0")}
    cases = list(suites.iter("testcase"))
    assert len({(case.attrib["classname"], case.attrib["name"]) for case in cases}) == 252
    failures = [failure for case in cases for failure in case.findall("failure")]
    assert len(failures) == 35
    assert all("names the right total" in (each.text or "") or "admits it" in (each.text or "") for each in failures)
    markdown = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "92.9 % (117/126)" in markdown
    assert markdown.count("\n- `baskets/") + markdown.count("\n- `unknown_order") == 30


def test_with_its_bug_fixed_the_careful_clerk_passes_everything(
    orchestrate: Orchestrate, root: Path, tmp_path: Path
) -> None:
    project = tmp_path / "quickstart"
    shutil.copytree(root / "evals/quickstart", project, ignore=shutil.ignore_patterns("__pycache__"))
    model = project / "shop_model.py"
    source = model.read_text(encoding="utf-8")
    assert source.count(BUG) == 1
    model.write_text(source.replace(BUG, FIX), encoding="utf-8")
    ended = orchestrate("submit", "experiment.yaml", "--arm", "careful", "--inline", "--json", cwd=project)
    assert ended.code == 0, ended.out + ended.err
    assert happened(ended.values[-1]["totals"]) == {"passed": 126}


def test_a_killed_run_goes_on_and_comes_to_the_same_numbers(orchestrate: Orchestrate, root: Path) -> None:
    dying = DyingOrchestrate(orchestrate.home, orchestrate.database_url)
    killed = dying("submit", EXPERIMENT, "--inline", cwd=root)
    assert killed.code == -signal.SIGKILL
    run = killed.err.splitlines()[0].removeprefix("run ")
    before = orchestrate("status", run, "--json").values[0]
    assert 0 < before["totals"]["passed"] < 217
    resumed = orchestrate("resume", run, "--inline", "--json", cwd=root)
    assert resumed.code == 0, resumed.out + resumed.err
    after = resumed.values[-1]
    assert happened(after["totals"]) == {"passed": 217, "failed": 35}
    # What was under way when it died is done again; what was settled is not.
    attempts = sum(arm["attempts"] for arm in after["arms"])
    assert 252 <= attempts <= 252 + IN_FLIGHT


@pytest.mark.ray
def test_the_documented_command_runs_it_on_ray_from_the_root(orchestrate: Orchestrate, root: Path) -> None:
    ended = orchestrate("submit", EXPERIMENT, "--workers", "1", "--json", cwd=root)
    assert ended.code == 0, ended.out + ended.err
    assert happened(ended.values[-1]["totals"]) == {"passed": 217, "failed": 35}
