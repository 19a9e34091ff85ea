"""`adapter: acp`: any agent that speaks the Agent Client Protocol on its stdin and stdout, in the attempt's sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

from pydantic import BaseModel, ConfigDict, Field, model_validator

from evalfleet.errors import ConfigurationError
from evalfleet.model.canonical import digest
from evalfleet.model.coverage import Coverage, complete, partial, unavailable
from evalfleet.model.model_route import Dialect, ModelUpstream
from evalfleet.ports import Adapter, AdapterContext, AgentIdentity, ArmSettings, Session
from evalfleet_adapters.acp.known import KNOWN
from evalfleet_adapters.acp.session import AcpSession, AcpSetup
from evalfleet_adapters.cli.adapter import Plain
from evalfleet_adapters.cli.program import Wishes

VERSION = "1"

_OPERATIONAL = frozenset({"api_key_env", "keep_model_bodies", "stream_usage"})

_COVERAGE = Coverage(
    events=partial("an agent tells what it likes by this protocol"),
    actions=partial("an agent need not tell its operations by this protocol"),
    messages=complete,
    usage=unavailable("the protocol tells none"),
    status=complete,
    data=unavailable("not asked for"),
)


class AcpOptions(BaseModel):
    """The arm's own fields; the model is the arm's `model`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    agent: Literal["codex", "claude-code", "opencode"] | None = Field(
        None, description="An agent whose files and environment are known, so that it asks its model by the gateway."
    )
    command: tuple[str, ...] = Field(
        (), description="The program in the sandbox with its arguments; by default that of `agent`."
    )
    version: str | None = Field(None, description="The version that the agent must say it has.")
    dialect: Dialect | None = Field(
        None,
        description="The API by which another agent asks its model at `${model_url}`; without it, its own way.",
    )
    base_url: str | None = Field(
        None, pattern=r"^https?://[^\s/]+", description="The model's provider, as its SDK takes it."
    )
    api_key_env: str | None = Field(None, description="Name of the secret with the API key; none is sent without it.")
    settings: Mapping[str, Plain] = Field(
        default_factory=dict[str, Plain], description="Settings of a known agent, as its own file has them."
    )
    env: Mapping[str, str] = Field(
        default_factory=dict[str, str],
        description="Its environment; `${model_url}` is the model in the gateway without `/v1`.",
    )
    files: Mapping[str, str] = Field(
        default_factory=dict[str, str], description="Files for it, as texts by name, with the same marks as `env`."
    )
    mcp_servers: Mapping[str, str] = Field(
        default_factory=dict[str, str],
        description="MCP servers as URLs by name; that of the eval's Task pack is there as `pack` without being named.",
    )
    permissions: Literal["allow", "deny", "ask"] = Field(
        "allow", description="What the agent is answered when it asks; `ask` has the eval answer."
    )
    mode: str | None = Field(None, description="The session mode, one of the agent's own.")
    max_tokens: int | None = Field(
        None, ge=1, description="Token limit of each answer: the gateway sets it in requests with none or a higher one."
    )
    stream_usage: bool = Field(True, description="Whether chat streams that do not tell their usage are asked to.")
    keep_model_bodies: bool = Field(False, description="Whether requests to the model and its answers are kept whole.")

    @model_validator(mode="after")
    def _startable(self) -> AcpOptions:
        if self.agent is None and not self.command:
            raise ValueError("needs `agent`, or `command` with the program and its arguments")
        if self.agent is not None and self.dialect is not None:
            raise ValueError(f"`dialect` is that of {self.agent}; it is for other agents")
        if self.dialect is not None and self.base_url is None:
            raise ValueError("`dialect` needs `base_url`: the provider that the gateway asks")
        return self


class AcpAdapter:
    """Runs one program for each session, for as long as it lives."""

    def __init__(self, setup: AcpSetup) -> None:
        self._setup = setup

    @property
    def coverage(self) -> Coverage:
        return _COVERAGE

    @property
    def sandboxed(self) -> bool:
        return True

    async def open(self, ctx: AdapterContext) -> Session:
        return AcpSession(self._setup)

    async def close(self) -> None: ...


class AcpAdapterByGateway(AcpAdapter):
    """One whose agent asks its model by the gateway."""

    def __init__(self, setup: AcpSetup, upstream: ModelUpstream) -> None:
        super().__init__(setup)
        self._upstream = upstream

    @property
    def upstream(self) -> ModelUpstream:
        """Where the gateway of an attempt finds the model."""
        return self._upstream


class AcpFactory:
    """Builds the `acp` adapter."""

    name = "acp"
    options = AcpOptions

    def shows_calls(self, options: BaseModel) -> bool:
        """Whether the agent's model calls pass the gateway."""
        return _dialect(cast("AcpOptions", options)) is not None

    def identify(self, arm: ArmSettings) -> AgentIdentity:
        """The command, the model, and the options that make the agent."""
        options = cast("AcpOptions", arm.options)
        fields = {key: value for key, value in options.model_dump(mode="json").items() if key not in _OPERATIONAL}
        return AgentIdentity(version=VERSION, digest=digest({**fields, "model": arm.model}))

    def build(self, arm: ArmSettings) -> Adapter:
        options = cast("AcpOptions", arm.options)
        known = None if options.agent is None else KNOWN[options.agent]
        dialect = _dialect(options)
        if dialect is not None and not arm.model:
            raise ConfigurationError(f"arms.{arm.name}.model: name the model")
        setup = AcpSetup(
            name=options.agent or "agent",
            command=options.command or (() if known is None else known.command),
            version=options.version,
            wishes=Wishes(model=arm.model or "", settings=options.settings, servers=options.mcp_servers),
            launch=None if known is None else known.launch,
            env=options.env,
            files=options.files,
            permissions=options.permissions,
            mode=options.mode or (None if known is None else known.mode),
        )
        base_url = options.base_url or (None if known is None else known.program.base_url)
        if dialect is None or base_url is None or arm.model is None:
            return AcpAdapter(setup)
        if options.base_url is None and options.api_key_env is None:
            message = f"{base_url} needs a key; name the secret that holds it"
            raise ConfigurationError(f"arms.{arm.name}.api_key_env: {message}")
        return AcpAdapterByGateway(
            setup,
            ModelUpstream(
                dialect=dialect,
                provider="acp",
                base_url=base_url.rstrip("/"),
                key=options.api_key_env,
                models=(arm.model,),
                output_limit=options.max_tokens,
                keeps_bodies=options.keep_model_bodies,
                stream_usage=options.stream_usage,
            ),
        )


def _dialect(options: AcpOptions) -> Dialect | None:
    return options.dialect if options.agent is None else KNOWN[options.agent].program.dialect


factory = AcpFactory()
