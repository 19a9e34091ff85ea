"""The `python` adapter: every shape an agent may have, and whose fault each failure is."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from evalfleet.errors import Acceptance, ConfigurationError, FailureKind, SendFailure
from evalfleet.model.turn import TurnInput
from evalfleet.ports import Adapter, AdapterFactory, ArmSettings
from evalfleet.testing.adapter_context import FakeContext
from evalfleet_adapters.python import PythonOptions, factory


@pytest.fixture
def arm(project: Path) -> Any:
    def make(entry: str, **options: Any) -> ArmSettings:
        given = PythonOptions(entry=entry, **options)
        return ArmSettings(name="mine", model="m", flags={"x": 1}, options=given, project=project)

    return make


@pytest.fixture
def adapter(arm: Any) -> Any:
    return lambda name: factory.build(arm(f"my_agents:{name}"))


async def send(adapter: Adapter, text: str = "hi", ctx: FakeContext | None = None) -> str | None:
    ctx = ctx or FakeContext()
    return (await (await adapter.open(ctx)).send(TurnInput(text), ctx)).reply


async def failure(adapter: Adapter, ctx: FakeContext | None = None) -> SendFailure:
    with pytest.raises(SendFailure) as caught:
        await send(adapter, ctx=ctx)
    return caught.value


def test_the_factory_is_one() -> None:
    assert isinstance(factory, AdapterFactory)


@pytest.mark.parametrize(
    ("name", "reply"),
    [("echo", "hi"), ("blocking", "hi False m 1"), ("hidden_coroutine", "hi"), ("bound", "hi")],
)
async def test_functions_of_every_colour(adapter: Any, name: str, reply: str) -> None:
    ctx = FakeContext()
    ctx.model, ctx.flags = "m", {"x": 1}
    assert await send(adapter(name), ctx=ctx) == reply


@pytest.mark.parametrize(("name", "replies"), [("Counter", ["1", "2"]), ("BlockingCounter", ["True", "True"])])
async def test_a_class_is_one_object_a_session(adapter: Any, name: str, replies: list[str]) -> None:
    ctx, agent = FakeContext(), adapter(name)
    session, other = await agent.open(ctx), await agent.open(FakeContext())
    assert [(await session.send(TurnInput("x"), ctx)).reply for _ in range(2)] == replies
    assert (await other.send(TurnInput("x"), ctx)).reply == replies[0]
    await session.close()
    await session.close()
    assert ctx.logged == ["closed"]


def test_a_sandbox_agent_says_so(adapter: Any) -> None:
    assert (adapter("boxed").sandboxed, adapter("echo").sandboxed) == (True, False)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("raises_value_error", "ValueError: boom"),
        ("raises_system_exit", "SystemExit: 3"),
        ("raises_cancelled", "CancelledError: "),
        ("raises_stop_iteration", "StopIteration: from a thread"),
        ("raises_unprintable", "Unprintable: <no message: its __str__ raised>"),
    ],
)
async def test_what_the_agent_raises_is_the_agents_failure(adapter: Any, name: str, message: str) -> None:
    error = await failure(adapter(name))
    assert (error.kind, error.code, error.acceptance) == (FailureKind.AGENT, "AGENT_RAISED", Acceptance.STARTED)
    assert str(error) == message


async def test_an_agent_may_blame_somebody_itself(adapter: Any) -> None:
    error = await failure(adapter("raises_send_failure"))
    assert (error.kind, error.code, error.acceptance) == (FailureKind.PROVIDER, "DOWN", Acceptance.REJECTED)


async def test_a_value_that_is_no_turn_is_the_agents_failure(adapter: Any) -> None:
    error = await failure(adapter("returns_dict"))
    assert (error.kind, error.code) == (FailureKind.AGENT, "INVALID_TURN")
    assert str(error) == "the agent returned a dict; return a Turn, or a str as the reply"


@pytest.mark.parametrize("name", ["sleeps", "turns_cancellation_into_an_error", "waits_in_a_thread"])
async def test_the_deadline_ends_a_send(adapter: Any, name: str) -> None:
    error = await failure(adapter(name), FakeContext(limit=0.05))
    assert (error.kind, error.code) == (FailureKind.DEADLINE, "TURN_TIMEOUT")
    assert str(error).startswith("the agent did not answer within 0.0")


async def test_cancelling_a_send_is_no_failure_of_the_agent(adapter: Any) -> None:
    task = asyncio.ensure_future(send(adapter("sleeps")))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_blocking_agent_does_not_block_the_loop_and_its_threads_are_bounded(arm: Any) -> None:
    agent = factory.build(arm("my_agents:waits_in_a_thread", threads=2))
    sends = [asyncio.ensure_future(send(agent)) for _ in range(3)]
    done, pending = await asyncio.wait(sends, timeout=0.05)
    assert (len(done), len(pending)) == (0, 3)
    import my_agents  # pyright: ignore[reportMissingImports]

    my_agents.released.set()
    assert await asyncio.gather(*sends) == ["released"] * 3
    my_agents.released.clear()


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("nowhere:agent", "arms.mine.entry: there is no module 'nowhere' in the project"),
        ("nowhere.deep:agent", "arms.mine.entry: nowhere.deep can't be found: ModuleNotFoundError: No module named"),
        ("my_agents:missing", "arms.mine.entry: my_agents has no 'missing'"),
        ("my_agents:Counter.missing", "arms.mine.entry: my_agents has no 'Counter.missing'"),
        ("broken_agents:x", "arms.mine.entry: importing broken_agents raised ZeroDivisionError: at import"),
        ("my_agents:plain_function",
         "arms.mine.entry: my_agents:plain_function is a function that declares no coverage; put @agent("),
        ("my_agents:Wordless", "the agent class Wordless needs a method send(turn)"),
    ],
)  # fmt: skip
def test_a_wrong_entry_says_what_to_do(arm: Any, entry: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        factory.build(arm(entry))
    assert str(caught.value).startswith(says)


@pytest.mark.parametrize("entry", ["my_agents", "my_agents:", ":x", "my agents:x", "a:b:c", "./my_agents.py:x", "1a:b"])
def test_an_entry_is_module_colon_attribute(entry: str) -> None:
    with pytest.raises(ValidationError):
        PythonOptions(entry=entry)


def test_unknown_options_are_refused() -> None:
    with pytest.raises(ValidationError):
        PythonOptions.model_validate({"entry": "a:b", "thread": 3})


def test_the_agent_is_identified_by_its_file_without_running_it(arm: Any, project: Path) -> None:
    identity = factory.identify(arm("broken_agents:x"))
    assert (identity.sources, identity.digest, identity.reason) == ((project / "broken_agents.py",), None, None)
    assert factory.identify(arm("sys:exit")).reason == "sys:exit has no Python source file"
