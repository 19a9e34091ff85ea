"""The options of `adapter: anthropic`, and what its arms can prove."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from evalfleet.model.coverage import COMPLETE_COVERAGE, Channel, Coverage, partial
from evalfleet_adapters.converters.untrusted import mapping, sequence
from evalfleet_adapters.model_options import ModelOptions, set_by_us

ANTHROPIC_URL = "https://api.anthropic.com"

#: The first version of the API that refuses `temperature` and `top_p`, whatever the model.
_WITHOUT_SAMPLING = "2026-10-21"

_OWN_FIELDS = frozenset({"model", "messages", "system", "stream", "max_tokens", "cache_control"})


class AnthropicOptions(ModelOptions):
    """The arm's own fields; the model is the arm's `model`."""

    base_url: str = Field(
        ANTHROPIC_URL, pattern=r"^https?://[^\s/]+", description="Where `/v1/messages` is found; without `/v1`."
    )
    key_header: Literal["x-api-key", "authorization"] = Field(
        "x-api-key", description="How the key is sent; gateways may want it as a bearer token in `authorization`."
    )
    version: str = Field(
        "2023-06-01", pattern=r"^\d{4}-\d\d-\d\d$", description="The API's version, sent as `anthropic-version`."
    )
    betas: tuple[str, ...] = Field((), description="Beta features to switch on, sent as `anthropic-beta`.")
    max_tokens: int = Field(8192, ge=1, description="Token limit of each answer; the API demands one.")
    cache: Literal["5m", "1h"] | None = Field(
        None,
        description="Have the provider cache each request for so long, so that the next one reads what they share.",
    )
    structured: Literal["format", "tool"] = Field(
        "format",
        description="How structured output is asked for: by `output_config.format`, or by a tool that the model has to "
        "call, for servers and models that know no formats.",
    )

    @field_validator("params")
    @classmethod
    def _keeps_our_fields(cls, params: Mapping[str, Any]) -> Mapping[str, Any]:
        return set_by_us(params, _OWN_FIELDS)

    @model_validator(mode="after")
    def _fits_its_version(self) -> AnthropicOptions:
        if self.version >= _WITHOUT_SAMPLING and self.sampling():
            name = next(iter(self.sampling()))
            raise ValueError(f"version {self.version} of the API takes no {name}: leave it out, or name an older one")
        return self

    @property
    def endpoint(self) -> str:
        return f"{self.base_url.rstrip('/')}/v1/messages"


def declared_coverage(options: AnthropicOptions) -> Coverage:
    """Everything the protocol shows is complete; what one answer lacks, its turn takes back.

    Tools that the provider runs show as blocks, but not all that they do (a sub-agent's calls, say): `server_tools`,
    or a parameter that asks for such tools, makes `actions` partial.
    """
    asked = ["mcp_servers"] if options.params.get("mcp_servers") else []
    asked += [
        f"tools[{mapping(item).get('type')}]"
        for item in sequence(options.params.get("tools"))
        if mapping(item).get("type") not in (None, "custom")
    ]
    if not options.server_tools and not asked:
        return COMPLETE_COVERAGE
    what = f" ({', '.join(asked)})" if asked else ""
    return COMPLETE_COVERAGE.downgrade({Channel.ACTIONS: partial(f"the provider runs tools on its side{what}")})
