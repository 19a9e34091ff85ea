"""The body of task folders on real commands: what its tests decide, and what an agent that meddles gets by it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from evalfleet.errors import FailureKind
from evalfleet.harbor.body import TaskBody
from evalfleet.harbor.health import wait_after
from evalfleet.harbor.task_folder import Step, TaskFolder
from evalfleet.harbor.task_toml import HealthTable
from evalfleet.model.definition import SandboxSpec
from evalfleet.model.record import AttemptEvidence
from evalfleet.model.turn import Turn, TurnStatus
from evalfleet.model.verdict import Style, Verdict
from evalfleet.processes import SystemSpawner
from evalfleet.sandbox_ports import Command, SandboxPlace
from evalfleet.testing.fakes import FakeSecrets
from evalfleet_sandboxes import local

Run = Callable[..., Awaitable[AttemptEvidence]]

#: Decides by what the agent wrote, and says so where a verdict belongs.
HONEST = '#!/bin/sh\nif [ "$(cat answer)" = 42 ]; then echo 1; else echo 0; fi > "$EVALFLEET_VERDICT/reward.txt"\n'
GOOD, BAD = "echo 42 > answer", "echo 41 > answer"


def tells(text: str, file: str = "reward.txt") -> str:
    return f"#!/bin/sh\ncat > \"$EVALFLEET_VERDICT/{file}\" <<'END'\n{text}\nEND\n"


async def shell(turn: Any, ctx: Any) -> Turn:
    """An agent that does what it is told to the letter."""
    done = await ctx.sandbox.run(Command(argv=("sh", "-c", turn.text)))
    return Turn(reply=done.text)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """What the folders of tests and verdict lie below, in place of the root of a file system."""
    place = tmp_path / "root"
    place.mkdir()
    return place


@pytest.fixture
async def run(attempt: Any, tmp_path: Path, root: Path) -> AsyncIterator[Run]:
    """Run a task of these steps, each an instruction and a test script, in a sandbox without isolation."""
    spawner = SystemSpawner()
    place = SandboxPlace(state=tmp_path / "state", spawner=spawner, environment={"PATH": os.environ["PATH"]})
    provider = local.factory.build(place)

    async def run(*steps: tuple[str, str], fresh: bool = False, **options: Any) -> AttemptEvidence:
        each = options.pop("each", {})
        place = options.pop("tests", "tests")
        made = tuple(step_of(tmp_path / f"{place}{number}", *step, **each) for number, step in enumerate(steps))
        named = made if len(made) == 1 else tuple(named_step(step, number) for number, step in enumerate(made))
        final, style = options.pop("final", False), options.pop("style", Style.PASS)
        health, spec = options.pop("health", None), options.pop("spec", SandboxSpec())
        task = TaskFolder(folder=tmp_path, steps=named, root=None if fresh else str(root), final=final, health=health)
        body = TaskBody(task, style)
        options = {"timeout": 60.0, "style": style, **options}
        agent = options.pop("agent", shell)
        return await attempt(body, agent, sandbox=(provider, spec), **options)

    try:
        yield run
    finally:
        await provider.close()
        await spawner.close()


def step_of(folder: Path, instruction: str, script: str, **options: Any) -> Step:
    folder.mkdir()
    (folder / "test.sh").write_text(script)
    return Step(instruction=instruction, tests=(folder,), **options)


def named_step(step: Step, number: int) -> Step:
    return Step(
        instruction=step.instruction,
        tests=step.tests,
        name=f"step{number}",
        agent_seconds=step.agent_seconds,
        min_reward=step.min_reward,
        health=step.health,
    )


def end_of(evidence: AttemptEvidence) -> tuple[Verdict | None, FailureKind | None, str | None]:
    summary = evidence.summary
    return summary.verdict, summary.kind, summary.code


PASSED, FAILED = (Verdict.PASSED, None, None), (Verdict.FAILED, None, None)


def errored(kind: FailureKind, code: str) -> tuple[Verdict, FailureKind, str]:
    return Verdict.ERRORED, kind, code


@pytest.mark.parametrize("fresh", [False, True])
async def test_the_tests_decide(run: Run, fresh: bool) -> None:
    assert end_of(await run((GOOD, HONEST), fresh=fresh)) == PASSED


@pytest.mark.parametrize("fresh", [False, True])
async def test_a_reward_of_nothing_fails(run: Run, fresh: bool) -> None:
    assert end_of(await run((BAD, HONEST), fresh=fresh)) == FAILED


async def test_a_part_of_a_reward_is_measured_and_no_pass(run: Run) -> None:
    evidence = await run((GOOD, tells('{"reward": 0.75, "style": 0.5, "lines": 12}', "reward.json")))
    assert end_of(evidence) == FAILED
    measured = {row.label: row.outcome.measurement for row in evidence.assertions}
    assert measured == {"style": 0.5, "reward": 0.75}


async def test_a_part_of_a_reward_is_a_part_of_a_score(run: Run) -> None:
    evidence = await run((GOOD, tells("0.75")), style=Style.SCORE)
    assert (evidence.summary.verdict, evidence.summary.earned) == (Verdict.PASSED, 0.75)


def check(command: str, **options: Any) -> HealthTable:
    return HealthTable(command=command, **{"interval_sec": 0.01, "start_interval_sec": 0.01, **options})


@pytest.mark.parametrize(
    ("elapsed", "failures", "expected"),
    [
        (0.0, 0, (5.0, 1)),
        (9.0, 1, (5.0, 2)),
        (9.0, 2, (None, 3)),
    ],
)
def test_failures_of_a_check_of_health_count(elapsed: float, failures: int, expected: Any) -> None:
    assert wait_after(HealthTable(command="true"), elapsed, failures) == expected


@pytest.mark.parametrize(
    ("elapsed", "failures", "expected"), [(0.0, 0, (2.0, 0)), (9.9, 0, (2.0, 0)), (10.0, 0, (5.0, 1))]
)
def test_failures_in_the_start_period_do_not(elapsed: float, failures: int, expected: Any) -> None:
    assert (
        wait_after(HealthTable(command="true", start_period_sec=10, start_interval_sec=2), elapsed, failures)
        == expected
    )


async def test_the_agent_is_told_nothing_before_the_sandbox_is_healthy(run: Run) -> None:
    third = "echo x >> tries; test $(wc -l < tries) = 3"
    evidence = await run(("cat tries > answer; " + GOOD, HONEST), health=check(third))
    assert end_of(evidence) == PASSED
    patient = check("echo x >> tries; test $(wc -l < tries) = 9", start_period_sec=30, retries=1)
    assert end_of(await run(("true", tells("1")), health=patient, tests="patient")) == PASSED


async def test_a_sandbox_that_does_not_become_healthy_is_nobodys_failure(run: Run) -> None:
    told: list[str] = []

    async def agent(turn: Any, ctx: Any) -> Turn:
        told.append(turn.text)
        return Turn(reply="")

    evidence = await run((GOOD, HONEST), agent=agent, health=check("echo no port >&2; exit 7"))
    assert end_of(evidence) == errored(FailureKind.SANDBOX, "SANDBOX_SETUP_FAILED")
    assert evidence.summary.message == (
        "the sandbox is not healthy: its check failed 3 times, and ended with exit code 7: no port"
    )
    slow = await run((GOOD, HONEST), tests="slow", agent=agent, health=check("sleep 9", timeout_sec=0.1, retries=1))
    assert "its check failed 1 times, and took too long" in (slow.summary.message or "")
    each = {"health": check("test -e answer")}
    second = await run((GOOD, HONEST), ("true", HONEST), tests="steps", each=each)
    assert "the sandbox of step step0 is not healthy" in (second.summary.message or "")
    assert told == []


async def test_variables_of_the_host_are_those_that_are_allowed(run: Run) -> None:
    asked = ("TOKEN", "OTHER=TOKEN", "NONE=GONE:-", "MODE=HOSTS_OWN:-fast", "SAME=TOKEN:-unused")
    secrets = FakeSecrets({"TOKEN": "t-1", "HOSTS_OWN": "must not be seen"})
    say = 'echo "$TOKEN,$OTHER,$NONE,$MODE,$SAME,$HOSTS_OWN"'
    found = await run((say, tells("1")), spec=SandboxSpec(env_from=asked), using={"secrets": secrets})
    assert found.turns[0].reply == "t-1,t-1,,fast,t-1,\n"


NO_REWARD = {
    "nothing at all": ("#!/bin/sh\nexit 1\n", "REWARD_MISSING"),
    "a program that is not there": ("#!/no/such/shell\n", "REWARD_MISSING"),
    "a script with the line ends of Windows": (
        '#!/bin/sh\r\necho 1 > "$EVALFLEET_VERDICT/reward.txt"\r\n',
        "REWARD_MISSING",
    ),
    "words": (tells("passed"), "REWARD_INVALID"),
    "nan": (tells("nan"), "REWARD_INVALID"),
    "more than there is": (tells("2"), "REWARD_INVALID"),
    "a folder of that name is none": ('mkdir "$EVALFLEET_VERDICT/other"\n', "REWARD_MISSING"),
    "far too much": ('#!/bin/sh\nhead -c 100000 /dev/zero > "$EVALFLEET_VERDICT/reward.txt"\n', "REWARD_INVALID"),
}


@pytest.mark.parametrize("name", NO_REWARD)
async def test_tests_that_decide_nothing_are_no_zero(run: Run, name: str) -> None:
    script, code = NO_REWARD[name]
    assert end_of(await run((GOOD, script))) == errored(FailureKind.GRADER, code)


async def test_tests_that_take_too_long_decide_nothing(run: Run) -> None:
    evidence = await run((GOOD, tells("1") + "sleep 600\n"), each={"verifier_seconds": 0.5})
    assert end_of(evidence) == errored(FailureKind.GRADER, "VERIFIER_TIMEOUT")


TAMPERED = {
    "a verdict of its own": 'mkdir -p "$ROOT/logs/verifier"; echo 1 > "$ROOT/logs/verifier/reward.txt"',
    "another one": 'echo "{}" > "$ROOT/logs/verifier/reward.json"',
    "a verdict that leads elsewhere": 'ln -s "$ROOT/mine" "$ROOT/logs/verifier/reward.txt"',
    "a folder that leads elsewhere": 'rmdir "$ROOT/logs/verifier"; mkdir "$ROOT/m"; ln -s ../m "$ROOT/logs/verifier"',
    "logs that lead elsewhere": 'mkdir "$ROOT/m"; rm -r "$ROOT/logs"; ln -s m "$ROOT/logs"',
    "a file for the folder": 'rm -r "$ROOT/logs"; echo 1 > "$ROOT/logs"',
}


@pytest.mark.parametrize("name", TAMPERED)
async def test_a_verdict_that_an_agent_prepared_is_its_own_doing(run: Run, root: Path, name: str) -> None:
    evidence = await run((f"{GOOD}; ROOT={root}; {TAMPERED[name]}", HONEST))
    assert end_of(evidence) == errored(FailureKind.AGENT, "VERDICT_TAMPERED")


SWAPPED = {
    "a verdict that is a link": 'ln -sf /dev/null "$EVALFLEET_VERDICT/reward.txt"\n',
    "a verdict that is a folder": 'mkdir "$EVALFLEET_VERDICT/reward.txt"\n',
    "tests that are others by then": 'echo >> "$0"; echo 1 > "$EVALFLEET_VERDICT/reward.txt"\n',
}


@pytest.mark.parametrize("name", SWAPPED)
async def test_what_changes_under_the_tests_is_seen(run: Run, name: str) -> None:
    evidence = await run((GOOD, SWAPPED[name]))
    assert end_of(evidence) == errored(FailureKind.AGENT, "VERDICT_TAMPERED")


async def test_tests_of_an_agent_s_own_are_not_run(run: Run, root: Path) -> None:
    prepares = f"{BAD}; mkdir -p {root}/tests; echo 'echo 1' > {root}/tests/conftest.sh"
    looks = f'test ! -e "$EVALFLEET_TESTS/conftest.sh" || exit 1\n{HONEST}'
    assert end_of(await run((prepares, looks))) == FAILED


async def test_a_link_for_the_tests_is_replaced_and_not_followed(run: Run, root: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "kept").write_text("")
    assert end_of(await run((f"{GOOD}; ln -s {tmp_path}/precious {root}/tests", HONEST))) == PASSED
    assert (tmp_path / "precious" / "kept").exists()


async def test_what_stood_there_before_the_agent_is_not_the_agent_s(run: Run, root: Path) -> None:
    (root / "logs" / "verifier").mkdir(parents=True)
    (root / "logs" / "verifier" / "reward.txt").write_text("1")
    assert end_of(await run((BAD, HONEST))) == FAILED


@pytest.mark.parametrize(("instruction", "end"), [(GOOD, PASSED), (BAD, FAILED)])
async def test_an_agent_that_takes_too_long_is_judged_by_what_it_has_done(run: Run, instruction: str, end: Any) -> None:
    async def slow(turn: Any, ctx: Any) -> Turn:
        await shell(turn, ctx)
        await asyncio.sleep(600)
        return Turn(reply="")

    evidence = await run((instruction, HONEST), agent=slow, each={"agent_seconds": 1.0})
    assert end_of(evidence) == end
    (turn,) = evidence.turns
    assert turn.status is TurnStatus.FAILED


async def test_steps_after_a_cut_are_told_to_another_session(run: Run) -> None:
    async def slow_at_first(turn: Any, ctx: Any) -> Turn:
        done = await shell(turn, ctx)
        if turn.text == GOOD:
            await asyncio.sleep(600)
        return done

    evidence = await run((GOOD, HONEST), ("true", HONEST), agent=slow_at_first, each={"agent_seconds": 1.0})
    assert end_of(evidence) == PASSED
    assert [turn.session for turn in evidence.turns] == [0, 1]


@pytest.mark.parametrize(("final", "verdict", "reward"), [(False, FAILED, 0.5), (True, PASSED, 1.0)])
async def test_the_reward_of_steps_is_their_mean_or_the_last_one(
    run: Run, final: bool, verdict: Any, reward: float
) -> None:
    evidence = await run((BAD, HONEST), (GOOD, HONEST), final=final)
    assert end_of(evidence) == verdict
    measured = {row.label: row.outcome.measurement for row in evidence.assertions}
    assert measured == {"reward of step0": 0.0, "reward of step1": 1.0, "reward": reward}
    assert [turn.session for turn in evidence.turns] == [0, 0]


async def test_a_step_that_misses_its_least_reward_is_the_last(run: Run) -> None:
    evidence = await run((BAD, HONEST), (GOOD, HONEST), final=True, each={"min_reward": {"reward": 0.5}})
    assert end_of(evidence) == FAILED
    assert len(evidence.turns) == 1


async def test_the_agent_of_the_next_step_finds_neither_tests_nor_verdict(run: Run, root: Path) -> None:
    looks = f"test -e {root}/tests || test -e {root}/logs/verifier/reward.txt || {GOOD}"
    assert end_of(await run(("true", tells("1")), (looks, HONEST))) == PASSED


async def test_tests_that_find_no_place_are_the_graders_matter(run: Run, root: Path) -> None:
    def full(turn: Any, ctx: Any) -> Turn:
        (root / "logs").rename(root.parent / "logs")
        root.rmdir()
        root.write_text("")
        return Turn(reply="")

    evidence = await run((GOOD, HONEST), agent=full)
    assert end_of(evidence) == errored(FailureKind.GRADER, "TESTS_NOT_PLACED")
