"""What an experiment limits, measured inside the agents of runs in this process: lanes, retries, time, failures."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import evalfleet
from evalfleet.api.options import ResumeOptions
from evalfleet.api.starting import resume
from evalfleet.model.verdict import RunStatus

AGENT = """
import asyncio
import os
import time
from pathlib import Path

from evalfleet import COMPLETE_COVERAGE, Turn, agent, sandbox_agent
from evalfleet.errors import Acceptance, FailureKind, SendFailure

LOG = os.open(Path(__file__).with_name("log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
SENDS = {}


def note(what, arm, name):
    os.write(LOG, f"{time.monotonic():.6f} {what} {arm} {name}\\n".encode())


async def act(turn, ctx):
    name, seconds, kind, failures = turn.text.split()
    SENDS[name] = SENDS.get(name, 0) + 1
    note("+", ctx.arm, name)
    try:
        if kind == "blocks":
            time.sleep(float(seconds))
        await asyncio.sleep(float(seconds))
        if SENDS[name] <= int(failures):
            raise SendFailure("as told", kind=FailureKind(kind), code="AS_TOLD", acceptance=Acceptance.REJECTED)
    finally:
        note("-", ctx.arm, name)
    return Turn(reply=name)


told = agent(coverage=COMPLETE_COVERAGE)(act)
boxed = sandbox_agent(coverage=COMPLETE_COVERAGE)(act)
"""

EVAL = """
from evalfleet import Dataset, define_eval


@define_eval(dataset=Dataset.jsonl("rows.jsonl", id="name"))
async def told(t, row):
    turn = await t.send(f"{row['name']} {row['seconds']} {row['kind']} {row['failures']}")
    turn.succeeded()
"""


@dataclass(frozen=True)
class Mark:
    """A send of the agent began (+) or ended (-), on the monotonic clock."""

    at: float
    what: str
    arm: str
    name: str


class Project:
    """A folder with an agent that takes its time and fails as its case says."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Another project's agent of the same name would still be imported in this process.
        self._agent = f"told_{folder.parent.name}"
        (folder / "evals").mkdir()
        (folder / f"{self._agent}.py").write_text(AGENT)
        (folder / "evals" / "told.eval.py").write_text(EVAL)

    async def run(
        self, cases: Sequence[Mapping[str, Any]], *, arms: Sequence[str] = ("mine",), **experiment: Any
    ) -> evalfleet.Run:
        """Run over `cases`, each with what differs from a quick success."""
        plain = {"seconds": 0.0, "kind": "provider", "failures": 0}
        rows = [json.dumps(plain | {"name": f"c{number:02}"} | dict(case)) for number, case in enumerate(cases)]
        (self._folder / "evals" / "rows.jsonl").write_text("\n".join(rows) + "\n")
        entries = {arm: f"{self._agent}:{'boxed' if arm == 'boxed' else 'told'}" for arm in arms}
        described = {arm: {"adapter": "python", "entry": entry} for arm, entry in entries.items()}
        document = {"schema_version": 1, "name": "limits", "arms": described, **experiment}
        path = self._folder / "experiment.yaml"
        path.write_text(json.dumps(document))
        return await evalfleet.run(path)

    def marks(self) -> list[Mark]:
        lines = [line.split() for line in (self._folder / "log").read_text().splitlines()]
        return [Mark(float(at), what, arm, name) for at, what, arm, name in lines]


def most_at_once(marks: Sequence[Mark]) -> int:
    running = most = 0
    for mark in marks:
        running += 1 if mark.what == "+" else -1
        most = max(most, running)
    return most


@pytest.fixture
def project(tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("EVALFLEET_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("EVALFLEET_DATABASE_URL", database)
    (tmp_path / "project").mkdir()
    return Project(tmp_path / "project")


async def test_no_more_run_at_a_time_than_the_run_and_each_arm_allow(project: Project) -> None:
    cases = [{"seconds": 0.02 + number % 5 * 0.01} for number in range(40)]
    limits = {"concurrency": 6, "per_arm": {"narrow": 2}}
    with await project.run(cases, arms=("narrow", "wide"), limits=limits) as run:
        assert (run.status, len(list(run.cases("passed")))) == (RunStatus.COMPLETED, 80)
    marks = project.marks()
    assert most_at_once(marks) == 6
    assert most_at_once([mark for mark in marks if mark.arm == "narrow"]) == 2


async def test_sandboxes_keep_to_limits_of_their_own(project: Project) -> None:
    """At most two at once, and no more than ten a second; the other arm waits for neither."""
    cases = [{"seconds": 0.3} for _ in range(15)]
    limits = {"concurrency": 16, "sandboxes": 2, "sandbox_starts_per_second": 10.0}
    sandbox = {"backend": "local"}
    with await project.run(cases, arms=("boxed", "bare"), limits=limits, sandbox=sandbox) as run:
        assert (run.status, len(list(run.cases("passed")))) == (RunStatus.COMPLETED, 30)
    boxed, bare = ([mark for mark in project.marks() if mark.arm == arm] for arm in ("boxed", "bare"))
    assert most_at_once(boxed) == 2 and most_at_once(bare) >= 8
    assert max(mark.at for mark in bare) < max(mark.at for mark in boxed)


async def test_a_retry_waits_without_a_lane(project: Project) -> None:
    """One lane: while the first case waits for its second and third attempt, all others run."""
    cases = [{"failures": 2}, *({} for _ in range(30))]
    with await project.run(cases, limits={"concurrency": 1}) as run:
        assert (run.status, len(list(run.cases("passed")))) == (RunStatus.COMPLETED, 31)
        (case,) = run.cases(prefix="told/c00")
        outcomes = [run.attempt(case.view.ordinal, number).view.outcome.value for number in (1, 2, 3)]
    assert outcomes == ["errored", "errored", "completed"]
    first, second, third = (mark.at for mark in project.marks() if (mark.what, mark.name) == ("+", "c00"))
    # Base of one second, doubled each time, of which half is jitter; a tick later it is noticed.
    assert 0.5 <= second - first < 2.5
    assert 1.0 <= third - second < 3.5
    before, after = (
        len([mark for mark in project.marks() if mark.what == "+" and low < mark.at < high])
        for low, high in ((0.0, first), (first, second))
    )
    assert before + after == 30 and after > 0


@pytest.mark.parametrize(
    ("kind", "retry", "sends"),
    [
        ("provider", {}, 3),
        ("infrastructure", {}, 3),
        ("provider", {"max_attempts": 1}, 1),
        ("agent", {}, 1),
        ("agent", {"on": ["agent"], "max_attempts": 2}, 2),
    ],
    ids=["provider", "infrastructure", "no attempts left", "the agent's own", "the agent's own, if asked to"],
)
async def test_a_case_is_sent_as_often_as_its_failure_allows(
    project: Project, kind: str, retry: Mapping[str, Any], sends: int
) -> None:
    with await project.run([{"kind": kind, "failures": 9}], retry=retry) as run:
        (case,) = run.cases()
        assert (run.status, case.status, case.view.kind, case.view.code) == ("completed", "errored", kind, "AS_TOLD")
    assert len([mark for mark in project.marks() if mark.what == "+"]) == sends


async def test_a_run_that_fails_too_often_is_limited(project: Project) -> None:
    cases = [{"failures": 9 if number < 3 else 0, "kind": "agent", "seconds": 0.02} for number in range(40)]
    limits = {"concurrency": 2, "max_failures": 3}
    with await project.run(cases, limits=limits) as run:
        assert run.status is RunStatus.LIMITED
        assert run.report()["stopReason"] == "max_failures of 3 reached: 3 errored"
        assert [len(list(run.cases(status))) > 0 for status in ("passed", "pending", "failed")] == [True, True, False]
        assert {case.eval_id for case in run.cases("errored")} == {"told/c00", "told/c01", "told/c02"}
    third = [mark.at for mark in project.marks() if mark.what == "-" and mark.name in ("c00", "c01", "c02")][2]
    # Two may be in flight, and two more be granted until the commit; the rest stays for a resume.
    assert len([mark for mark in project.marks() if mark.what == "+" and mark.at > third]) <= 4


async def test_a_run_whose_time_is_over_is_limited_and_goes_on_with_more(project: Project) -> None:
    cases = [{"seconds": 0.5}] * 12
    with await project.run(cases, limits={"concurrency": 2}, budget={"wall": "1500ms"}) as run:
        assert run.status is RunStatus.LIMITED
        assert run.summary["run"]["stop_reason"] == "budget.wall of 1.5 s is over"
        # what was under way ended and counts
        assert len([mark for mark in project.marks() if mark.what == "-"]) == len(list(run.cases("passed"))) < 12
        for wall, left in (("1500ms", True), ("10h", False)):
            handle = await resume(run.id, ResumeOptions(inline=True, overrides={"budget.wall": wall}))
            await handle.close()
            assert (run.status is RunStatus.LIMITED) == left
        assert len(list(run.cases("passed"))) == 12
    assert len(project.marks()) == 24


@pytest.mark.parametrize(
    ("limits", "code"),
    [({"attempt_timeout": "400ms"}, "ATTEMPT_TIMEOUT"), ({"turn_timeout": "400ms"}, "TURN_TIMEOUT")],
    ids=["attempt", "turn"],
)
async def test_deadlines_hold(project: Project, limits: Mapping[str, Any], code: str) -> None:
    with await project.run([{"seconds": 60.0}, {}], limits={"concurrency": 2, **limits}) as run:
        slow, quick = run.cases()
        assert (slow.status, slow.view.kind, slow.view.code) == ("errored", "deadline", code)
        assert (quick.status, run.status) == ("passed", "completed")
    began, ended = (mark.at for mark in project.marks() if mark.name == "c00")
    assert 0.35 < ended - began < 2.0


async def test_an_attempt_that_blocks_its_own_process_is_killed_after_its_deadline(project: Project) -> None:
    cases = [{"seconds": 60.0, "kind": "blocks"}, {}]
    async with asyncio.timeout(40):
        run = await project.run(cases, isolation="process", limits={"concurrency": 2, "attempt_timeout": "3s"})
    with run:
        slow, quick = run.cases()
        assert (slow.status, slow.view.kind, slow.view.code) == ("errored", "deadline", "ATTEMPT_TIMEOUT")
        assert slow.view.message == "the attempt did not end 4 s after its deadline of 3 s and was killed"
        assert (quick.status, run.status) == ("passed", "completed")
