"""The `scripted` adapter: it does what it is told, and the same every time."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from evalfleet.errors import Acceptance, FailureKind, SendFailure
from evalfleet.model.coverage import Channel, complete, partial, unavailable
from evalfleet.model.events import (
    MISSING,
    InputRequested,
    Message,
    OperationFinished,
    OperationStarted,
    OperationStatus,
    Role,
    Thinking,
)
from evalfleet.model.turn import InputFile, Turn, TurnInput, TurnStatus
from evalfleet.model.usage import Usage
from evalfleet.ports import AdapterFactory, ArmSettings
from evalfleet.testing.adapter_context import FakeContext
from evalfleet_adapters.scripted import ScriptedAdapter, ScriptedOptions, factory
from evalfleet_adapters.spread import between, fraction

NOTHING = Usage(input_tokens=0, output_tokens=0, requests=0)


def scripted(**options: Any) -> ScriptedAdapter:
    return ScriptedAdapter(ScriptedOptions.model_validate(options))


async def say(adapter: ScriptedAdapter, *texts: str, ctx: Any = None) -> list[Turn]:
    ctx = ctx or FakeContext()
    session = await adapter.open(ctx)
    return [await session.send(TurnInput(text), ctx) for text in texts]


async def replies(adapter: ScriptedAdapter, *texts: str, ctx: Any = None) -> list[str | None]:
    return [turn.reply for turn in await say(adapter, *texts, ctx=ctx)]


def test_the_factory_is_one() -> None:
    assert isinstance(factory, AdapterFactory)


async def test_it_echoes_or_recites() -> None:
    assert await say(scripted(), "a\0\ud800") == [Turn(reply="a\0\ud800", usage=NOTHING)]
    assert await replies(scripted(replies=["x", "y"]), "1", "2", "3") == ["x", "y", "x"]


async def test_the_first_rule_that_fits_is_used() -> None:
    adapter = scripted(
        rules=[
            {"includes": "weather", "pattern": "Oslo|Bergen", "reply": "rain"},
            {"includes": "weather", "reply": "sun"},
            {"turn": 2, "reply": "third"},
        ],
        replies=["else"],
    )
    texts = ("weather in Bergen", "weather in Rome", "hi", "hello")
    assert await replies(adapter, *texts) == ["rain", "sun", "third", "else"]


@pytest.mark.parametrize(
    ("condition", "fits", "misses"), [("attempt", 1, 2), ("repetition", 0, 1)], ids=["attempt", "repetition"]
)
async def test_a_rule_may_depend_on_the_attempt_and_the_repetition(condition: str, fits: int, misses: int) -> None:
    adapter = scripted(rules=[{condition: fits, "reply": "ruled"}])
    for value, reply in ((fits, "ruled"), (misses, "x")):
        ctx = FakeContext()
        setattr(ctx, condition, value)
        assert await replies(adapter, "x", ctx=ctx) == [reply]


async def test_a_share_of_the_cases_is_chosen_by_their_seeds() -> None:
    adapter = scripted(rules=[{"share": 0.25, "reply": "chosen"}])
    chosen = 0
    for seed in range(2000):
        ctx = FakeContext()
        ctx.seed = seed
        first, second = await replies(adapter, "x", "x", ctx=ctx)
        assert first == second
        chosen += first == "chosen"
    assert 430 <= chosen <= 570


async def test_an_act_makes_a_whole_turn() -> None:
    rule = {
        "reply": "done",
        "thinking": "hm",
        "tools": [
            {"name": "f", "input": {"n": 9007199254740993}, "output": [1]},
            {"name": "g", "status": "failed", "output": "no"},
            {"name": "h", "status": "rejected"},
            {"name": "i", "status": "pending"},
        ],
        "events": [{"type": "input.requested", "request_id": "q1", "prompt": "Sure?"}],
        "status": "waiting",
        "data": None,
        "usage": {"input_tokens": 3},
        "coverage": {"actions": "partial: only some"},
    }
    (turn,) = await say(scripted(rules=[rule]), "x")
    assert turn == Turn(
        status=TurnStatus.WAITING,
        reply="done",
        events=(
            Thinking("hm"),
            OperationStarted("0.0", "f", {"n": 9007199254740993}),
            OperationStarted("0.1", "g", {}),
            OperationStarted("0.2", "h", {}),
            OperationStarted("0.3", "i", {}),
            OperationFinished("0.0", OperationStatus.COMPLETED, [1]),
            OperationFinished("0.1", OperationStatus.FAILED, "no"),
            OperationFinished("0.2", OperationStatus.REJECTED, MISSING),
            InputRequested("q1", "Sure?"),
            Message(Role.ASSISTANT, "done"),
        ),
        data=None,
        usage=Usage(input_tokens=3),
        coverage={Channel.ACTIONS: partial("only some")},
    )


async def test_a_failure_comes_on_order() -> None:
    fail = {"kind": "sandbox", "code": "GONE", "message": "m", "acceptance": "rejected", "retry_after": 1.5}
    adapter = scripted(rules=[{"turn": 1, "fail": fail}])
    session, ctx = await adapter.open(FakeContext()), FakeContext()
    assert (await session.send(TurnInput("a"), ctx)).reply == "a"
    with pytest.raises(SendFailure, match="m") as caught:
        await session.send(TurnInput("b"), ctx)
    error = caught.value
    assert (error.kind, error.code, error.acceptance) == (FailureKind.SANDBOX, "GONE", Acceptance.REJECTED)
    assert error.retry_after == 1.5
    assert (await session.send(TurnInput("c"), ctx)).reply == "c"


async def test_hanging_ends_at_the_deadline_and_when_cancelled() -> None:
    adapter = scripted(rules=[{"hang": True}])
    with pytest.raises(SendFailure) as caught:
        await say(adapter, "x", ctx=FakeContext(limit=0.02))
    assert caught.value.kind is FailureKind.DEADLINE
    task = asyncio.ensure_future(say(adapter, "x"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_spinning_blocks_the_loop() -> None:
    ticked = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.005, ticked.set_result, None)
    await say(scripted(rules=[{"spin": 0.03}]), "x")
    assert not ticked.done()
    await ticked


def test_exit_ends_the_process() -> None:
    program = (
        "import asyncio\n"
        "from evalfleet.model.turn import TurnInput\n"
        "from evalfleet.testing.adapter_context import FakeContext\n"
        "from evalfleet_adapters.scripted import ScriptedAdapter, ScriptedOptions\n"
        "async def main():\n"
        "    adapter = ScriptedAdapter(ScriptedOptions(rules=[{'exit': 42}]))\n"
        "    await (await adapter.open(FakeContext())).send(TurnInput('x'), FakeContext())\n"
        "asyncio.run(main())\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 42


class _StoppedClock:
    """Never waits; keeps how long it was asked to."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def wall(self) -> float:
        return 0.0

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


async def test_latency_is_drawn_from_the_seed() -> None:
    slept: list[list[float]] = []
    for seed in (1, 1, 2):
        clock = _StoppedClock()
        ctx = FakeContext(clock=clock)
        ctx.seed = seed
        await say(scripted(latency=[0.1, 0.2]), "a", "b", ctx=ctx)
        slept.append(clock.slept)
    assert slept[0] == slept[1] != slept[2]
    assert all(0.1 <= seconds <= 0.2 for pair in slept for seconds in pair)
    clock = _StoppedClock()
    await say(scripted(latency=3, rules=[{"turn": 1, "latency": 0}]), "a", "b", ctx=FakeContext(clock=clock))
    assert clock.slept == [3]


@pytest.mark.parametrize(
    ("text", "turn"),
    [
        ("[[reply: hello]] there", Turn(reply="hello", events=(Message(Role.ASSISTANT, "hello"),), usage=NOTHING)),
        ("no [[1, 2], [3]] directive", Turn(reply="no [[1, 2], [3]] directive", usage=NOTHING)),
        ("[[unknown: x]]", Turn(reply="[[unknown: x]]", usage=NOTHING)),
        ('[[status: failed]][[data: [[1]]]][[reply: r]]',
         Turn(status=TurnStatus.FAILED, reply="r", events=(Message(Role.ASSISTANT, "r"),), data=[[1]], usage=NOTHING)),
        ('[[usage: {"input_tokens": 7}]][[echo]]',
         Turn(reply='[[usage: {"input_tokens": 7}]][[echo]]', usage=Usage(input_tokens=7),
              events=(Message(Role.ASSISTANT, '[[usage: {"input_tokens": 7}]][[echo]]'),))),
    ],
)  # fmt: skip
async def test_directives_in_the_text(text: str, turn: Turn) -> None:
    assert await say(scripted(directives=True), text) == [turn]
    assert await say(scripted(), text) == [Turn(reply=text, usage=NOTHING)]


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ("[[fail]]", FailureKind.PROVIDER, "this failure was ordered"),
        ("[[fail: agent]]", FailureKind.AGENT, "this failure was ordered"),
        ('[[fail: {"kind": "worker", "message": "w"}]]', FailureKind.WORKER, "w"),
        ("[[fail: nobody]]", FailureKind.AUTHORING, "directive fail.kind: Input should be"),
        ('[[tools: [{"x"]]', FailureKind.AUTHORING, "directive tools: not valid JSON"),
        ("[[spin: -1]]", FailureKind.AUTHORING, "directive spin: Input should be greater than or equal to 0"),
    ],
)
async def test_failing_and_broken_directives(text: str, kind: FailureKind, says: str) -> None:
    with pytest.raises(SendFailure) as caught:
        await say(scripted(directives=True), text)
    assert caught.value.kind is kind
    assert str(caught.value).startswith(says)


@pytest.mark.parametrize(
    "options",
    [
        {"reply": "x"},
        {"rules": [{"pattern": "("}]},
        {"rules": [{"events": [{"type": "nonsense"}]}]},
        {"rules": [{"events": [{"type": "thinking", "txt": "x"}]}]},
        {"rules": [{"fail": {"kind": "nobody"}}]},
        {"coverage": {"usage": "partial"}},
        {"coverage": {"usage": "some"}},
        {"latency": [1, 2, 3]},
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ScriptedOptions.model_validate(options)


def test_coverage_is_complete_unless_it_says_otherwise() -> None:
    coverage = scripted(coverage={"usage": "unavailable: not asked", "data": "complete"}).coverage
    assert coverage.usage == unavailable("not asked")
    assert (coverage.data, coverage.events) == (complete, complete)


def test_the_options_are_the_agents_identity(tmp_path: Any) -> None:
    def identity(**options: Any) -> str | None:
        given = ScriptedOptions.model_validate(options)
        return factory.identify(ArmSettings(name="a", model=None, flags={}, options=given, project=tmp_path)).digest

    rule = {
        "events": [{"type": "thinking", "text": "\ud800"}],
        "data": 9007199254740993,
        "coverage": {"data": "complete"},
    }
    assert identity(rules=[rule]) == identity(rules=[rule])
    assert len({identity(rules=[rule]), identity(), identity(replies=["x"]), identity(replies=["y"])}) == 4


@given(st.integers(), st.floats(0, 9), st.floats(0, 9))
def test_spread_stays_inside(seed: int, low: float, high: float) -> None:
    assert 0 <= fraction(seed) < 1
    assert min(low, high) <= between(low, high, seed) <= max(low, high)


async def test_the_null_path_costs_next_to_nothing() -> None:
    """Measured around 1 µs a send; 20 µs would be felt at a million Cases."""
    ctx, adapter, turn = FakeContext(), scripted(replies=["ok"]), TurnInput("x")
    session = await adapter.open(ctx)
    best = float("inf")
    for _ in range(20):
        began = time.perf_counter()
        for _ in range(200):
            await session.send(turn, ctx)
        best = min(best, (time.perf_counter() - began) / 200)
    assert best < 20e-6


async def test_files_are_refused_before_anything_is_said() -> None:
    session = await ScriptedAdapter(ScriptedOptions()).open(FakeContext())
    with pytest.raises(SendFailure, match="the scripted agent does not read") as caught:
        await session.send(TurnInput("look", files=(InputFile("a.txt", "text/plain", b"x"),)), FakeContext())
    assert (caught.value.code, caught.value.acceptance) == ("INPUT_UNSUPPORTED", Acceptance.REJECTED)
    assert (await session.send(TurnInput("look"), FakeContext())).reply == "look"
