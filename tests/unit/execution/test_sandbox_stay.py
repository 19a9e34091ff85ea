"""One attempt's sandbox from its announcement to its end: in which order that is written down, and what it took."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from evalfleet.assertions.matchers import equals
from evalfleet.clock import SystemClock
from evalfleet.errors import AttemptFailure, FailureKind, StoreError
from evalfleet.execution.attempt import AttemptControl
from evalfleet.execution.judging import Judging
from evalfleet.execution.sandbox_stay import KEPT_SECONDS, SandboxStay
from evalfleet.grading.judge_client import HttpJudge
from evalfleet.model.definition import SandboxSpec
from evalfleet.model.judge import JudgeConfig
from evalfleet.model.sandbox import KeepSandbox, SandboxEntry, SandboxState, SandboxUse
from evalfleet.model.turn import Turn
from evalfleet.model.verdict import Verdict
from evalfleet.testing.fakes import FakeClock, FakeSandboxes, FixedRandom
from evalfleet.testing.http_endpoint import Request
from evalfleet.testing.judge_endpoint import ruling
from evalfleet.testing.model_endpoint import ModelEndpoint

SPEC = SandboxSpec(image="python:3.12-slim")
ENTRY = SandboxEntry(
    backend="fake", owner="run/1", run="run", attempt=1, case=0, eval_id="demo", template="00" * 32, ttl=60.0
)


class Log:
    """A ledger and a provider whose sandboxes outlive it, in one: `steps` has what was asked of both, in order.

    `broken` steps fail. Making takes 3 s, closing 2 s.
    """

    name = "fake"
    isolates = True

    def __init__(self, *broken: str, outlives: bool = True) -> None:
        self.steps: list[str] = []
        self.clock = FakeClock()
        self.outlives = outlives
        self.owner = ""
        self._broken = broken
        self._inner = FakeSandboxes()

    async def announce(self, entry: SandboxEntry) -> None:
        self._step("announce", StoreError("the store is away"))

    async def made(self, entry: SandboxEntry, id: str) -> None:
        self._step("made", StoreError("the store is away"))

    async def kept(self, entry: SandboxEntry, id: str, ttl: float) -> None:
        assert ttl == KEPT_SECONDS
        self._step("kept", StoreError("the store is away"))

    async def ended(self, backend: str, owner: str, state: SandboxState) -> None:
        self._step(state.value, StoreError("the store is away"))

    async def check(self) -> None: ...

    async def create(self, spec: SandboxSpec, owner: str) -> Any:
        self.clock.advance(3)
        self._step("create", OSError("no daemon"))
        sandbox: Any = await self._inner.create(spec, owner)
        sandbox.close = self._closing("close")
        sandbox.keep = self._closing("keep")
        return sandbox

    async def found(self) -> list[Any]:
        return []

    async def reap(self, sandbox: Any) -> None: ...

    async def close(self) -> None: ...

    def _closing(self, step: str) -> Callable[[], Awaitable[None]]:
        async def close() -> None:
            self.clock.advance(2)
            self._step(step, OSError("busy"))

        return close

    def _step(self, name: str, error: Exception) -> None:
        self.steps.append(name)
        if name in self._broken:
            raise error


def stay_of(log: Log, notes: list[str] | None = None) -> SandboxStay:
    told: list[str] = [] if notes is None else notes
    return SandboxStay(log, ENTRY, log.clock, log, told.append)


async def test_it_is_announced_before_it_is_made_and_told_gone_after_it_is_closed() -> None:
    log = Log()
    stay = stay_of(log)
    await stay.begin(SPEC)
    log.clock.advance(10)
    await stay.end()
    assert log.steps == ["announce", "create", "made", "close", "gone"]
    assert stay.use == SandboxUse(backend="fake", starts=1, making=3, using=10, closing=2)
    await stay.end()
    assert len(log.steps) == 5


async def test_what_dies_with_its_maker_needs_no_row() -> None:
    log = Log(outlives=False)
    stay = stay_of(log)
    await stay.begin(SPEC)
    await stay.end()
    assert log.steps == ["create", "close"]


async def test_what_went_away_by_itself_is_told_lost() -> None:
    log = Log()
    stay = stay_of(log)
    await stay.begin(SPEC)
    await stay.end(SandboxState.LOST)
    assert log.steps[-2:] == ["close", "lost"]


async def test_without_its_row_none_is_made() -> None:
    log = Log("announce")
    stay = stay_of(log)
    with pytest.raises(AttemptFailure, match="nobody could find again: the store is away") as caught:
        await stay.begin(SPEC)
    assert (caught.value.kind, caught.value.code) == (FailureKind.INFRASTRUCTURE, "SANDBOX_NOT_ANNOUNCED")
    await stay.end()
    assert log.steps == ["announce"]


async def test_one_that_could_not_be_made_is_told_gone_and_took_its_time() -> None:
    log = Log("create")
    stay = stay_of(log)
    with pytest.raises(OSError, match="no daemon"):
        await stay.begin(SPEC)
    await stay.end()
    assert log.steps == ["announce", "create", "gone"]
    assert stay.use == SandboxUse(backend="fake", starts=0, making=3)


async def test_a_creation_that_is_cancelled_is_told_gone() -> None:
    class Hanging(Log):
        async def create(self, spec: SandboxSpec, owner: str) -> Any:
            self.steps.append("create")
            await asyncio.sleep(60)

    log = Hanging()
    task = asyncio.ensure_future(stay_of(log).begin(SPEC))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log.steps == ["announce", "create", "gone"]


async def test_one_that_can_not_be_closed_stays_in_the_ledger_for_the_reaper() -> None:
    log = Log("close")
    stay = stay_of(log)
    await stay.begin(SPEC)
    with pytest.raises(OSError, match="busy"):
        await stay.end()
    assert log.steps == ["announce", "create", "made", "close"]
    assert stay.use.closing == 2


@pytest.mark.parametrize("broken", ["made", "gone"])
async def test_what_can_not_be_written_down_later_costs_a_note(broken: str) -> None:
    log, notes = Log(broken), list[str]()
    stay = stay_of(log, notes)
    await stay.begin(SPEC)
    await stay.end()
    assert log.steps == ["announce", "create", "made", "close", "gone"]
    assert notes == ["sandbox: the record store was not told of it: the store is away"]


@pytest.mark.parametrize("outlives", [True, False])
async def test_one_that_stays_is_written_down_before_anybody_lets_go_of_it(outlives: bool) -> None:
    log = Log(outlives=outlives)
    stay = stay_of(log)
    await stay.begin(SPEC)
    await stay.keep()
    assert log.steps[-2:] == ["kept", "keep"]
    assert stay.use.kept == "fake-run/1"
    await stay.end()
    assert log.steps[-1] == "keep"


async def test_one_that_can_not_be_written_down_is_not_kept() -> None:
    log, notes = Log("kept"), list[str]()
    stay = stay_of(log, notes)
    await stay.begin(SPEC)
    await stay.keep()
    assert log.steps[-3:] == ["kept", "close", "gone"]
    assert stay.use.kept is None and "could not be recorded" in notes[0]


async def test_a_backend_that_can_keep_nothing_says_so() -> None:
    log, notes = Log(), list[str]()
    stay = SandboxStay(FakeSandboxes(), ENTRY, log.clock, log, notes.append)
    await stay.begin(SPEC)
    await stay.keep()
    assert notes == ["sandbox: the backend 'fake' can't keep a sandbox, so it was closed"]
    assert log.steps == []


# --- in an attempt ----------------------------------------------------------------------------------------------


async def passes(t: Any) -> None:
    t.check(1, equals(1))


async def fails(t: Any) -> None:
    t.check(1, equals(2))


async def raises(t: Any) -> None:
    raise ZeroDivisionError


async def asks(t: Any) -> None:
    await t.send("go")


async def test_it_stands_in_the_attempts_summary(attempt: Any) -> None:
    log = Log()
    evidence = await attempt(passes, sandbox=(log, SPEC), using={"clock": log.clock, "sandbox_ledger": log})
    assert evidence.summary.verdict is Verdict.PASSED
    assert evidence.summary.sandbox == SandboxUse(backend="fake", starts=1, making=3, using=0, closing=2)
    assert log.steps == ["announce", "create", "made", "close", "gone"]
    assert (await attempt(passes)).summary.sandbox is None


@pytest.mark.parametrize(
    ("keep", "body", "kept"),
    [
        (KeepSandbox.NONE, fails, False),
        (KeepSandbox.FAILED, passes, False),
        (KeepSandbox.FAILED, fails, True),
        (KeepSandbox.FAILED, raises, True),
        (KeepSandbox.ALL, passes, True),
    ],
)
async def test_whose_sandbox_stays(attempt: Any, keep: KeepSandbox, body: Any, kept: bool) -> None:
    log = Log()
    evidence = await attempt(body, sandbox=(log, SPEC), using={"sandbox_ledger": log}, keep_sandbox=keep)
    assert log.steps[3:] == (["kept", "keep"] if kept else ["close", "gone"])
    assert (evidence.summary.sandbox.kept is not None) is kept


async def test_who_breaks_off_keeps_nothing(attempt: Any) -> None:
    log, control = Log(), AttemptControl()

    async def interrupted(turn: Any, ctx: Any) -> Turn:
        control.cancel("interrupted by the user")
        await asyncio.sleep(60)
        return Turn()

    await attempt(
        asks,
        interrupted,
        sandbox=(log, SPEC),
        using={"sandbox_ledger": log},
        keep_sandbox=KeepSandbox.ALL,
        control=control,
    )
    assert log.steps[3:] == ["close", "gone"]


async def test_a_sandbox_that_went_away_is_told_lost(attempt: Any) -> None:
    log = Log()

    async def answer(turn: Any, ctx: Any) -> Turn:
        raise AttemptFailure(FailureKind.SANDBOX, "SANDBOX_LOST", "it is gone")

    await attempt(asks, answer, sandbox=(log, SPEC), using={"sandbox_ledger": log})
    assert log.steps[3:] == ["close", "lost"]


async def judged(t: Any) -> None:
    turn = await t.send("Why did it rain?")
    turn.judge.closed_qa("Is the cause named?").gate(0.5)


@pytest.mark.parametrize(
    ("keep", "verdict", "steps"),
    [
        (KeepSandbox.FAILED, "no", ["judge", "kept", "keep"]),
        (KeepSandbox.FAILED, "yes", ["judge", "close", "gone"]),
        (KeepSandbox.NONE, "no", ["close", "gone", "judge"]),
    ],
)
async def test_one_that_may_stay_waits_for_the_judge(
    attempt: Any, keep: KeepSandbox, verdict: str, steps: list[str]
) -> None:
    log = Log()

    def rules(request: Request) -> Any:
        log.steps.append("judge")
        says: Any = ruling(verdict)
        return says(request)

    async with ModelEndpoint([rules]) as endpoint:
        judging = Judging(SystemClock(), HttpJudge(SystemClock(), FixedRandom()), None)
        await attempt(
            judged,
            sandbox=(log, SPEC),
            using={"sandbox_ledger": log, "judging": judging},
            keep_sandbox=keep,
            judge=JudgeConfig(model="judge-m", base_url=endpoint.base_url, api_key_env=None),
        )
        await judging.close()
    assert log.steps[3:] == steps
