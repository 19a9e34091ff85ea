"""Agents as functions and classes, direct and in a sandbox; tools; an adapter of one's own."""

from __future__ import annotations

from typing import Annotated, assert_type

from pydantic import BaseModel, ConfigDict

from evalfleet import (
    COMPLETE_COVERAGE,
    AdapterContext,
    Coverage,
    Message,
    OperationFinished,
    OperationStarted,
    OperationStatus,
    Role,
    Turn,
    TurnInput,
    TurnStatus,
    Usage,
    agent,
    complete,
    partial,
    sandbox_agent,
    tool,
    unavailable,
)
from evalfleet.errors import Acceptance, FailureKind, SendFailure
from evalfleet.model.definition import AgentDefinition
from evalfleet.model.tool import Tool
from evalfleet.ports import Adapter, AdapterFactory, AgentIdentity, ArmSettings, Session
from evalfleet.sandbox_ports import Command


@tool
def get_weather(city: Annotated[str, "a city of New York"]) -> dict[str, str]:
    """The weather in a city."""
    return {"city": city, "sky": "sunny"}


@tool(name="look_up", description="Find a page.")
async def find(query: str, limit: int = 5) -> list[str]:
    return [query] * limit


@agent(coverage=COMPLETE_COVERAGE)
async def echo(turn: TurnInput, ctx: AdapterContext) -> Turn:
    call = OperationStarted("call-1", "get_weather", {"city": "Brooklyn"})
    done = OperationFinished("call-1", OperationStatus.COMPLETED, {"sky": "sunny"})
    said = Message(Role.ASSISTANT, f"{ctx.flags.get('prefix', '')}{turn.text}")
    usage = Usage(input_tokens=3, output_tokens=2, requests=1)
    return Turn(status=TurnStatus.COMPLETED, events=(call, done, said), usage=usage)


@agent(
    coverage=Coverage(
        events=partial("final events only"),
        actions=unavailable("not exposed"),
        messages=complete,
        usage=unavailable("not reported"),
        status=complete,
        data=complete,
    )
)
class Clerk:
    def __init__(self, ctx: AdapterContext) -> None:
        self.seed = ctx.seed

    async def send(self, turn: TurnInput) -> str:
        return f"{self.seed}: {turn.text}"


@sandbox_agent(coverage=COMPLETE_COVERAGE)
async def builder(turn: TurnInput, ctx: AdapterContext) -> str:
    done = await ctx.sandbox.run(Command(argv=("make", turn.text)))
    return f"exit code {done.exit_code}"


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    url: str


class Line:
    """One conversation."""

    async def send(self, turn: TurnInput, ctx: AdapterContext) -> Turn:
        if ctx.cancelled:
            raise SendFailure("try again", kind=FailureKind.PROVIDER, code="BUSY", acceptance=Acceptance.REJECTED)
        return Turn(reply=turn.text)

    async def close(self) -> None: ...


class Wire:
    """An adapter."""

    coverage = COMPLETE_COVERAGE
    sandboxed = False

    async def open(self, ctx: AdapterContext) -> Session:
        return Line()

    async def close(self) -> None: ...


class Factory:
    name = "wire"
    options: type[BaseModel] = Options

    def identify(self, arm: ArmSettings) -> AgentIdentity:
        return AgentIdentity(version="1", reason="it runs elsewhere")

    def build(self, arm: ArmSettings) -> Adapter:
        return Wire()


factory: AdapterFactory = Factory()

assert_type(get_weather, Tool)
assert_type(find, Tool)
assert_type(echo, AgentDefinition)
assert_type(builder, AgentDefinition)
