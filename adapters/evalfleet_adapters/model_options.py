"""The options that all adapters of models share, and what of them is the agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from evalfleet_adapters.entries import ENTRY_PATTERN
from evalfleet_adapters.transport import Patience

#: Options that change how we talk to the provider, not what the agent is.
_OPERATIONAL = frozenset({"api_key_env", "max_retries", "longest_wait", "timeout", "connect_timeout", "idempotent"})


class ModelOptions(BaseModel):
    """The arm's own fields; the model is the arm's `model`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    api_key_env: str | None = Field(None, description="Name of the secret with the API key; none is sent without it.")
    system: str | None = Field(None, description="The system prompt.")
    stream: bool = Field(False, description="Ask for the answer as a stream.")
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

    def patience(self) -> Patience:
        """The limits of exchanges with the provider."""
        return Patience(
            max_retries=self.max_retries,
            longest_wait=self.longest_wait,
            timeout=self.timeout,
            connect_timeout=self.connect_timeout,
            idempotent=self.idempotent,
        )

    def sampling(self) -> dict[str, Any]:
        """The fields of a request that are set and named alike in all APIs."""
        return {name: getattr(self, name) for name in ("temperature", "top_p") if getattr(self, name) is not None}

    def agent_fields(self) -> dict[str, Any]:
        """The options that make the agent what it is."""
        return {key: value for key, value in self.model_dump(mode="json").items() if key not in _OPERATIONAL}


def set_by_us(params: Mapping[str, Any], own: frozenset[str]) -> Mapping[str, Any]:
    """The params, if none of them is a field that we set. Raises ValueError."""
    twice = own.intersection(params)
    if twice:
        raise ValueError(f"{', '.join(sorted(twice))} can't be set here")
    return params
