"""`adapter: python`: an agent that is Python code in the project.

The arm's `entry` names an `@agent` or `@sandbox_agent`: a coroutine function, a plain function (run in a thread) or
a class with a session. Flags and model reach it through `ctx`. A class with a class method `resume(state, ctx)` can go
on in another process: its turns say their `session_state`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, Field

from evalfleet.errors import (
    Acceptance,
    ConfigurationError,
    EvalfleetError,
    FailureKind,
    SendFailure,
    describe,
)
from evalfleet.model.coverage import Coverage
from evalfleet.model.definition import AgentDefinition
from evalfleet.model.turn import Turn, TurnInput
from evalfleet.ports import Adapter, AdapterContext, AgentIdentity, ArmSettings, Session
from evalfleet_adapters.entries import ENTRY_PATTERN, entry_file, load_entry
from evalfleet_adapters.limits import AgentThreads, within_deadline
from evalfleet_adapters.selections import Offer, SelectingSession, resumed_state

VERSION = "1"


class PythonOptions(BaseModel):
    """The arm's own fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    entry: str = Field(pattern=ENTRY_PATTERN, description="The agent as `module:attribute`, from the project root.")
    threads: int = Field(32, ge=1, description="How many sends of a synchronous agent may run at a time in a worker.")
    selections: bool = Field(
        False, description="Steps of suites are `{text, selection?}`, and select what the turn before offered."
    )


class PythonAdapter:
    """Runs an agent defined in Python. Whatever its code raises is a failure of kind agent."""

    def __init__(self, definition: AgentDefinition, *, threads: int = 32, selections: bool = False) -> None:
        target = definition.target
        if inspect.isclass(target) and not callable(getattr(target, "send", None)):
            raise ConfigurationError(f"the agent class {definition.name} needs a method send(turn)")
        self._definition = definition
        self._threads = AgentThreads(threads)
        self._selections = selections

    @property
    def coverage(self) -> Coverage:
        return self._definition.coverage

    @property
    def sandboxed(self) -> bool:
        return self._definition.sandboxed

    async def open(self, ctx: AdapterContext) -> Session:
        """A session; a class is constructed for it with `ctx`, in a thread when its `send` is synchronous."""
        target = self._definition.target
        if not inspect.isclass(target):
            return self._selecting(_FunctionSession(target, self._threads))
        return self._selecting(await self._construct(target, (ctx,), ctx))

    async def _construct(self, make: Callable[..., Any], given: tuple[Any, ...], ctx: AdapterContext) -> Session:
        blocking = not _is_async(cast("Any", self._definition.target).send)
        agent = await _blame_agent(ctx, lambda: _call(make, given, self._threads if blocking else None))
        return _ObjectSession(agent, self._threads)

    def _selecting(self, session: Session, offered: Offer | None = None) -> Session:
        return SelectingSession(session, offered) if self._selections else session

    async def close(self) -> None:
        self._threads.close()


class ResumingPythonAdapter(PythonAdapter):
    """For an agent class with `resume(state, ctx)`, which makes the agent as it was when a turn left `state`."""

    async def reopen(self, state: Mapping[str, Any], ctx: AdapterContext) -> Session:
        own, offered = resumed_state(state) if self._selections else (state, None)
        resume = cast("Any", self._definition.target).resume
        return self._selecting(await self._construct(resume, (own, ctx), ctx), offered)


class _FunctionSession:
    def __init__(self, target: Callable[..., Any], threads: AgentThreads) -> None:
        self._target = target
        self._threads = None if _is_async(target) else threads

    async def send(self, turn: TurnInput, ctx: AdapterContext) -> Turn:
        return _turn(await _blame_agent(ctx, lambda: _call(self._target, (turn, ctx), self._threads)))

    async def close(self) -> None: ...


class _ObjectSession:
    def __init__(self, agent: Any, threads: AgentThreads) -> None:
        self._agent = agent
        self._threads = threads
        self._closed = False

    async def send(self, turn: TurnInput, ctx: AdapterContext) -> Turn:
        threads = None if _is_async(self._agent.send) else self._threads
        return _turn(await _blame_agent(ctx, lambda: _call(self._agent.send, (turn,), threads)))

    async def close(self) -> None:
        close = getattr(self._agent, "close", None)
        if self._closed or close is None:
            return
        self._closed = True
        await _blame_agent(None, lambda: _call(close, (), None if _is_async(close) else self._threads))


class PythonFactory:
    """Builds the `python` adapter."""

    name = "python"
    options = PythonOptions

    def identify(self, arm: ArmSettings) -> AgentIdentity:
        """The entry's file; planning hashes it with what it imports from the project."""
        entry = cast("PythonOptions", arm.options).entry
        source = entry_file(entry, f"arms.{arm.name}.entry")
        if source is None:
            return AgentIdentity(version=VERSION, reason=f"{entry} has no Python source file")
        return AgentIdentity(version=VERSION, sources=(source,))

    def build(self, arm: ArmSettings) -> Adapter:
        options = cast("PythonOptions", arm.options)
        where = f"arms.{arm.name}.entry"
        target = load_entry(options.entry, where)
        if not isinstance(target, AgentDefinition):
            raise ConfigurationError(
                f"{where}: {options.entry} is a {type(target).__name__} that declares no coverage; put "
                "@agent(coverage=Coverage(…)) (or @sandbox_agent) on the function or class and name all six channels"
            )
        resumes = inspect.isclass(target.target) and callable(getattr(target.target, "resume", None))
        kind = ResumingPythonAdapter if resumes else PythonAdapter
        return kind(target, threads=options.threads, selections=options.selections)


factory = PythonFactory()


def _is_async(target: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(getattr(target, "__call__", None))  # noqa: B004


async def _call(target: Callable[..., Any], args: tuple[Any, ...], threads: AgentThreads | None) -> Any:
    """Call agent code, in a thread when `threads` is given; what turns out to be awaitable is awaited here."""
    result = target(*args) if threads is None else await threads.run(lambda: target(*args))
    return await result if inspect.isawaitable(result) else result


async def _blame_agent(ctx: AdapterContext | None, call: Callable[[], Awaitable[Any]]) -> Any:
    """Await agent code within the deadline. Our own errors and cancellation pass; all else is the agent's."""
    try:
        if ctx is None:
            return await call()
        async with within_deadline(ctx):
            return await call()
    except (EvalfleetError, KeyboardInterrupt, GeneratorExit):
        raise
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise _agent_raised(error) from error
    except BaseException as error:
        raise _agent_raised(error) from error


def _agent_raised(error: BaseException) -> SendFailure:
    if isinstance(error, RuntimeError) and isinstance(error.__cause__, StopIteration):
        error = error.__cause__  # Python lets no StopIteration cross a coroutine
    return SendFailure(
        f"{type(error).__name__}: {describe(error)}",
        kind=FailureKind.AGENT,
        code="AGENT_RAISED",
        acceptance=Acceptance.STARTED,
    )


def _turn(value: object) -> Turn:
    if isinstance(value, Turn):
        return value
    if isinstance(value, str):
        return Turn(reply=value)
    raise SendFailure(
        f"the agent returned a {type(value).__name__}; return a Turn, or a str as the reply",
        kind=FailureKind.AGENT,
        code="INVALID_TURN",
        acceptance=Acceptance.STARTED,
    )
