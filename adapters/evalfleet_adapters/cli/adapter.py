"""`adapter: cli`: a coding agent as its own program, in the sandbox of the attempt.

The program asks its model by the attempt's gateway, which puts the arm's key in: none is in the sandbox.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

from pydantic import BaseModel, ConfigDict, Field

from evalfleet.errors import ConfigurationError
from evalfleet.model.canonical import digest
from evalfleet.model.coverage import Coverage
from evalfleet.model.model_route import ModelUpstream
from evalfleet.ports import Adapter, AdapterContext, AgentIdentity, ArmSettings, Session
from evalfleet_adapters.cli.claude_code import CLAUDE_CODE
from evalfleet_adapters.cli.codex import CODEX
from evalfleet_adapters.cli.opencode import OPENCODE
from evalfleet_adapters.cli.program import AgentProgram, Wishes
from evalfleet_adapters.cli.session import CliSession, Setup

VERSION = "1"

PROGRAMS: dict[str, AgentProgram] = {program.name: program for program in (CODEX, CLAUDE_CODE, OPENCODE)}

#: Options that change how the agent is reached, not what it is.
_OPERATIONAL = frozenset({"api_key_env", "program", "grace", "keep_model_bodies", "stream_usage"})

Plain = str | int | float | bool


class CliOptions(BaseModel):
    """The arm's own fields; the model is the arm's `model`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    agent: Literal["codex", "claude-code", "opencode"] = Field(description="Which program.")
    version: str | None = Field(
        None, pattern=r"^\d+(\.\d+)+$", description="The program's version; by default the one that was tested."
    )
    program: str | None = Field(
        None, description="The program in the sandbox, as a path or a name on its PATH; by default its usual name."
    )
    base_url: str | None = Field(
        None, pattern=r"^https?://[^\s/]+", description="The model's provider, as its SDK takes it."
    )
    api_key_env: str | None = Field(None, description="Name of the secret with the API key; none is sent without it.")
    settings: Mapping[str, Plain] = Field(
        default_factory=dict[str, Plain], description="Settings of the program itself, as its own file has them."
    )
    mcp_servers: Mapping[str, str] = Field(
        default_factory=dict[str, str],
        description="MCP servers as URLs by name; `${gateway}/mcp` has the tools of the eval's Task pack, which is "
        "there as `pack` without being named.",
    )
    max_tokens: int | None = Field(
        None,
        ge=1,
        description="Token limit of each answer: the gateway sets it in requests with none or a higher one.",
    )
    stream_usage: bool = Field(True, description="Whether chat streams that do not tell their usage are asked to.")
    keep_model_bodies: bool = Field(
        False,
        description="Whether requests to the model and its answers are kept whole.",
    )
    grace: float = Field(10.0, gt=0, description="Seconds that the program may take to end after its last word.")


class CliAdapter:
    """Runs one program in each attempt's sandbox, a process a turn; a session is the program's own."""

    def __init__(self, setup: Setup, upstream: ModelUpstream) -> None:
        self._setup = setup
        self._upstream = upstream

    @property
    def coverage(self) -> Coverage:
        return self._setup.program.coverage

    @property
    def sandboxed(self) -> bool:
        return True

    @property
    def upstream(self) -> ModelUpstream:
        """Where the gateway of an attempt finds the model."""
        return self._upstream

    async def open(self, ctx: AdapterContext) -> Session:
        return CliSession(self._setup)

    async def close(self) -> None: ...


class CliFactory:
    """Builds the `cli` adapter."""

    name = "cli"
    options = CliOptions
    #: The arm's key is nowhere but in the gateway, so that no call it pays passes by.
    shows_calls = True

    def identify(self, arm: ArmSettings) -> AgentIdentity:
        """The program with its version, the model, and the options that make the agent."""
        options = cast("CliOptions", arm.options)
        fields = {key: value for key, value in options.model_dump(mode="json").items() if key not in _OPERATIONAL}
        version = options.version or PROGRAMS[options.agent].version
        return AgentIdentity(version=VERSION, digest=digest({**fields, "version": version, "model": arm.model}))

    def build(self, arm: ArmSettings) -> Adapter:
        options = cast("CliOptions", arm.options)
        program = PROGRAMS[options.agent]
        if not arm.model:
            raise ConfigurationError(f"arms.{arm.name}.model: name the model")
        base_url = options.base_url or program.base_url
        if options.base_url is None and options.api_key_env is None:
            raise ConfigurationError(
                f"arms.{arm.name}.api_key_env: {base_url} needs a key; name the secret that holds it"
            )
        setup = Setup(
            program=program,
            version=options.version or program.version,
            command=options.program or program.command,
            wishes=Wishes(model=arm.model, settings=options.settings, servers=options.mcp_servers),
            grace=options.grace,
        )
        upstream = ModelUpstream(
            dialect=program.dialect,
            provider="cli",
            base_url=base_url.rstrip("/"),
            key=options.api_key_env,
            models=(arm.model,),
            output_limit=options.max_tokens,
            keeps_bodies=options.keep_model_bodies,
            stream_usage=options.stream_usage,
        )
        return CliAdapter(setup, upstream)


factory = CliFactory()
