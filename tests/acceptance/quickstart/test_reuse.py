"""What `plan --reuse` carries, what it runs again, and why: identity comes from content, never from position."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from evalfleet.testing.http_endpoint import HttpEndpoint, Request, json_reply

if TYPE_CHECKING:
    from tests.acceptance.cli.conftest import Ended, Orchestrate

FILES = {
    "evals/echo.eval.py": """
from evalfleet import Dataset, define_eval, includes

@define_eval(dataset=Dataset.jsonl("rows.jsonl", id="name"))
async def echo(t, row):
    t.check((await t.send(row["says"])).reply, includes(row["says"]))
""",
    "evals/rows.jsonl": "".join(json.dumps({"name": f"r{n}", "says": f"hello {n}"}) + "\n" for n in range(5)),
    "evals/greeting.eval.py": """
from evalfleet import define_eval

@define_eval
async def greeting(t):
    (await t.send("hello")).succeeded()
""",
    "own_agent.py": """
from evalfleet import COMPLETE_COVERAGE, Turn, agent
from wording import polite

@agent(coverage=COMPLETE_COVERAGE)
async def repeat(turn, ctx):
    return Turn(reply=polite(turn.text))
""",
    "wording.py": "def polite(text):\n    return text + ', please'\n",
}
EXPERIMENT = """
schema_version: 1
name: reuse
repetitions: 3
arms:
  own: {adapter: python, entry: "own_agent:repeat"}
  parrot: {adapter: scripted}
  remote: {adapter: http, url: "URL"}
"""
ARMS, REPETITIONS, ROWS, EVALS = ("own", "parrot", "remote"), 3, 5, 6
PER_ARM = EVALS * REPETITIONS


@pytest.fixture(scope="module")
def settled(orchestrate: Orchestrate, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A project whose every case has passed, on each of its arms, and the run in which they did."""
    project = tmp_path_factory.mktemp("project")
    (project / "evals").mkdir()
    for name, text in FILES.items():
        (project / name).write_text(text, encoding="utf-8")

    async def submitted() -> Ended:
        async with HttpEndpoint(echoed) as endpoint:
            (project / "experiment.yaml").write_text(EXPERIMENT.replace("URL", endpoint.url), encoding="utf-8")
            return await asyncio.to_thread(orchestrate, "submit", "experiment.yaml", "--inline", "--json", cwd=project)

    ended = asyncio.run(submitted())
    assert ended.code == 0, ended.out + ended.err
    return project, ended.values[-1]["run"]["id"]


def echoed(request: Request) -> Any:
    return json_reply({"reply": request.json["text"]})


@pytest.fixture
def project(settled: tuple[Path, str]) -> Iterator[Path]:
    """The settled project, for one test to edit."""
    folder, _ = settled
    yield folder
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")


@pytest.fixture
def run(settled: tuple[Path, str]) -> str:
    return settled[1]


def planned(orchestrate: Orchestrate, project: Path) -> list[dict[str, Any]]:
    """Every case of `plan --reuse`."""
    ended = orchestrate("plan", "experiment.yaml", "--reuse", "--cases", "--json", cwd=project)
    assert ended.code == 0, ended.err
    assert len(ended.values) == len(ARMS) * PER_ARM
    return ended.values


def rerun(cases: list[dict[str, Any]]) -> Counter[tuple[str, str]]:
    """How many cases of each arm run again, and what changed; without the arm that is never carried."""
    return Counter(
        (case["arm"], ",".join(case["changed"]))
        for case in cases
        if case["action"] == "run" and case["arm"] != "remote"
    )


def test_nothing_changed_and_everything_is_carried(orchestrate: Orchestrate, project: Path, run: str) -> None:
    cases = planned(orchestrate, project)
    assert rerun(cases) == {}
    assert {case["reason"] for case in cases if case["action"] == "carry"} == {f"passed in run {run}"}


def test_an_agent_that_nothing_identifies_is_never_carried(orchestrate: Orchestrate, project: Path) -> None:
    cases = [case for case in planned(orchestrate, project) if case["arm"] == "remote"]
    assert {case["action"] for case in cases} == {"run"}
    (reason,) = {case["reason"] for case in cases}
    assert reason.startswith("the arm's agent can't be fingerprinted: ")
    assert "target.fingerprint" in reason


def test_one_row_changed_is_one_case_for_each_arm_and_repetition(orchestrate: Orchestrate, project: Path) -> None:
    rows = project / "evals/rows.jsonl"
    rows.write_text(rows.read_text().replace("hello 3", "good morning"), encoding="utf-8")
    cases = planned(orchestrate, project)
    assert rerun(cases) == {("own", "row"): REPETITIONS, ("parrot", "row"): REPETITIONS}
    assert {case["eval"] for case in cases if case["action"] == "run" and case["arm"] != "remote"} == {"echo/r3"}


def test_a_shuffled_dataset_is_the_same_dataset(orchestrate: Orchestrate, project: Path) -> None:
    rows = project / "evals/rows.jsonl"
    rows.write_text("".join(reversed(rows.read_text().splitlines(keepends=True))), encoding="utf-8")
    assert rerun(planned(orchestrate, project)) == {}


def test_a_row_put_in_front_is_the_only_new_case(orchestrate: Orchestrate, project: Path) -> None:
    rows = project / "evals/rows.jsonl"
    rows.write_text('{"name": "first", "says": "hi"}\n' + rows.read_text(), encoding="utf-8")
    ended = orchestrate("plan", "experiment.yaml", "--reuse", "--cases", "--json", cwd=project)
    new = [case for case in ended.values if case["action"] == "run" and case["arm"] != "remote"]
    assert Counter((case["arm"], case["eval"]) for case in new) == {
        ("own", "echo/first"): REPETITIONS,
        ("parrot", "echo/first"): REPETITIONS,
    }
    assert {case["reason"] for case in new} == {"never settled before"}


@pytest.mark.parametrize("file", ["own_agent.py", "wording.py"])
def test_an_edited_agent_runs_its_whole_arm_again_and_no_other(
    orchestrate: Orchestrate, project: Path, run: str, file: str
) -> None:
    (project / file).write_text(FILES[file] + "\nEDITED = True\n", encoding="utf-8")
    cases = planned(orchestrate, project)
    assert rerun(cases) == {("own", "agent"): PER_ARM}
    reasons = {case["reason"] for case in cases if case["arm"] == "own"}
    assert reasons == {f"changed since run {run}: agent"}


def test_an_edited_eval_runs_its_own_cases_again(orchestrate: Orchestrate, project: Path) -> None:
    file = project / "evals/greeting.eval.py"
    file.write_text(file.read_text() + "\n# another thought\n", encoding="utf-8")
    assert rerun(planned(orchestrate, project)) == {("own", "source"): REPETITIONS, ("parrot", "source"): REPETITIONS}


def test_people_read_the_same_reasons_in_short(orchestrate: Orchestrate, project: Path, run: str) -> None:
    (project / "wording.py").write_text(FILES["wording.py"] + "\n", encoding="utf-8")
    ended = orchestrate("plan", "experiment.yaml", "--reuse", cwd=project)
    lines = ended.out.splitlines()
    assert lines[0] == "reuse · 54 cases = 6 evals × 3 arms × 3 repetitions · pass-style"
    assert f"own: run {PER_ARM}: changed since run {run}: agent" in lines
    assert f"parrot: carry {PER_ARM}: passed in run {run}" in lines


def test_what_is_carried_is_not_called_again_and_counts(orchestrate: Orchestrate, project: Path, run: str) -> None:
    ended = orchestrate("submit", "experiment.yaml", "--arm", "own", "--reuse", "--inline", "--json", cwd=project)
    assert ended.code == 0, ended.err
    (arm,) = ended.values[-1]["arms"]
    assert (arm["classes"]["passed"], arm["carried"], arm["attempts"]) == (PER_ARM, PER_ARM, 0)
    shown = orchestrate("show", ended.values[-1]["run"]["id"], "0", "--json").values[0]
    assert shown["case"]["carried_from"]["run"] == run
    assert shown["attempt"]["turns"], "the evidence of a carried case is that of the attempt it came from"
