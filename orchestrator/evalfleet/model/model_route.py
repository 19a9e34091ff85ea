"""Where a sandboxed agent's model really is: what the route `/model/<arm>` of its gateway leads to. Frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Dialect(StrEnum):
    """The API by which an agent asks its model: chat completions, responses or messages."""

    CHAT = "chat"
    RESPONSES = "responses"
    MESSAGES = "messages"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUpstream:
    """A provider as an arm names it. `key` is the *name* of the secret, None where none is sent.

    `base_url` is what the dialect's own SDK takes: with `/v1` of `chat` and `responses`, without of `messages`. A
    request for another model than one of `models` is refused. `output_limit` is in tokens: no answer may be longer.
    `keeps_bodies` has whole requests and answers kept as evidence; `stream_usage` asks chat streams to tell theirs.
    """

    dialect: Dialect
    provider: str
    base_url: str
    key: str | None
    models: tuple[str, ...]
    output_limit: int | None = None
    keeps_bodies: bool = False
    stream_usage: bool = True


def model_prefix(arm: str) -> str:
    """The route of an arm's model."""
    return f"/model/{arm}"
