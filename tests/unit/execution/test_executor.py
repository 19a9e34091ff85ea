"""A worker's executor: cases in, evidence out, each eval loaded once."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from evalfleet.assertions.matchers import equals
from evalfleet.errors import AuthoringError, DefinitionError, FailureKind, Problem
from evalfleet.execution.attempt import AttemptControl
from evalfleet.execution.executor import BuiltArm, Executor, ExecutorSettings, seed_of
from evalfleet.model.case import Case
from evalfleet.model.definition import EvalDefinition, SandboxSpec
from evalfleet.model.turn import Turn
from evalfleet.model.verdict import Outcome, Style, Verdict
from evalfleet.ports import ArmSettings
from evalfleet.redact import Redactor
from evalfleet.testing.fakes import FakeAdapter, FakeSandboxes


class NoOptions(BaseModel):
    pass


CASE = Case(
    ordinal=0,
    arm="small",
    eval_id="sums/1",
    definition="sums",
    style=Style.PASS,
    repetition=0,
    content="digest",
    fingerprint=None,
    row=b'{"a":1,"b":2}',
)


async def adds(t: Any, row: dict[str, int]) -> None:
    turn = await t.send(f"{row['a']}+{row['b']}")
    t.check(turn.reply, equals(str(row["a"] + row["b"])))


def add(turn: Any, ctx: Any) -> Turn:
    left, right = turn.text.split("+")
    return Turn(reply=str(int(left) + int(right)))


class Loader:
    """Definitions by id; counts the loads."""

    def __init__(self) -> None:
        self.loads: list[str] = []
        self.known = {"sums": EvalDefinition(body=adds, id="sums"), "slow": EvalDefinition(body=adds, timeout=0.05)}

    def __call__(self, identifier: str) -> EvalDefinition:
        self.loads.append(identifier)
        if identifier not in self.known:
            raise DefinitionError("GONE", [Problem("GONE", f"no eval {identifier}", file="evals/x.eval.py")])
        return self.known[identifier]


def decode(definition: EvalDefinition, data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        raise AuthoringError(f"a row does not fit: {error}", "INVALID_ROW") from error


@pytest.fixture
def loader() -> Loader:
    return Loader()


@pytest.fixture
def adapter() -> FakeAdapter:
    return FakeAdapter(add)


def settings_of(loader: Loader, adapter: FakeAdapter) -> ExecutorSettings:
    arm = ArmSettings(name="small", model=None, flags={}, options=NoOptions(), project=Path("/project"))
    return ExecutorSettings(
        run="r1",
        project=Path("/project"),
        arms={"small": BuiltArm(settings=arm, adapter=adapter)},
        definitions=loader,
        decode=decode,
    )


@pytest.fixture
def executor(loader: Loader, adapter: FakeAdapter, make_services: Any) -> Executor:
    return Executor(settings_of(loader, adapter), make_services())


async def test_cases_become_evidence_and_the_eval_is_loaded_once(executor: Executor, loader: Loader) -> None:
    cases = [replace(CASE, ordinal=number, row=json.dumps({"a": number, "b": 1}).encode()) for number in range(20)]
    results = await asyncio.gather(*(executor.execute(100 + case.ordinal, case, AttemptControl()) for case in cases))
    assert [(e.summary.case, e.summary.attempt, e.summary.verdict) for e in results] == [
        (number, 100 + number, Verdict.PASSED) for number in range(20)
    ]
    assert loader.loads == ["sums"]


@pytest.mark.parametrize(
    ("case", "kind", "code", "text"),
    [
        (replace(CASE, arm="huge"), FailureKind.INFRASTRUCTURE, "UNKNOWN_ARM", "no arm 'huge' here, only small"),
        (replace(CASE, definition="gone"), FailureKind.AUTHORING, "EVAL_NOT_LOADED", "no eval gone"),
        (replace(CASE, row=b"{"), FailureKind.AUTHORING, "INVALID_ROW", "a row does not fit"),
    ],
)
async def test_a_case_that_can_not_begin_is_errored_evidence(
    executor: Executor, case: Case, kind: Any, code: str, text: str
) -> None:
    evidence = await executor.execute(1, case, AttemptControl())
    summary = evidence.summary
    assert (summary.outcome, summary.verdict) == (Outcome.ERRORED, Verdict.ERRORED)
    assert (summary.kind, summary.code) == (kind, code)
    assert summary.message is not None and text in summary.message
    assert (evidence.turns, evidence.assertions) == ((), ())


async def test_what_kept_a_case_from_beginning_shows_no_secret(
    loader: Loader, adapter: FakeAdapter, make_services: Any
) -> None:
    executor = Executor(settings_of(loader, adapter), make_services(hidden=Redactor.of(["sk-0123456789"])))
    evidence = await executor.execute(1, replace(CASE, definition="sk-0123456789"), AttemptControl())
    assert "no eval [secret]" in (evidence.summary.message or "")


async def test_a_sandbox_that_can_not_be_planned_is_not_blamed_on_the_eval(
    loader: Loader, adapter: FakeAdapter, make_services: Any
) -> None:
    def broken(definition: EvalDefinition) -> Any:
        raise OSError("no room for the build")

    arm = ArmSettings(name="small", model=None, flags={}, options=NoOptions(), project=Path("/project"))
    built = BuiltArm(settings=arm, adapter=adapter, sandbox=broken)
    settings = ExecutorSettings(
        run="r1", project=Path("/project"), arms={"small": built}, definitions=loader, decode=decode
    )
    summary = (await Executor(settings, make_services()).execute(1, CASE, AttemptControl())).summary
    assert (summary.kind, summary.code) == (FailureKind.SANDBOX, "SANDBOX_FAILED")
    assert summary.message is not None and "no room for the build" in summary.message


async def test_an_evals_own_timeout_comes_first(executor: Executor, adapter: FakeAdapter) -> None:
    async def slowly(turn: Any, ctx: Any) -> Turn:
        await asyncio.sleep(60)
        return Turn()

    adapter.answer = slowly
    summary = (await executor.execute(1, replace(CASE, definition="slow"), AttemptControl())).summary
    assert (summary.kind, summary.message) == (FailureKind.DEADLINE, "the attempt took longer than 0.05 s")


class Builder(FakeSandboxes):
    """Its images come when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.comes = asyncio.Event()

    async def bring(self, spec: SandboxSpec) -> None:
        self.asked.set()
        await self.comes.wait()


@pytest.fixture
def builder() -> Builder:
    return Builder()


@pytest.fixture
def sandboxed(loader: Loader, adapter: FakeAdapter, builder: Builder, make_services: Any) -> Executor:
    arm = ArmSettings(name="small", model=None, flags={}, options=NoOptions(), project=Path("/project"))
    built = BuiltArm(settings=arm, adapter=adapter, sandbox=lambda _: (builder, SandboxSpec(build="/image")))
    settings = ExecutorSettings(
        run="r1", project=Path("/project"), arms={"small": built}, definitions=loader, decode=decode
    )
    return Executor(settings, make_services())


async def test_an_attempt_begins_when_its_image_is_there(sandboxed: Executor, builder: Builder) -> None:
    control = AttemptControl()
    running = asyncio.ensure_future(sandboxed.execute(1, CASE, control))
    await builder.asked.wait()
    assert (control.started_at, builder.made) == (None, [])
    builder.comes.set()
    assert (await running).summary.verdict is Verdict.PASSED
    assert len(builder.made) == 1


async def test_who_waits_for_an_image_can_be_cancelled(sandboxed: Executor, builder: Builder) -> None:
    control = AttemptControl()
    running = asyncio.ensure_future(sandboxed.execute(1, CASE, control))
    await builder.asked.wait()
    control.cancel("the run was cancelled")
    assert (await running).summary.outcome is Outcome.CANCELLED
    assert builder.made == []


def test_the_seed_follows_content_and_repetition_alone() -> None:
    moved = replace(CASE, ordinal=999, arm="other", fingerprint="f")
    assert seed_of(CASE) == seed_of(moved)
    assert seed_of(CASE) != seed_of(replace(CASE, repetition=1))
    assert seed_of(CASE) != seed_of(replace(CASE, content="other"))
    assert 0 <= seed_of(CASE) < 1 << 63


async def test_closing_closes_every_adapter_and_reports_what_does_not(
    executor: Executor, make_services: Any, loader: Loader, adapter: FakeAdapter
) -> None:
    class Broken(FakeAdapter):
        async def close(self) -> None:
            raise OSError("no")

    class Hanging(FakeAdapter):
        async def close(self) -> None:
            await asyncio.sleep(60)

    arm = ArmSettings(name="a", model=None, flags={}, options=NoOptions(), project=Path("/p"))
    arms = {
        "broken": BuiltArm(settings=arm, adapter=Broken(add)),
        "hanging": BuiltArm(settings=arm, adapter=Hanging(add)),
        "fine": BuiltArm(settings=arm, adapter=adapter),
    }
    settings = ExecutorSettings(run="r", project=Path("/p"), arms=arms, definitions=loader, decode=decode)
    problems = await Executor(settings, make_services()).close()
    assert adapter.closed
    assert sorted(problems) == [
        "arm broken: its adapter did not close: OSError: no",
        "arm hanging: its adapter did not close in time",
    ]
    assert await executor.close() == ()
