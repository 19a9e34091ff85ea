"""One attempt with a real Python agent in a real local sandbox."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from evalfleet.assertions.matchers import command_succeeded, equals, includes
from evalfleet.clock import SystemClock
from evalfleet.errors import FailureKind
from evalfleet.execution.attempt import AttemptControl, AttemptJob, AttemptServices, Patience, run_attempt
from evalfleet.execution.threads import AuthorThreads
from evalfleet.model.agent import agent, sandbox_agent
from evalfleet.model.case import Case
from evalfleet.model.coverage import COMPLETE_COVERAGE
from evalfleet.model.definition import AgentDefinition, EvalDefinition, SandboxSpec, SourcePlace
from evalfleet.model.record import AttemptEvidence
from evalfleet.model.turn import Turn
from evalfleet.model.verdict import Style, Verdict
from evalfleet.ports import ArmSettings
from evalfleet.processes import SystemSpawner
from evalfleet.sandbox_ports import Command, SandboxPlace
from evalfleet.testing.fakes import FakeSecrets
from evalfleet_adapters.python import PythonAdapter
from evalfleet_sandboxes.local import factory


class NoOptions(BaseModel):
    pass


@sandbox_agent(coverage=COMPLETE_COVERAGE)
async def fixes(turn: Any, ctx: Any) -> Turn:
    await ctx.sandbox.write("fixed.py", b"print('fixed')\n")
    result = await ctx.sandbox.run(Command(argv=("sh", "-c", "cat notes.txt")))
    return Turn(reply=f"read {result.text}")


@agent(coverage=COMPLETE_COVERAGE)
def crashes(turn: Any, ctx: Any) -> Turn:
    raise ZeroDivisionError("the agent's own bug")


@agent(coverage=COMPLETE_COVERAGE)
def blocks(turn: Any, ctx: Any) -> Turn:
    time.sleep(0.5)
    return Turn(reply="too late")


async def run(body: Any, target: AgentDefinition, folder: Path, **limits: Any) -> AttemptEvidence:
    spawner, threads = SystemSpawner(), AuthorThreads()
    provider = factory.build(SandboxPlace(state=folder / "state", spawner=spawner))
    spec = SandboxSpec(files="files", setup=("echo ready >> notes.txt",))
    case = Case(
        ordinal=0,
        arm="mine",
        eval_id="demo",
        definition="demo",
        style=Style.PASS,
        repetition=0,
        content="c",
        fingerprint=None,
    )
    job = AttemptJob(
        run="r",
        attempt=1,
        case=case,
        definition=EvalDefinition(body=body, id="demo", place=SourcePlace(file=folder / "demo.eval.py", line=1)),
        row=None,
        arm=ArmSettings(name="mine", model=None, flags={}, options=NoOptions(), project=folder),
        adapter=PythonAdapter(target),
        sandbox=(provider, spec) if target.sandboxed else None,
        attempt_timeout=limits.get("timeout", 30.0),
        turn_timeout=limits.get("turn_timeout"),
        seed=1,
    )
    services = AttemptServices(
        clock=SystemClock(), secrets=FakeSecrets({}), threads=threads, patience=Patience(grace=0.2, cleanup=5)
    )
    try:
        return await run_attempt(job, services, AttemptControl())
    finally:
        threads.close()
        await provider.close()
        await spawner.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "notes.txt").write_text("from the eval\n")
    (tmp_path / "hidden.sh").write_text("python3 fixed.py | grep -q fixed\n")
    return tmp_path


async def test_agent_and_author_meet_in_a_real_sandbox(folder: Path) -> None:
    async def body(t: Any) -> None:
        turn = await t.send("fix it")
        t.check(turn.reply, includes("from the eval\nready"))
        await t.sandbox.upload("hidden.sh", "hidden.sh")
        t.check(await t.sandbox.run("sh", "hidden.sh"), command_succeeded())
        t.check(await t.sandbox.read_text("fixed.py"), equals("print('fixed')\n"))
        with pytest.raises(FileNotFoundError):
            await t.sandbox.read("nothing")

    evidence = await run(body, fixes, folder)
    assert evidence.summary.verdict is Verdict.PASSED, evidence
    assert list((folder / "state").rglob("fixed.py")) == []


@pytest.mark.parametrize(
    ("target", "limits", "kind"),
    [
        (crashes, {}, FailureKind.AGENT),
        (blocks, {"turn_timeout": 0.05}, FailureKind.DEADLINE),
        (blocks, {"timeout": 0.05}, FailureKind.DEADLINE),
    ],
)
async def test_what_a_real_agent_does_wrong_is_its_own(folder: Path, target: Any, limits: Any, kind: Any) -> None:
    async def body(t: Any) -> None:
        (await t.send("go")).succeeded()

    summary = (await run(body, target, folder, **limits)).summary
    assert (summary.verdict, summary.kind) == (Verdict.ERRORED, kind)


async def test_a_failed_setup_blames_the_sandbox(folder: Path) -> None:
    async def body(t: Any) -> None:
        raise AssertionError("not reached")

    (folder / "files" / "notes.txt").unlink()
    (folder / "files").rmdir()
    summary = (await run(body, fixes, folder)).summary
    assert summary.kind is FailureKind.SANDBOX and "files" in (summary.message or "")
