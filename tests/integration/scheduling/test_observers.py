"""Observers of runs in this process: told each event in order, and reported when they fail; nothing is lost."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import pytest

import evalfleet
from evalfleet.api.listeners import Listeners, Observer
from evalfleet.api.options import ResumeOptions
from evalfleet.api.starting import resume
from evalfleet.model.run_events import RunEvent, RunEventType
from evalfleet.model.verdict import RunStatus

AGENT = """
import asyncio
from pathlib import Path

from evalfleet import COMPLETE_COVERAGE, Turn, agent

LOG = Path(__file__).with_name("log")


@agent(coverage=COMPLETE_COVERAGE)
async def echo(turn, ctx):
    with LOG.open("a") as log:
        log.write("sent\\n")
    await asyncio.sleep(0.25)
    return Turn(reply=turn.text)
"""

EVAL = """
from evalfleet import Dataset, define_eval


@define_eval(dataset=Dataset.jsonl("rows.jsonl", id="name"))
async def told(t, row):
    for turn in range(1 + int(row["name"]) % 2):
        (await t.send(row["name"])).succeeded()
"""

CASES = 24


class Project:
    """A folder with an agent and an eval of 24 rows, each of one or two turns."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        self.experiment = folder / "experiment.yaml"
        agent = f"echo_{folder.parent.name}"
        (folder / "evals").mkdir()
        (folder / f"{agent}.py").write_text(AGENT)
        (folder / "evals" / "told.eval.py").write_text(EVAL)
        rows = "".join(f"{json.dumps({'name': str(number)})}\n" for number in range(CASES))
        (folder / "evals" / "rows.jsonl").write_text(rows)
        arms = {"mine": {"adapter": "python", "entry": f"{agent}:echo"}}
        document = {"schema_version": 1, "name": "told", "arms": arms, "limits": {"concurrency": 4}}
        self.experiment.write_text(json.dumps(document))

    async def run(self, **options: Any) -> evalfleet.Run:
        return await evalfleet.run(self.experiment, **options)


@pytest.fixture
def project(tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("EVALFLEET_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("EVALFLEET_DATABASE_URL", database)
    (tmp_path / "project").mkdir()
    return Project(tmp_path / "project")


async def read(events: AsyncIterator[RunEvent]) -> list[RunEvent]:
    return [event async for event in events]


def counted(events: Sequence[RunEvent]) -> dict[str, int]:
    return dict(Counter(event.type.value for event in events))


ALL = {
    "run.started": 1,
    "case.started": CASES,
    "turn.completed": CASES + CASES // 2,
    "case.completed": CASES,
    "run.completed": 1,
}


async def test_all_that_observe_a_run_are_told_the_same(project: Project) -> None:
    seen: list[RunEvent] = []
    beside: list[RunEvent] = []
    watching: list[asyncio.Task[None]] = []

    async def watch(run: str) -> None:
        async for event in evalfleet.events(run):
            beside.append(event)

    async def observe(event: RunEvent) -> None:
        seen.append(event)
        if not watching:
            watching.append(asyncio.create_task(watch(event.run)))

    with await project.run(on_event=observe) as run:
        await watching[0]
        assert [event.sequence for event in seen] == list(range(1, len(seen) + 1))
        assert (counted(seen), seen[0].type, seen[-1].type) == (ALL, "run.started", "run.completed")
        assert seen[-1].status is RunStatus.COMPLETED
        assert beside == seen == await read(evalfleet.events(run.id))
        assert await read(evalfleet.events(run.id, after=seen[9].cursor)) == seen[10:]
        assert await read(evalfleet.events(run.id, after=str(seen[-1].cursor))) == []


async def test_a_plain_function_is_called_beside_the_loop_one_event_at_a_time(project: Project) -> None:
    threads: set[int] = set()
    seen: list[int] = []

    def observe(event: RunEvent) -> None:
        threads.add(threading.get_ident())
        seen.append(event.sequence)

    with await project.run(on_event=observe):
        assert seen == list(range(1, sum(ALL.values()) + 1))
    assert len(threads) == 1 and threads != {threading.get_ident()}


def raises(event: RunEvent) -> None:
    if event.type is RunEventType.CASE_COMPLETED:
        raise ValueError("no room on the page")


async def raises_later(event: RunEvent) -> None:
    raises(event)


def leaves(event: RunEvent) -> None:
    if event.type is RunEventType.CASE_COMPLETED:
        raise SystemExit


def hangs(event: RunEvent) -> None:
    if event.type is RunEventType.CASE_COMPLETED:
        threading.Event().wait()


async def hangs_later(event: RunEvent) -> None:
    if event.type is RunEventType.CASE_COMPLETED:
        await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("observer", "why"),
    [
        (raises, "ValueError: no room on the page"),
        (raises_later, "ValueError: no room on the page"),
        (leaves, "SystemExit"),
        (hangs, "it took longer than 0.3 s"),
        (hangs_later, "it took longer than 0.3 s"),
    ],
)
async def test_an_observer_that_fails_ends_the_run_and_loses_nothing(project: Project, observer: Any, why: str) -> None:
    told: list[RunEvent] = []

    def noting(event: RunEvent) -> Any:
        told.append(event)
        return observer(event)

    async def noting_later(event: RunEvent) -> None:
        await noting(event)

    on_event = noting_later if iscoroutinefunction(observer) else noting
    with pytest.raises(evalfleet.ObserverFailed, match=f"{why}.*orchestrate resume") as failure:
        await project.run(on_event=on_event, event_deadline=0.3)
    run = failure.value.run
    assert str(failure.value).startswith(f"the observer of run {run} failed at event 4 (case.completed): {why}")
    assert failure.value.code == "EVALUATION_OBSERVER_FAILED"
    assert len(told) == 4, "later events are not told"
    with evalfleet.open(run) as opened:
        assert (opened.status, opened.summary["run"]["stop_reason"]) == (RunStatus.CANCELLED, "its observer failed")
        settled = len(list(opened.cases("passed")))
        assert 0 < settled < CASES
        before = await read(evalfleet.events(run))
        assert told == before[:4] and before[-1].status is RunStatus.CANCELLED
        sent = len(project.log.read_text().splitlines())
        after: list[RunEvent] = []
        handle = await resume(run, ResumeOptions(inline=True), Listeners(observer=Observer(after.append)))
        await handle.close()
        assert (opened.status, len(list(opened.cases("passed")))) == (RunStatus.COMPLETED, CASES)
    assert [event.sequence for event in after] == list(range(len(before) + 1, len(before) + len(after) + 1))
    assert (after[0].type, counted(after)["case.completed"]) == ("run.resumed", CASES - settled)
    assert await read(evalfleet.events(run)) == before + after
    assert len(project.log.read_text().splitlines()) == sent + counted(after)["turn.completed"], "nothing ran twice"


async def test_an_observer_that_fails_at_the_very_end_is_reported_too(project: Project) -> None:
    def observe(event: RunEvent) -> None:
        if event.type is RunEventType.RUN_COMPLETED:
            raise ValueError("too late")

    with pytest.raises(evalfleet.ObserverFailed, match=r"\(run.completed\): ValueError: too late") as failure:
        await project.run(on_event=observe)
    with evalfleet.open(failure.value.run) as run:
        assert (run.status, len(list(run.cases("passed")))) == (RunStatus.COMPLETED, CASES)


async def test_what_the_run_itself_fails_of_is_not_the_observers_failure(project: Project) -> None:
    (project.log.parent / "evals" / "told.eval.py").write_text("import nowhere")
    with pytest.raises(evalfleet.DefinitionError):
        await project.run(on_event=print)
