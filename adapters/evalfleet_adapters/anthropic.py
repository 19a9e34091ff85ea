"""`adapter: anthropic`: a model behind Anthropic's Messages API, or a server that speaks it."""

from __future__ import annotations

from typing import cast

from evalfleet.errors import ConfigurationError
from evalfleet.model.tool import Tool
from evalfleet.ports import Adapter, AgentIdentity, ArmSettings
from evalfleet_adapters.anthropic_options import ANTHROPIC_URL, AnthropicOptions, declared_coverage
from evalfleet_adapters.messages_wire import OUTPUT_TOOL, MessagesWire
from evalfleet_adapters.model_adapter import ModelAdapter, identity, loaded_tools, named_model, needs_key

VERSION = "1"


class AnthropicAdapter(ModelAdapter):
    """Speaks messages. Raises ConfigurationError when a tool has the name of the one that gives structured output."""

    def __init__(self, model: str, options: AnthropicOptions, tools: tuple[Tool, ...] = ()) -> None:
        if any(tool.name == OUTPUT_TOOL for tool in tools):
            raise ConfigurationError(f"a tool is named {OUTPUT_TOOL!r}, which stands for structured output: rename it")
        super().__init__(MessagesWire(model, options, tools), options, tools, declared_coverage(options))


class AnthropicFactory:
    """Builds the `anthropic` adapter."""

    name = "anthropic"
    options = AnthropicOptions
    shows_calls = True

    def identify(self, arm: ArmSettings) -> AgentIdentity:
        """A digest and the tools' files."""
        return identity(VERSION, arm, cast("AnthropicOptions", arm.options))

    def build(self, arm: ArmSettings) -> Adapter:
        options, model = cast("AnthropicOptions", arm.options), named_model(arm)
        if options.base_url == ANTHROPIC_URL:
            needs_key(arm, options, ANTHROPIC_URL)
        return AnthropicAdapter(model, options, loaded_tools(arm, options))


factory = AnthropicFactory()
