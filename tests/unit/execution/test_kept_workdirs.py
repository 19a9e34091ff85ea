"""A workdir whose tests came to no verdict is kept, and judged in a new sandbox without its agent."""

from __future__ import annotations

import base64
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evalfleet.assertions.matchers import equals
from evalfleet.errors import FailureKind
from evalfleet.execution.attempt import AttemptControl
from evalfleet.execution.kept_workdir import NotKept, packed
from evalfleet.execution.regrade import regrade
from evalfleet.harbor.body import TaskBody
from evalfleet.harbor.task_folder import Step, TaskFolder
from evalfleet.model.definition import SandboxSpec
from evalfleet.model.grading import Basis, Regrading
from evalfleet.model.record import KEPT_WORKDIR, AttemptEvidence
from evalfleet.model.turn import Turn
from evalfleet.model.verdict import Verdict
from evalfleet.processes import SystemSpawner
from evalfleet.redact import Redactor
from evalfleet.sandbox_ports import Command, SandboxPlace, SandboxProvider
from evalfleet_sandboxes import local

Judged = Callable[..., Awaitable[tuple[AttemptEvidence, Regrading]]]

REWARD = 'echo {} > "$EVALFLEET_VERDICT/reward.txt"\n'
#: Looks at a file that was changed, one that is gone, a link, a mode and a name that is no ASCII.
WHOLE = (
    'test "$(cat answer)" = 42 && ! test -e gone && test "$(readlink link)" = answer && test -x "dir/run é" &&'
    " test ! -e of-the-tests || exit 1\n" + REWARD.format(1)
)
BREAKS = "touch of-the-tests; echo ruined > answer; exit 1\n"
WORKS = "echo 42 > answer; rm gone; ln -s answer link; mkdir dir; echo 1 > 'dir/run é'; chmod +x 'dir/run é'"


@pytest.fixture
async def provider(tmp_path: Path) -> AsyncIterator[SandboxProvider]:
    spawner = SystemSpawner()
    place = SandboxPlace(state=tmp_path / "state", spawner=spawner, environment={"PATH": os.environ["PATH"]})
    made = local.factory.build(place)
    try:
        yield made
    finally:
        await made.close()
        await spawner.close()


@pytest.fixture
def judged(attempt: Any, make_job: Any, make_services: Any, provider: SandboxProvider, tmp_path: Path) -> Judged:
    """Run a task whose last tests are `broken`, then judge what it kept by `mended` tests; the agent may act once."""
    (tmp_path / "start").mkdir()
    (tmp_path / "start" / "gone").write_text("by the agent")

    async def judged(broken: str, mended: str, **options: Any) -> tuple[AttemptEvidence, Regrading]:
        before, send = options.pop("before", ()), options.pop("send", WORKS)
        told: list[str] = []

        async def agent(turn: Any, ctx: Any) -> Turn:
            told.append(turn.text)
            done = await ctx.sandbox.run(Command(argv=("sh", "-c", turn.text)))
            return Turn(reply=done.text)

        def task(last: str, name: str) -> TaskBody:
            steps = tuple(
                _step(tmp_path / f"{name}{index}", *each) for index, each in enumerate((*before, (send, last)))
            )
            return TaskBody(TaskFolder(folder=tmp_path, steps=steps, root=None, **options))

        sandbox = provider, SandboxSpec(files=str(tmp_path / "start"))
        services = make_services(hidden=Redactor.of(["sesame-sesame"]))
        recorded = await attempt(task(broken, "broken"), agent, sandbox=sandbox, timeout=60.0, services=services)
        sends = len(told)
        job = make_job(task(mended, "mended"), agent, sandbox=sandbox, timeout=60.0)
        job = replace(job, definition=replace(job.definition, replayable=False))
        found = await regrade(job, services, AttemptControl(), recorded)
        assert len(told) == sends
        return recorded, found

    return judged


def _step(folder: Path, instruction: str, script: str) -> Step:
    folder.mkdir()
    (folder / "test.sh").write_text(f"#!/bin/sh\n{script}")
    return Step(instruction=instruction, tests=(folder,), name=folder.name, verifier_seconds=1.0)


def code_of(evidence: AttemptEvidence) -> tuple[Verdict | None, FailureKind | None, str | None]:
    return evidence.summary.verdict, evidence.summary.kind, evidence.summary.code


PASSED, FAILED = (Verdict.PASSED, None, None), (Verdict.FAILED, None, None)


@pytest.mark.parametrize(
    ("broken", "code"), [(BREAKS, "REWARD_MISSING"), (BREAKS.replace("exit 1", "sleep 60"), "VERIFIER_TIMEOUT")]
)
async def test_what_the_agent_left_is_judged_and_nothing_of_the_broken_tests(
    judged: Judged, broken: str, code: str
) -> None:
    recorded, found = await judged(broken, WHOLE)
    assert code_of(recorded) == (Verdict.ERRORED, FailureKind.GRADER, code)
    assert (found.basis, found.reason, code_of(found.evidence)) == (Basis.REPLAYED, None, PASSED)
    assert found.evidence.turns == recorded.turns
    assert found.evidence.summary.duration == recorded.summary.duration


async def test_tests_that_still_decide_nothing_leave_it_errored(judged: Judged) -> None:
    recorded, found = await judged(BREAKS, BREAKS)
    assert code_of(found.evidence) == code_of(recorded)
    assert KEPT_WORKDIR in found.evidence.attachments


@pytest.mark.parametrize(
    ("workdir_is_all", "end"), [(False, (Verdict.ERRORED, FailureKind.GRADER, "STATE_INCOMPLETE")), (True, FAILED)]
)
async def test_less_than_a_full_reward_is_only_taken_where_the_workdir_is_all(
    judged: Judged, workdir_is_all: bool, end: Any
) -> None:
    _, found = await judged(BREAKS, REWARD.format(0.5), workdir_is_all=workdir_is_all)
    assert code_of(found.evidence) == end


async def test_the_rewards_of_earlier_steps_are_the_recorded_ones(judged: Judged) -> None:
    _, found = await judged(BREAKS, WHOLE, before=[("true", REWARD.format(0.25))], workdir_is_all=True)
    measured = {row.label: row.outcome.measurement for row in found.evidence.assertions}
    assert measured == {"reward of mended0": 0.25, "reward of mended1": 1.0, "reward": 0.625}


async def test_nothing_is_kept_of_what_was_judged(judged: Judged) -> None:
    recorded, found = await judged(WHOLE, WHOLE)
    assert (recorded.attachments, found.basis, code_of(found.evidence)) == ({}, Basis.FOLDED, PASSED)


async def test_a_workdir_with_a_secret_in_it_is_not_kept(judged: Judged) -> None:
    recorded, found = await judged(BREAKS, WHOLE, send="echo sesame-sesame > key.txt")
    assert (recorded.attachments, found.basis) == ({}, Basis.FOLDED)
    assert any("key.txt holds a secret" in line for line in recorded.diagnostics)


def test_a_workdir_that_is_too_large_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "huge").touch()
    os.truncate(tmp_path / "huge", (1 << 28) + 1)
    with pytest.raises(NotKept, match="more than 256 MiB"):
        packed(tmp_path, Redactor())


def test_a_workdir_that_does_not_pack_well_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "noise").write_bytes(os.urandom(17 << 20))
    with pytest.raises(NotKept, match="17 MiB packed, more than 16"):
        packed(tmp_path, Redactor())


async def test_a_body_that_does_not_ask_for_it_judges_nothing(
    judged: Judged, make_job: Any, make_services: Any, provider: SandboxProvider
) -> None:
    """The eval was written anew since: in a sandbox that is as its template made it there is nothing of the agent's."""
    recorded, _ = await judged(BREAKS, BREAKS)

    async def other(t: Any) -> None:
        await t.send(WORKS)
        t.check((await t.sandbox.run("test", "-e", "answer")).exit_code, equals(0))

    job = make_job(other, sandbox=(provider, SandboxSpec()), timeout=60.0)
    found = await regrade(job, make_services(), AttemptControl(), recorded)
    assert (found.basis, found.evidence) == (Basis.KEPT, recorded)
    assert found.reason is not None and "does not look at the workdir" in found.reason


@pytest.mark.parametrize("tar", ["no base64", base64.b64encode(b"no tar").decode()])
async def test_what_can_not_be_put_back_changes_no_judgement(
    attempt: Any, make_job: Any, make_services: Any, provider: SandboxProvider, tmp_path: Path, tar: str
) -> None:
    task = TaskBody(TaskFolder(folder=tmp_path, steps=(_step(tmp_path / "tests", "true", BREAKS),), root=None))
    sandbox = provider, SandboxSpec()
    recorded = await attempt(task, sandbox=sandbox)
    damaged = replace(recorded, attachments={KEPT_WORKDIR: {"beside": {"rewards": []}, "tar": tar}})
    found = await regrade(make_job(task, sandbox=sandbox), make_services(), AttemptControl(), damaged)
    assert (found.basis, found.evidence) == (Basis.KEPT, damaged)
    assert found.reason is not None and "WORKDIR_NOT_RESTORED: " in found.reason
