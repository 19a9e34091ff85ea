"""Reports of a run that is under way: each agrees with itself, and what was read of one never changes.

The numbers are those of the conformance tests of the suite format. Everything is in this process: runs are inline,
their agent is a module that a test looks into.
"""

from __future__ import annotations

import asyncio
import copy
import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

import evalfleet
from evalfleet.api.options import ResumeOptions
from evalfleet.api.records import cancel, open_run
from evalfleet.api.starting import resume
from evalfleet.model.run_events import RunEvent, RunEventType
from evalfleet.reports.document_import import import_report
from tests.unit.reports.documents import VALIDATOR

AGENT = """
import asyncio

from evalfleet import COMPLETE_COVERAGE, Turn, agent

LOG, OPEN, PEAK = [], set(), [0]
SENDING, CLOSING = {}, {}


@agent(coverage=COMPLETE_COVERAGE)
class Clerk:
    def __init__(self, ctx):
        self.thread = ctx.thread_id
        self.case = ctx.repetition
        OPEN.add(self.thread)
        PEAK[0] = max(PEAK[0], len(OPEN))
        LOG.append(("open", self.case, self.thread))
        if ctx.flags.get("broken"):
            OPEN.discard(self.thread)
            raise RuntimeError("a private text")

    async def send(self, turn):
        LOG.append((turn.text, self.case, self.thread))
        await asyncio.sleep(0.01)
        if self.case in SENDING:
            await SENDING[self.case].wait()
        return Turn(observation={"said": turn.text, "deep": {"list": [1, {"n": 2}]}})

    async def close(self):
        if self.case in CLOSING:
            CLOSING[self.case][0].set()
            await CLOSING[self.case][1].wait()
        LOG.append(("close", self.case, self.thread))
        OPEN.discard(self.thread)
"""

SUITE: dict[str, Any] = {
    "schemaVersion": 1,
    "id": "shop",
    "name": "Shop",
    "scenarios": [
        {
            "id": "buy",
            "name": "Buy",
            "writePolicy": "read_only",
            "steps": [{"id": name, "input": {"text": name}} for name in ("ask", "pay")],
            "assertions": [{"id": "paid", "kind": "check", "path": ["said"], "operator": "equals", "value": "pay"}],
        }
    ],
    "assertions": [{"id": "all", "kind": "check", "path": ["summary", "pending"], "operator": "equals", "value": 0}],
}

SLOW = {"id": "slow", "kind": "custom", "evaluator": "slow", "parameters": {}}
EVALUATORS = """
import asyncio
from pathlib import Path

from evalfleet import evaluator

TOLD = Path(__file__).with_name("told")


@evaluator("slow")
async def slow(context, parameters):
    while not TOLD.exists():
        await asyncio.sleep(0.05)
    await asyncio.sleep(1)
    return {"passed": len(context.cases) > 1}
"""

Document = Mapping[str, Any]


class Shop:
    """A project with one scenario of two steps, a case for each repetition."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.module = f"clerk_{folder.parent.name}"
        self.told = 0
        (folder / "evals").mkdir(parents=True)
        (folder / "evals" / "shop.suite.json").write_text(json.dumps(SUITE))
        (folder / f"{self.module}.py").write_text(AGENT)

    @property
    def agent(self) -> Any:
        """The agent's module, as the run has it."""
        return sys.modules[self.module]

    def judge_slowly(self) -> None:
        """Have the suite take a second over its own criteria, once the observer was told of all cases."""
        document = {**SUITE, "assertions": [*SUITE["assertions"], SLOW]}
        (self.folder / "evals" / "shop.suite.json").write_text(json.dumps(document))
        (self.folder / "evals" / "evaluators.py").write_text(EVALUATORS)

    def note(self, event: RunEvent, cases: int) -> None:
        """Say when the observer was told of the last of so many cases."""
        self.told += event.type is RunEventType.CASE_COMPLETED
        if self.told == cases:
            (self.folder / "evals" / "told").touch()

    def imported(self) -> Any:
        """The same, before the run imports it."""
        spec = spec_from_file_location(self.module, self.folder / f"{self.module}.py")
        assert spec is not None and spec.loader is not None
        sys.modules[self.module] = module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def write(self, **settings: Any) -> Path:
        arm = {"adapter": "python", "entry": f"{self.module}:Clerk", **settings.pop("arm", {})}
        document = {
            "schema_version": 1,
            "name": "shop",
            "arms": {"mine": arm},
            "retry": {"max_attempts": 1},
            **settings,
        }
        (self.folder / "experiment.yaml").write_text(json.dumps(document))
        return self.folder / "experiment.yaml"

    async def run(self, on_event: Callable[[RunEvent], Any] | None = None, **settings: Any) -> evalfleet.Run:
        return await evalfleet.run(self.write(**settings), on_event=on_event)


@pytest.fixture
def shop(tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setenv("EVALFLEET_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("EVALFLEET_DATABASE_URL", database)
    return Shop(tmp_path / "project")


async def snapshot(run: str) -> Document:
    """The report of a run as it is now, which is valid by its schema and read back by whoever imports it."""
    async with await open_run(run) as handle:
        document = json.loads("".join([piece async for piece in handle.document("mine")]))
    VALIDATOR.validate(document)
    import_report(document, "report.json")
    return document


def turns(document: Document) -> int:
    return sum(len(case["turns"]) for case in document["cases"])


async def test_7_10_33_what_a_snapshot_said_stays_and_no_event_precedes_it(shop: Shop) -> None:
    seen: list[tuple[RunEvent, Document, str]] = []
    gates = {case: asyncio.Event() for case in range(6)}
    shop.imported().SENDING.update(gates)
    shop.judge_slowly()

    async def observe(event: RunEvent) -> None:
        document = await snapshot(event.run)
        seen.append((event, document, json.dumps(document)))
        shop.note(event, 6)
        for gate in [gate for gate in gates.values() if not gate.is_set()][:1]:
            gate.set()

    limits = {"concurrency": 3}
    with await shop.run(observe, repetitions=6, limits=limits) as run:
        final = run.report()
    assert [event.sequence for event, *_ in seen] == list(range(1, len(seen) + 1)), "without gaps, three at a time"
    first, last = seen[0][1], seen[-1][1]
    assert (seen[0][0].type, turns(first), len(first["cases"]), "finishedAt" in first) == ("run.started", 0, 6, False)
    assert any(turns(document) for _, document, _ in seen[1:-1])
    for event, document, text in seen:
        assert json.dumps(document) == text, "an earlier snapshot is as it was"
        if event.type is RunEventType.CASE_COMPLETED:
            (case,) = (each for each in document["cases"] if each["repetition"] == event.repetition)
            assert (case["status"], len(case["turns"])) == ("passed", 2), "what an event tells is in the store by then"
    assert (seen[-1][0].type, last) == ("run.completed", final)
    assert [(each["id"], each["passed"]) for each in last["assertions"]] == [
        ("all", True),
        ("slow", True),
    ], "judged before it is told"
    settled = [(n, case) for n, (_, document, _) in enumerate(seen) for case in document["cases"] if case["turns"]]
    for n, case in settled:
        later = {each["id"]: each for _, document, _ in seen[n:] for each in document["cases"]}
        assert later[case["id"]] == case, "a case that is decided is the same in each later snapshot"
    mine = copy.deepcopy(last)
    final["cases"][0]["turns"][0]["observation"]["deep"]["list"][1]["n"] = 3
    assert last == mine == await snapshot(run.id), "and nobody's copy is another's"


async def test_11_snapshots_agree_while_one_case_closes_and_another_sends(shop: Shop) -> None:
    run: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    closes, ends, sends = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def observe(event: RunEvent) -> None:
        if not run.done():
            run.set_result(event.run)

    agent = shop.imported()
    agent.CLOSING[0] = (closes, ends)
    agent.SENDING[1] = sends
    working = asyncio.create_task(shop.run(observe, repetitions=3, limits={"concurrency": 2}))
    await asyncio.wait_for(closes.wait(), 30)
    between = await snapshot(await run)
    assert between["status"] == "running" and "finishedAt" not in between
    assert {case["status"] for case in between["cases"]} <= {"running", "pending"}
    assert turns(between) == 0, "what is not committed is not told"
    ends.set()
    sends.set()
    with await working as done:
        assert done.report()["summary"]["passed"] == 3


async def test_13_never_more_at_a_time_than_are_allowed_and_each_in_its_own_order(shop: Shop) -> None:
    with await shop.run(repetitions=5, limits={"concurrency": 2}) as run:
        report = run.report()
    agent = shop.agent
    assert ([2], set()) == (agent.PEAK, agent.OPEN)
    threads = [thread for what, _, thread in agent.LOG if what == "open"]
    assert len(set(threads)) == 5 and sorted(threads) == sorted(case["threadId"] for case in report["cases"])
    for thread in threads:
        assert [what for what, _, own in agent.LOG if own == thread] == ["open", "ask", "pay", "close"]


async def test_14_a_limit_of_failures_leaves_the_rest_pending(shop: Shop) -> None:
    broken = {"flags": {"broken": True}}
    with await shop.run(repetitions=5, arm=broken, limits={"concurrency": 1, "max_failures": 2}) as run:
        report = run.report()
    wanted = {"error": 2, "pending": 3, "total": 5}
    assert (report["status"], {name: count for name, count in report["summary"].items() if count}) == (
        "limited",
        wanted,
    )
    assert {case.get("errorCode") for case in report["cases"]} == {"AGENT_RAISED", None}
    assert "a private text" not in json.dumps(report)
    assert [result["passed"] for result in report["assertions"]] == [False], "three are pending"


async def test_34_failures_of_before_do_not_count_towards_the_limit(shop: Shop) -> None:
    broken = {"flags": {"broken": True}}
    with await shop.run(repetitions=5, arm=broken, limits={"concurrency": 1, "max_failures": 2}) as run:
        handle = await resume(run.id, ResumeOptions(inline=True))
        await handle.close()
        report = run.report()
    assert (report["status"], report["summary"]["error"], report["summary"]["pending"]) == ("limited", 4, 1)


async def test_19_an_observer_that_fails_ends_what_is_under_way_and_nothing_new_begins(shop: Shop) -> None:
    begun: list[Sequence[Any]] = []

    def observe(event: RunEvent) -> None:
        if event.type is RunEventType.TURN_COMPLETED:
            begun.append([*shop.agent.LOG])
            raise ValueError("no room")

    agent = shop.imported()
    agent.SENDING.update({case: asyncio.Event() for case in range(1, 5)})
    with pytest.raises(evalfleet.ObserverFailed) as failure:
        await asyncio.wait_for(shop.run(observe, repetitions=5, limits={"concurrency": 1}), 20)
    opened = [thread for what, _, thread in agent.LOG if what == "open"]
    assert opened == [thread for what, _, thread in begun[0] if what == "open"], "none was opened after that"
    assert (len(opened), agent.OPEN) == (2, set()), "the one whose turn was told, and what its lane had begun: closed"
    document = await snapshot(failure.value.run)
    statuses = Counter(case["status"] for case in document["cases"])
    assert (document["status"], document["stopReason"]) == ("cancelled", "its observer failed")
    assert statuses == {"passed": 1, "cancelled": 1, "pending": 3}, "what it broke off is not judged"


async def test_9_a_changed_target_is_not_resumed(shop: Shop) -> None:
    target = {"arm": {"target": {"fingerprint": "one"}}}
    broken = {"arm": {**target["arm"], "flags": {"broken": True}}}
    with await shop.run(repetitions=3, limits={"concurrency": 1, "max_failures": 1}, **broken) as run:
        before = [*shop.agent.LOG]
        source = shop.folder / f"{shop.module}.py"
        source.write_text(source.read_text() + "\n# another agent\n")
        with pytest.raises(evalfleet.DefinitionError, match="arm") as refused:
            await resume(run.id, ResumeOptions(inline=True))
        assert refused.value.code == "EVALUATION_RESUME_INCOMPATIBLE"
        assert before == shop.agent.LOG, "nothing was opened"


async def test_a_run_that_is_told_as_completed_while_its_suite_is_judged_is_followed_to_that_end(shop: Shop) -> None:
    told: list[str] = []
    followed: list[str] = []
    following: list[asyncio.Task[None]] = []

    async def follow(run: str) -> None:
        async for event in evalfleet.events(run):
            followed.append(event.type)

    async def observe(event: RunEvent) -> None:
        told.append(event.type)
        shop.note(event, 2)
        if not following:
            following.append(asyncio.create_task(follow(event.run)))

    shop.judge_slowly()
    with await shop.run(observe, repetitions=2) as run:
        await asyncio.wait_for(following[0], 30)
        assert await cancel(run.id) == (run.id, False)
    assert told == followed and told[-1] == "run.completed"
