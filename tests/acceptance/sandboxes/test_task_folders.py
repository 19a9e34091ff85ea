"""Task folders in Harbor's format, from the list to the verdict, in sandboxes that need no image."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.codes.bodies import cases_of, shown, submit
from tests.acceptance.sandboxes.other_backends import AGENT

if TYPE_CHECKING:
    from tests.acceptance.cli.conftest import Orchestrate

FOLDERS = Path(__file__).parents[2] / "data" / "harbor"
ARMS = {"mine": {"adapter": "python", "entry": "my_agents:worker"}}

#: How each folder settles where its verdict is in a fresh place, which an agent can't write to beforehand.
ENDS = {
    "pass": ("passed", None, None),
    "fail": ("failed", None, None),
    "tampered": ("failed", None, None),
    "timeout": ("errored", "grader", "VERIFIER_TIMEOUT"),
    "missing": ("errored", "grader", "REWARD_MISSING"),
    "multi_step": ("passed", None, None),
}


def project(folder: Path) -> Path:
    """A project of all task folders, and an agent that does what it is told to the letter."""
    shutil.copytree(FOLDERS, folder / "evals" / "harbor")
    (folder / "my_agents.py").write_text(AGENT)
    return folder


def without_images(folder: Path) -> Path:
    """The same folders for a sandbox without an image, whose root is not theirs to write to."""
    for task in (folder / "evals" / "harbor").iterdir():
        shutil.rmtree(task / "environment")
        script = task / "tests" / "test.sh"
        script.write_text(script.read_text().replace("/logs/verifier", "$EVALFLEET_VERDICT"))
    return folder


def ends(cases: dict[str, Any]) -> dict[str, tuple[str, str | None, str | None]]:
    return {Path(name).name: (case["status"], case["kind"], case["code"]) for name, case in cases.items()}


def test_they_are_listed_like_any_eval(orchestrate: Orchestrate, tmp_path: Path) -> None:
    listed = {value["eval"]: value for value in orchestrate("list", "--json", cwd=project(tmp_path)).values}
    assert sorted(listed) == sorted(f"harbor/{name}" for name in ENDS)
    assert listed["harbor/multi_step"]["description"] == "Writes a line, and then another one below it."
    assert (listed["harbor/pass"]["file"], listed["harbor/pass"]["tags"]) == ("evals/harbor/pass/task.toml", ["harbor"])


def test_what_a_folder_asks_for_in_vain_is_said(orchestrate: Orchestrate, tmp_path: Path) -> None:
    toml = project(tmp_path) / "evals" / "harbor" / "pass" / "task.toml"
    toml.write_text('artifacts = ["/app"]\n[agent]\nmood = "good"\n')
    ended = orchestrate("list", "harbor/pass", "--lint", cwd=tmp_path)
    assert ended.code == 0
    assert f"{toml}: agent.mood: this setting of a task has no effect here [TASK_SETTING_IGNORED]" in ended.out
    assert f"{toml}: artifacts: this setting of a task has no effect here [TASK_SETTING_IGNORED]" in ended.out


@pytest.mark.parametrize(
    ("toml", "code", "says"),
    [
        ("[environment]\ngpus = 1\n", "TASK_NOT_SUPPORTED", "environment.gpus: sandboxes have no accelerators"),
        ("[agent]\ntimeout_sec = 'x'\n", "INVALID_TASK", "agent.timeout_sec: Input should be a valid number"),
    ],
)
def test_a_folder_that_can_t_be_run_is_refused_in_a_line(
    orchestrate: Orchestrate, tmp_path: Path, toml: str, code: str, says: str
) -> None:
    (project(tmp_path) / "evals" / "harbor" / "pass" / "task.toml").write_text(toml)
    ended = orchestrate("list", cwd=tmp_path)
    assert ended.code == 2
    (line,) = ended.err.splitlines()
    assert says in line and f"[{code}]" in line


def test_a_backend_without_images_refuses_a_folder_with_one_when_it_is_planned(
    orchestrate: Orchestrate, tmp_path: Path
) -> None:
    experiment = {"schema_version": 1, "name": "n", "arms": ARMS, "sandbox": {"backend": "bubblewrap"}}
    (project(tmp_path) / "experiment.yaml").write_text(json.dumps(experiment))
    ended = orchestrate("plan", "experiment.yaml", "harbor/pass", cwd=tmp_path)
    assert ended.code == 2
    assert "has no images" in ended.err and "such as 'container'" in ended.err


def test_they_settle_as_they_should(orchestrate: Orchestrate, tmp_path: Path) -> None:
    folder = without_images(project(tmp_path))
    ended = submit(orchestrate, folder, {"arms": ARMS, "sandbox": {"backend": "bubblewrap"}})
    cases = cases_of(orchestrate, ended)
    assert ends(cases) == ENDS
    rows = shown(orchestrate, cases["harbor/multi_step"])["attempt"]["assertions"]
    measured = {row["label"]: row["outcome"]["measurement"] for row in rows}
    assert measured == {
        "reward of first": 1.0, "lines of first": 1.0, "first reaches its min_reward": None,
        "reward of second": 1.0, "lines of second": 1.0, "reward": 1.0,
    }  # fmt: skip


def test_what_is_judged_by_is_part_of_what_may_be_reused(orchestrate: Orchestrate, tmp_path: Path) -> None:
    folder = without_images(project(tmp_path))
    experiment = {"arms": ARMS, "sandbox": {"backend": "bubblewrap"}, "reuse": "settled"}
    submit(orchestrate, folder, experiment, "harbor/pass", "harbor/fail", "harbor/multi_step")
    (folder / "evals/harbor/fail/tests/expected.txt").write_text("41\n")
    (folder / "evals/harbor/multi_step/steps/first/instruction.md").write_text("echo one | cat > lines.txt\n")
    again = submit(orchestrate, folder, experiment, "harbor/pass", "harbor/fail", "harbor/multi_step")
    settled = {name: (case["status"], case["settlement"]) for name, case in cases_of(orchestrate, again).items()}
    assert settled == {
        "harbor/pass": ("passed", "carried"), "harbor/fail": ("passed", "attempt"),
        "harbor/multi_step": ("passed", "attempt"),
    }  # fmt: skip


def test_a_verification_that_broke_is_made_good_without_the_agent(orchestrate: Orchestrate, tmp_path: Path) -> None:
    folder = without_images(project(tmp_path))
    experiment = {"arms": ARMS, "sandbox": {"backend": "bubblewrap"}}
    ended = submit(orchestrate, folder, experiment, "harbor/missing", "harbor/timeout")
    assert ended.code == 1
    good = (folder / "evals/harbor/pass/tests/test.sh").read_text()
    for name in ("missing", "timeout"):
        (folder / "evals/harbor" / name / "tests/test.sh").write_text(good)
    (folder / "my_agents.py").write_text("raise SystemExit('nobody asks the agent')")
    run = ended.values[-1]["run"]["id"]
    said = orchestrate("rescore", run, "--only-unavailable", "--json", cwd=folder)
    assert said.code == 0, said.out + said.err
    cases = cases_of(orchestrate, ended)
    assert set(ends(cases).values()) == {("passed", None, None)}
    text = orchestrate("show", run, str(cases["harbor/timeout"]["case"]), cwd=folder).out
    assert "attachment kept-workdir" in text
