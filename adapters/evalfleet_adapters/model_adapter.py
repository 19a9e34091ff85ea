"""What the adapters of models share: sessions over one client and one box of tools, and what identifies such an agent.

Although it runs elsewhere, this agent has no code of its own there: it *is* a model under a name, with the prompt,
parameters and tools that stand in the arm. What can't be seen is the provider changing the model behind its name; an
arm that minds pins a dated model name.
"""

from __future__ import annotations

from collections.abc import Sequence

from evalfleet.errors import ConfigurationError
from evalfleet.model.canonical import digest
from evalfleet.model.coverage import Coverage
from evalfleet.model.tool import Tool
from evalfleet.ports import AdapterContext, AgentIdentity, ArmSettings, Session
from evalfleet_adapters.entries import entry_file, load_entry
from evalfleet_adapters.limits import AgentThreads
from evalfleet_adapters.model_client import ModelClient
from evalfleet_adapters.model_options import ModelOptions
from evalfleet_adapters.tool_calls import ToolBox
from evalfleet_adapters.tool_loop import ToolLoop
from evalfleet_adapters.wire import Wire


class ModelAdapter:
    """Converses with a model over one API. Sessions share the connection pool and nothing else."""

    def __init__(self, wire: Wire, options: ModelOptions, tools: Sequence[Tool], coverage: Coverage) -> None:
        self._coverage = coverage
        self._box = ToolBox(tools, AgentThreads(options.tool_threads))
        self._client = ModelClient(wire, options)
        self._rounds = options.max_tool_rounds
        self._guarded = frozenset(options.approve)

    @property
    def coverage(self) -> Coverage:
        return self._coverage

    @property
    def sandboxed(self) -> bool:
        return False

    async def open(self, ctx: AdapterContext) -> Session:
        return ToolLoop(self._client, self._box, rounds=self._rounds, guarded=self._guarded)

    async def close(self) -> None:
        self._box.close()
        await self._client.close()


def identity(version: str, arm: ArmSettings, options: ModelOptions) -> AgentIdentity:
    """A digest of the model and of the options that make the agent, and its tools' files."""
    files = (entry_file(entry, f"arms.{arm.name}.tools") for entry in options.tools)
    sources = tuple(sorted({file for file in files if file is not None}))
    return AgentIdentity(
        version=version, sources=sources, digest=digest({"model": arm.model, **options.agent_fields()})
    )


def named_model(arm: ArmSettings) -> str:
    """The arm's model. Raises ConfigurationError when it names none."""
    if not arm.model:
        raise ConfigurationError(f"arms.{arm.name}.model: name the model")
    return arm.model


def needs_key(arm: ArmSettings, options: ModelOptions, url: str) -> None:
    """Raises ConfigurationError when the arm names no secret for an address that needs one."""
    if options.api_key_env is None:
        raise ConfigurationError(f"arms.{arm.name}.api_key_env: {url} needs a key; name the secret that holds it")


def loaded_tools(arm: ArmSettings, options: ModelOptions) -> tuple[Tool, ...]:
    """The arm's tools. Raises ConfigurationError when one is none, or when `approve` names another."""
    tools = tuple(_load_tool(entry, f"arms.{arm.name}.tools") for entry in options.tools)
    names = [tool.name for tool in tools]
    unknown = next((name for name in options.approve if name not in names), None)
    if unknown is not None:
        known = ", ".join(names) or "none"
        raise ConfigurationError(f"arms.{arm.name}.approve: no tool is named {unknown!r}; there are: {known}")
    return tools


def _load_tool(entry: str, where: str) -> Tool:
    found = load_entry(entry, where)
    if not isinstance(found, Tool):
        raise ConfigurationError(f"{where}: {entry} is a {type(found).__name__}, no tool; put @tool on the function")
    return found
