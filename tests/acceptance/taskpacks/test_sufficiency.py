"""The shipped pack end to end: four agents whose results are known, grader by grader and case by case."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.acceptance.cli.conftest import Orchestrate

PACK = Path("evals/sufficiency")
ARMS = ("careful", "hasty", "idle", "eager")

RUN = """
import json, evalfleet
with evalfleet.run_sync("evals/sufficiency/experiment.yaml") as run:
    for case in run.cases(evidence=True):
        rows = {row.key: row.outcome.result.value for row in case.assertions}
        facts = {"id": case.eval_id, "arm": case.arm, "ordinal": case.view.ordinal, "run": run.id}
        print(json.dumps({**facts, "rows": rows, **case.detail.attachments}))
"""

PASS, FAIL, NONE = "matched", "mismatched", None

#: What each agent gets of decision, gap, request and state, by profile; in several turns for each decision point.
EXPECTED: dict[str, dict[str, tuple[str | None, ...]]] = {
    "careful": {
        "single-gap": (PASS, PASS, PASS, PASS),
        "multi-gap": (PASS, PASS, PASS, PASS),
        "contradictory": (PASS, PASS, PASS, PASS),
        "expired": (PASS, PASS, PASS, PASS),
        "already-answered": (PASS, PASS, NONE, PASS),
        "multi-turn": (PASS, PASS, PASS, PASS, PASS, PASS, PASS, PASS, NONE, PASS),
    },
    "hasty": {
        "single-gap": (PASS, PASS, FAIL, FAIL),
        "multi-gap": (PASS, PASS, FAIL, FAIL),
        "contradictory": (FAIL, FAIL, FAIL, FAIL),
        "expired": (FAIL, FAIL, FAIL, FAIL),
        "already-answered": (FAIL, FAIL, NONE, FAIL),
        "multi-turn": (PASS, PASS, FAIL, PASS, PASS, FAIL, PASS, PASS, NONE, FAIL),
    },
    "idle": {
        "single-gap": (FAIL, FAIL, FAIL, FAIL),
        "multi-gap": (FAIL, FAIL, FAIL, FAIL),
        "contradictory": (FAIL, FAIL, FAIL, FAIL),
        "expired": (FAIL, FAIL, FAIL, FAIL),
        "already-answered": (FAIL, PASS, NONE, FAIL),
        "multi-turn": (FAIL, FAIL, FAIL, FAIL, FAIL, FAIL, FAIL, PASS, NONE, FAIL),
    },
    "eager": {
        "single-gap": (PASS, FAIL, PASS, FAIL),
        "multi-gap": (PASS, FAIL, PASS, FAIL),
        "contradictory": (PASS, FAIL, PASS, FAIL),
        "expired": (PASS, FAIL, PASS, FAIL),
        "already-answered": (FAIL, FAIL, NONE, FAIL),
        "multi-turn": (PASS, FAIL, PASS, PASS, FAIL, PASS, FAIL, FAIL, NONE, FAIL),
    },
}


def keys(profile: str) -> list[str]:
    points = ("@1", "@2", "") if profile == "multi-turn" else ("",)
    return [*(f"{grader}{at}" for at in points for grader in ("decision", "gap", "request")), "state"]


@pytest.fixture(scope="module")
def rows(root: Path) -> dict[str, dict[str, Any]]:
    """The assignments by id."""
    lines = (root / PACK / "evals/data/loans.jsonl").read_text("utf-8").splitlines()
    return {row["id"]: row for row in map(json.loads, lines)}


@pytest.fixture(scope="module")
def found(orchestrate: Orchestrate, root: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """What all agents got, by arm and assignment."""
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUN],
        cwd=root,
        env=orchestrate.environment,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    cases = [json.loads(line) for line in ended.stdout.splitlines()]
    return {(case["arm"], case["id"].rpartition("/")[2]): case for case in cases}


def test_the_rows_are_what_the_generator_makes_of_its_seed(root: Path, tmp_path: Path) -> None:
    made = tmp_path / "loans.jsonl"
    generator = root / PACK / "loan_generator.py"
    subprocess.run([sys.executable, generator, made], check=True, cwd=tmp_path)
    assert made.read_bytes() == (root / PACK / "evals/data/loans.jsonl").read_bytes()


def test_there_are_four_rows_of_each_of_six_profiles(rows: dict[str, dict[str, Any]]) -> None:
    profiles = [row["profile"] for row in rows.values()]
    assert {name: profiles.count(name) for name in EXPECTED["careful"]} == dict.fromkeys(EXPECTED["careful"], 4)
    assert len(profiles) == 24


@pytest.mark.parametrize("arm", ARMS)
def test_every_agent_gets_exactly_what_it_deserves(arm: str, rows: Any, found: Any) -> None:
    for name, row in rows.items():
        profile = row["profile"]
        pairs = zip(keys(profile), EXPECTED[arm][profile], strict=True)
        wanted = {key: result for key, result in pairs if result is not None}
        assert found[arm, name]["rows"] == wanted, f"{arm} {name} ({profile})"


def test_a_wrong_decision_hides_no_other_grader(rows: Any, found: Any) -> None:
    for name, row in rows.items():
        results = {(each["grader"], each["at"]): each["status"] for each in found["idle", name]["graders"]}
        assert {status for (grader, _), status in results.items() if grader == "decision"} == {"fail"}
        assert len(results) == 3 * len(row["gold"])


def test_an_edited_document_is_flagged_with_its_path_before_and_after(rows: Any, found: Any) -> None:
    for name, row in rows.items():
        if row["profile"] == "multi-turn":
            continue
        state = found["hasty", name]["taskpack"]["state"]
        first = row["snapshot"]["documents"][0]
        assert state["unexpected"] == [
            {
                "path": f"documents/{first['id']}",
                "operation": "updated",
                "actors": ["agent"],
                "fields": [{"field": "title", "before": first["title"], "after": first["title"].upper()}],
            }
        ]
        assert len(found["eager", name]["taskpack"]["state"]["unexpected"]) == len(row["snapshot"]["documents"]) + 1


def test_what_the_responder_brought_is_not_held_against_the_agent(rows: Any, found: Any) -> None:
    for name, row in rows.items():
        if row["profile"] == "multi-turn":
            state = found["careful", name]["taskpack"]["state"]
            brought = [each["path"] for each in state["ignored"] if each["actors"] == ["responder"]]
            supplied = [each["writes"][0]["record"]["id"] for each in row["script"] if "writes" in each]
            assert brought == [f"documents/{number}" for number in sorted(supplied)]
            assert [each["path"].partition("/")[0] for each in state["expected"]] == ["files", "messages", "messages"]


def test_no_agent_could_read_what_is_right(found: Any) -> None:
    for (arm, name), case in found.items():
        seen = json.dumps([case["taskpack"]["results"], case["taskpack"]["points"]])
        assert "unmet" not in seen and "gold" not in seen, f"{arm} {name}"


def test_attempts_of_one_snapshot_start_from_the_same_state(found: Any) -> None:
    for name in {name for _, name in found}:
        starts = {json.dumps(found[arm, name]["taskpack"]["manifest"]["snapshot_id"]) for arm in ARMS}
        assert len(starts) == 1


def test_the_recorded_evidence_is_graded_again_without_an_agent(
    orchestrate: Orchestrate, root: Path, found: Any
) -> None:
    case = next(iter(found.values()))
    again = orchestrate("rescore", case["run"], "--json", cwd=root / PACK)
    assert again.code == 0, again.err
    (rescored,) = again.values
    assert (rescored["bases"], rescored["changed"], rescored["diverged"]) == ({"replayed": 96}, [], 0)


def test_the_shipped_pack_has_no_fault(orchestrate: Orchestrate, root: Path) -> None:
    ended = orchestrate("pack", "lint", cwd=root / PACK)
    assert (ended.code, ended.out, ended.err) == (0, "", "1 pack, 24 assignments, 0 faults\n")


def test_a_row_that_nobody_can_get_right_is_told(orchestrate: Orchestrate, root: Path, tmp_path: Path) -> None:
    shutil.copytree(root / PACK, tmp_path / "pack", ignore=shutil.ignore_patterns("__pycache__"))
    file = tmp_path / "pack/evals/data/loans.jsonl"
    first, *rest = file.read_text("utf-8").splitlines()
    row = {**json.loads(first), "gold": [{"decision": "decline"}]}
    file.write_text("\n".join([json.dumps(row), *rest]) + "\n", "utf-8")
    ended = orchestrate("pack", "lint", cwd=tmp_path / "pack")
    wanted = "loans: f-001: gold decides 'decline', which nobody can [unknown-decision]\n"
    assert (ended.code, ended.out, ended.err) == (1, wanted, "1 pack, 24 assignments, 1 fault\n")


def test_rows_and_tools_written_with_carriage_returns_are_the_same(
    orchestrate: Orchestrate, root: Path, tmp_path: Path, found: Any
) -> None:
    project = tmp_path / "pack"
    shutil.copytree(root / PACK, project, ignore=shutil.ignore_patterns("__pycache__"))
    for file in (project / "evals/data/loans.jsonl", project / "evals/loan_tools.py", project / "evals/loans.eval.py"):
        file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    assert orchestrate("pack", "lint", cwd=project).err == "1 pack, 24 assignments, 0 faults\n"
    tried = orchestrate("try", "experiment.yaml", "loans/f-021", "--arm", "careful", "--json", cwd=project)
    (shown,) = orchestrate("show", tried.values[-1]["run"]["id"], "0", "--json").values
    evidence = shown["attempt"]["attachments"]["taskpack"]
    assert evidence["manifest"] == found["careful", "f-021"]["taskpack"]["manifest"]
    assert evidence["state"]["clean"]


def test_a_project_without_a_pack_says_so(orchestrate: Orchestrate, root: Path) -> None:
    ended = orchestrate("pack", "lint", cwd=root / "evals/quickstart")
    assert (ended.code, "is made by a TaskPack" in ended.err) == (2, True)


def test_recorded_writes_lead_where_they_led(orchestrate: Orchestrate, root: Path, found: Any) -> None:
    run = next(iter(found.values()))["run"]
    ended = orchestrate("pack", "replay", run, "loans/f-02", cwd=root / PACK)
    assert (ended.code, ended.out, ended.err) == (0, "", "20 attempts repeated, 0 diverged\n")


def test_a_replay_by_tools_that_changed_names_case_and_step(
    orchestrate: Orchestrate, root: Path, tmp_path: Path
) -> None:
    project = tmp_path / "pack"
    shutil.copytree(root / PACK, project, ignore=shutil.ignore_patterns("__pycache__"))
    tried = orchestrate("try", "experiment.yaml", "loans/f-001", "--arm", "careful", "--json", cwd=project)
    run = tried.values[-1]["run"]["id"]
    tools = project / "evals/loan_tools.py"
    tools.write_text(tools.read_text("utf-8").replace('"waiting"', '"on hold"'), "utf-8")
    ended = orchestrate("pack", "replay", run, cwd=project)
    assert ended.code == 1
    assert ended.out.startswith("case 0 careful/loans/f-001: REPLAY_DIVERGED at step ")
    assert "(request_items): it left the state" in ended.out


def test_the_rates_of_each_agent_say_in_which_way_it_is_wrong(orchestrate: Orchestrate, root: Path, found: Any) -> None:
    run = next(iter(found.values()))["run"]
    ended = orchestrate("pack", "report", run, "--json", cwd=root / PACK)
    rates = {each["arm"]: each for each in ended.values}
    assert (ended.code, set(rates), {each["pack"] for each in ended.values}) == (0, set(ARMS), {"loans"})
    value = {arm: {name: each["value"] for name, each in rates[arm]["rates"].items()} for arm in ARMS}
    assert set(value["careful"].values()) == {0.0} and set(rates["careful"]["reliability"].values()) == {1.0}
    assert (value["idle"]["undecided"], value["idle"]["missed_gap"]) == (1.0, 1.0)
    assert value["hasty"]["unexpected_change"] > 0 and value["hasty"]["reason_missing"] == 1.0
    assert value["eager"]["false_insufficient"] == 1.0 and value["eager"]["over_asking"] > 0


def test_a_pack_runs_without_an_experiment_file(orchestrate: Orchestrate, root: Path, tmp_path: Path) -> None:
    project = tmp_path / "pack"
    shutil.copytree(root / PACK, project, ignore=shutil.ignore_patterns("__pycache__", "experiment.yaml"))
    ended = orchestrate("pack", "run", "loans/f-001", "--agent", "loan_agents:careful", "--json", cwd=project)
    assert ended.code == 0, ended.err
    summary, rates = ended.values
    assert (summary["run"]["status"], rates["arm"], rates["attempts"], rates["graded"]) == ("completed", "agent", 1, 1)
    arm = json.dumps({"adapter": "python", "entry": "loan_agents:idle"})
    ended = orchestrate("pack", "run", "loans/f-001", "loans/f-002", "--agent", arm, "--repetitions", "2", cwd=project)
    assert "loans · arm agent · 4 attempts, 4 of them graded" in ended.out, ended.err
    assert "  decision pass^2         0.0 %\n" in ended.out
    run = ended.err.partition("run ")[2].split()[0]
    assert orchestrate("show", run, cwd=project).code == 0
    for agent, why in (("no_such:agent", "no_such"), ("{oops", "the agent is no JSON object")):
        refused = orchestrate("pack", "run", "loans/f-001", "--agent", agent, cwd=project)
        assert refused.code == 2 and why in refused.err, refused.err
    refused = orchestrate("pack", "run", "parcels", "--agent", "loan_agents:idle", cwd=project)
    assert (refused.code, "begins with 'parcels'; the packs are loans" in refused.err) == (2, True)
