"""`adapter: openai`: a model of any OpenAI-compatible provider, by chat completions or by responses."""

from __future__ import annotations

from typing import cast

from evalfleet.model.tool import Tool
from evalfleet.ports import Adapter, AgentIdentity, ArmSettings
from evalfleet_adapters.chat_wire import ChatWire
from evalfleet_adapters.model_adapter import ModelAdapter, identity, loaded_tools, named_model, needs_key
from evalfleet_adapters.openai_options import OPENAI_URL, OpenAIOptions, declared_coverage
from evalfleet_adapters.responses_wire import ResponsesWire

VERSION = "1"


class OpenAIAdapter(ModelAdapter):
    """Speaks the API that its options name."""

    def __init__(self, model: str, options: OpenAIOptions, tools: tuple[Tool, ...] = ()) -> None:
        wire = ResponsesWire if options.api == "responses" else ChatWire
        super().__init__(wire(model, options, tools), options, tools, declared_coverage(options))


class OpenAIFactory:
    """Builds the `openai` adapter."""

    name = "openai"
    options = OpenAIOptions
    shows_calls = True

    def identify(self, arm: ArmSettings) -> AgentIdentity:
        """A digest and the tools' files."""
        return identity(VERSION, arm, cast("OpenAIOptions", arm.options))

    def build(self, arm: ArmSettings) -> Adapter:
        options, model = cast("OpenAIOptions", arm.options), named_model(arm)
        if options.base_url == OPENAI_URL:
            needs_key(arm, options, OPENAI_URL)
        return OpenAIAdapter(model, options, loaded_tools(arm, options))


factory = OpenAIFactory()
