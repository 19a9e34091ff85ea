"""What an attempt keeps for its author beside the evidence: what broke a matcher, and what was not enforced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from evalfleet.assertions.matchers import includes, negate, satisfies
from evalfleet.assertions.tools import tool_match
from evalfleet.model.assertion import Result
from evalfleet.model.definition import SandboxSpec
from evalfleet.model.events import InputRequested, Message, OperationStarted, Role
from evalfleet.model.turn import Turn, TurnStatus
from evalfleet.model.usage import Usage
from evalfleet.model.verdict import Verdict
from evalfleet.sandbox_ports import Sandbox
from evalfleet.testing.fakes import FakeAdapter, FakeSandbox, FakeSandboxes, FakeSecrets

SECRET = "hunter2-hunter2"


def broken(value: Any) -> bool:
    raise ValueError(f"no idea what {value} with {SECRET} means")


async def checked(t: Any) -> None:
    t.check((await t.send("x")).reply, satisfies("fits", broken))


async def composed(t: Any) -> None:
    t.check((await t.send("x")).reply, includes("x") & negate(satisfies("fits", broken)))


async def in_a_tool(t: Any) -> None:
    (await t.send("x")).called_tool(tool_match("search", input=satisfies("fits", broken)))


async def stopped(t: Any) -> None:
    await t.check((await t.send("x")).reply, satisfies("fits", broken)).or_stop()


def from_a_thread(t: Any) -> None:
    t.check(t.send("x").reply, satisfies("fits", broken)).or_stop()


@pytest.mark.parametrize("body", [checked, composed, in_a_tool, stopped, from_a_thread])
async def test_the_traceback_of_a_broken_predicate_is_kept_without_secrets(attempt: Any, body: Any) -> None:
    def answer(turn: Any, ctx: Any) -> Turn:
        ctx.secrets.resolve("KEY")
        call = OperationStarted("1", "search", {"q": "x"})
        return Turn(events=(Message(Role.ASSISTANT, "x"), call), usage=Usage(input_tokens=1, output_tokens=1))

    evidence = await attempt(body, answer, using={"secrets": FakeSecrets({"KEY": SECRET})})
    (row,) = evidence.assertions
    assert (row.outcome.result, row.outcome.reason) == (Result.ERRORED, "evaluator-error:ValueError")
    (kept,) = evidence.diagnostics
    assert "test_diagnostics.py" in kept and "in broken" in kept and "ValueError: no idea what" in kept
    assert SECRET not in kept and "[secret]" in kept
    assert SECRET not in (evidence.summary.message or "")


async def test_no_cut_leaves_half_a_secret_in_a_message(attempt: Any) -> None:
    def answer(turn: Any, ctx: Any) -> Turn:
        return Turn(reply="x" * 72 + ctx.secrets.resolve("KEY"))

    async def body(t: Any) -> None:
        t.check((await t.send("x")).reply, includes("sunny"))

    evidence = await attempt(body, answer, using={"secrets": FakeSecrets({"KEY": SECRET})})
    message = evidence.summary.message
    assert message is not None and "[secre" in message and "hunter" not in message


async def test_a_broken_filter_of_an_input_request_is_told_too(attempt: Any) -> None:
    async def body(t: Any) -> None:
        await t.send("x")
        t.require_input_request(prompt=satisfies("fits", broken))

    waiting = Turn(status=TurnStatus.WAITING, events=(InputRequested("r", "Go on?"),))
    evidence = await attempt(body, [waiting])
    assert any("in broken" in kept for kept in evidence.diagnostics)


async def test_a_matcher_that_works_leaves_no_diagnostic(attempt: Any) -> None:
    async def body(t: Any) -> None:
        t.check((await t.send("x")).reply, satisfies("is y", lambda value: value == "y"))

    evidence = await attempt(body)
    assert (evidence.summary.verdict, evidence.diagnostics) == (Verdict.FAILED, ())


@dataclass
class Lax(FakeSandbox):
    """A sandbox that can't keep what its spec says."""

    notices: tuple[str, ...] = ("network: none is not enforced", "resources.cpus: 1 is not enforced")


class LaxSandboxes(FakeSandboxes):
    async def create(self, spec: SandboxSpec, owner: str) -> Sandbox:
        return Lax(id=owner, spec=spec, on_run=self._on_run)


@pytest.mark.parametrize(
    ("provider", "kept"),
    [
        (FakeSandboxes(), ()),
        (LaxSandboxes(), ("sandbox: network: none is not enforced", "sandbox: resources.cpus: 1 is not enforced")),
    ],
)
async def test_what_a_sandbox_does_not_enforce_is_on_the_record(
    attempt: Any, provider: FakeSandboxes, kept: tuple[str, ...]
) -> None:
    async def body(t: Any) -> None:
        t.check((await t.send("x")).reply, includes("x"))

    evidence = await attempt(body, sandbox=(provider, SandboxSpec()))
    assert evidence.diagnostics == kept
    assert evidence.summary.verdict is Verdict.PASSED


KNOWN, UNKNOWN = Usage(input_tokens=10, output_tokens=5), Usage(input_tokens=10)


@pytest.mark.parametrize(
    ("usages", "estimate"),
    [
        ((KNOWN, KNOWN), 0.3),
        ((KNOWN, UNKNOWN), None),
        ((KNOWN, None), None),
        ((None, None), None),
    ],
)
async def test_an_estimate_is_of_all_turns_or_of_none(
    attempt: Any, usages: tuple[Usage | None, ...], estimate: float | None
) -> None:
    async def body(t: Any) -> None:
        for _ in usages:
            (await t.send("x")).succeeded()

    def price(model: str | None, usage: Usage) -> float | None:
        return None if usage.total_tokens is None else usage.total_tokens / 100

    turns = FakeAdapter([Turn(reply="x", usage=usage) for usage in usages])
    assert (await attempt(body, turns, using={"price": price})).summary.estimated_usd == estimate


async def test_a_claim_that_the_turns_contradict_is_told_and_decides_nothing(attempt: Any) -> None:
    async def body(t: Any) -> None:
        (await t.send("x")).succeeded()

    evidence = await attempt(body, [Turn(reply="x")])
    assert evidence.summary.verdict is Verdict.PASSED
    assert evidence.diagnostics == (
        "COVERAGE_CONTRADICTED usage: the adapter declares it complete, but tokens are not known (turns: 1 of 1)",
    )
