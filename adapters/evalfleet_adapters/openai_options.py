"""The options of `adapter: openai`, and what of them is the agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from evalfleet.model.coverage import COMPLETE_COVERAGE, Channel, Coverage, partial
from evalfleet_adapters.converters.untrusted import mapping, sequence
from evalfleet_adapters.entries import ENTRY_PATTERN

OPENAI_URL = "https://api.openai.com/v1"

_OWN_FIELDS = frozenset({"model", "messages", "stream", "stream_options", "n"})

#: Options that change how we talk to the provider, not what the agent is.
_OPERATIONAL = frozenset({"api_key_env", "max_retries", "longest_wait", "timeout", "connect_timeout", "idempotent"})


class OpenAIOptions(BaseModel):
    """The arm's own fields; the model is the arm's `model`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    base_url: str = Field(OPENAI_URL, pattern=r"^https?://[^\s/]+", description="Where `/chat/completions` is found.")
    api_key_env: str | None = Field(None, description="Name of the secret with the API key; none is sent without it.")
    system: str | None = Field(None, description="The system prompt.")
    stream: bool = Field(False, description="Ask for the answer as a stream.")
    stream_usage: bool = Field(True, description="Ask a stream for usage; off for servers that refuse the question.")
    tools: tuple[Annotated[str, Field(pattern=ENTRY_PATTERN)], ...] = Field(
        (), description="Functions marked @tool, each as `module:attribute`; calls are run in the worker."
    )
    approve: tuple[str, ...] = Field(
        (),
        description="Tools whose calls wait for a person, beside those that say `needs_approval`: the turn is then "
        "waiting, and `respond` goes on with it.",
    )
    tool_threads: int = Field(16, ge=1, description="How many synchronous tool calls may run at a time in a worker.")
    max_tool_rounds: int = Field(16, ge=0, description="Rounds of tool calls in one turn; one more fails the turn.")
    server_tools: bool = Field(
        False, description="The provider runs tools of its own; `actions` is then only partly covered."
    )
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = Field(None, ge=1, description="Token limit of each answer, sent as `max_tokens`.")
    seed: int | Literal["case"] | None = Field(None, description="Sampling seed; `case` sends the case's own.")
    strict_schema: bool = Field(False, description="Ask for strict structured output; needs a schema in strict form.")
    params: Mapping[str, Any] = Field(default_factory=dict[str, Any], description="Further fields of the request body.")
    reasoning_as_reply: bool = Field(False, description="Take the reasoning as the reply when there is no other text.")
    empty_reply: Literal["error", "accept"] = Field(
        "error", description="A wholly empty answer is a provider failure that may be retried, or a reply."
    )
    max_retries: int = Field(2, ge=0, description="Repeats of a request that the provider surely did not accept.")
    idempotent: bool = Field(False, description="Repeat also requests that the provider may have accepted and billed.")
    longest_wait: float = Field(20.0, ge=0, description="Longer waits, in seconds, are left to the run's own retries.")
    timeout: float = Field(600.0, gt=0, description="Longest silence of the provider, in seconds.")
    connect_timeout: float = Field(10.0, gt=0, description="Longest time to connect, in seconds.")

    @field_validator("params")
    @classmethod
    def _keeps_our_fields(cls, params: Mapping[str, Any]) -> Mapping[str, Any]:
        own = _OWN_FIELDS.intersection(params)
        if own:
            raise ValueError(f"{', '.join(sorted(own))} can't be set here")
        return params

    @property
    def endpoint(self) -> str:
        return f"{self.base_url.rstrip('/')}/chat/completions"

    def agent_fields(self) -> dict[str, Any]:
        """The options that make the agent what it is."""
        return {key: value for key, value in self.model_dump(mode="json").items() if key not in _OPERATIONAL}


def declared_coverage(options: OpenAIOptions) -> Coverage:
    """Everything the protocol shows is complete; what one answer lacks, its turn takes back.

    `actions` counts our own tools and the model's calls. A provider that runs tools on its side does not show
    them, so `server_tools`, or a parameter that asks for such tools, makes `actions` partial.
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
