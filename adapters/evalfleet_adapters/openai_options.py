"""The options of `adapter: openai`, and what its arms can prove."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from evalfleet.model.coverage import COMPLETE_COVERAGE, Channel, Coverage, partial
from evalfleet_adapters.converters.untrusted import mapping, sequence
from evalfleet_adapters.model_options import ModelOptions, set_by_us

OPENAI_URL = "https://api.openai.com/v1"

_OWN_FIELDS = frozenset({"model", "messages", "stream", "stream_options", "n"})
_OWN_OF_RESPONSES = frozenset({"model", "input", "instructions", "stream", "previous_response_id", "conversation"})


class OpenAIOptions(ModelOptions):
    """The arm's own fields; the model is the arm's `model`."""

    api: Literal["chat", "responses"] = Field(
        "chat", description="The API that is spoken: `/chat/completions` or `/responses`."
    )
    base_url: str = Field(OPENAI_URL, pattern=r"^https?://[^\s/]+", description="Where the API is found.")
    stream_usage: bool = Field(
        True, description="Ask a stream of chat completions for usage; off for servers that refuse the question."
    )
    max_tokens: int | None = Field(
        None, ge=1, description="Token limit of each answer, sent as `max_tokens`, or `max_output_tokens` of responses."
    )
    seed: int | Literal["case"] | None = Field(
        None, description="Sampling seed of chat completions; `case` sends the case's own."
    )
    strict_schema: bool = Field(False, description="Ask for strict structured output; needs a schema in strict form.")

    @field_validator("params")
    @classmethod
    def _keeps_our_fields(cls, params: Mapping[str, Any]) -> Mapping[str, Any]:
        return set_by_us(params, _OWN_FIELDS)

    @model_validator(mode="after")
    def _fits_its_api(self) -> OpenAIOptions:
        if self.api == "responses":
            set_by_us(self.params, _OWN_OF_RESPONSES)
            if self.seed is not None:
                raise ValueError("the responses API takes no seed: leave it out, or use `api: chat`")
        return self

    @property
    def endpoint(self) -> str:
        return f"{self.base_url.rstrip('/')}/{'responses' if self.api == 'responses' else 'chat/completions'}"

    def agent_fields(self) -> dict[str, Any]:
        """The options that make the agent what it is; the API only where it is not the usual one."""
        fields = super().agent_fields()
        return {key: value for key, value in fields.items() if (key, value) != ("api", "chat")}


def declared_coverage(options: OpenAIOptions) -> Coverage:
    """Everything the protocol shows is complete; what one answer lacks, its turn takes back.

    `actions` counts our own tools and the model's calls. A provider that runs tools on its side does not show
    all of them, so `server_tools`, or a parameter that asks for such tools, makes `actions` partial.
    """
    asked = [name for name in ("web_search_options", "plugins") if options.params.get(name)]
    asked += [
        f"tools[{mapping(item).get('type')}]"
        for item in sequence(options.params.get("tools"))
        if mapping(item).get("type") not in ("function", "custom")
    ]
    if not options.server_tools and not asked:
        return COMPLETE_COVERAGE
    what = f" ({', '.join(asked)})" if asked else ""
    return COMPLETE_COVERAGE.downgrade({Channel.ACTIONS: partial(f"the provider runs tools on its side{what}")})
