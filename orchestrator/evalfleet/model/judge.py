"""A judge: how it is reached, what one call of it asks and answers, and the row that is kept of the call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from evalfleet.model.usage import Usage

#: Where a judge is reached that names no other place.
JUDGE_URL = "https://api.openai.com/v1"
#: The secret that a judge at `JUDGE_URL` needs.
JUDGE_KEY = "OPENAI_API_KEY"

#: Why a call brought no ruling: no answer came, or none that holds one.
CALL_FAILED, INVALID_RESPONSE = "judge-call-failed", "judge-invalid-response"

#: More votes than this measure nothing more.
MOST_VOTES = 99


class Reducer(StrEnum):
    """How the scores of several votes become one."""

    MEAN = "mean"
    MEDIAN = "median"
    MAJORITY = "majority"
    MIN = "min"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeConfig:
    """The judge of an eval, every field decided. `timeout` is in seconds for all tries of one call together.

    `model` is None when nobody names one. `api_key_env` names a secret, never its value; None sends no key.
    `calibration` is the file with what labelled examples say of this judge, relative to the experiment.
    """

    model: str | None = None
    base_url: str = JUDGE_URL
    api_key_env: str | None = JUDGE_KEY
    votes: int = 1
    reducer: Reducer = Reducer.MEAN
    timeout: float = 180.0
    temperature: float | None = None
    max_tokens: int | None = None
    allow_self: bool = False
    cache: bool = True
    calibration: str | None = None

    def identity(self) -> dict[str, Any]:
        """What decides its answers, as JSON: no key, no time limit, no cache."""
        return {
            "model": self.model,
            "base_url": self.base_url,
            "votes": self.votes,
            "reducer": self.reducer.value,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "allow_self": self.allow_self,
        }


@dataclass(frozen=True, slots=True)
class JudgeMessage:
    """One message of a call. `role` is `system` or `user`."""

    role: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRequest:
    """One model call to make. `schema` is the JSON Schema that the answer is asked to follow; `timeout` in seconds.

    `tries` of it may fail in a way that may pass. `key_name` names the secret with its key.
    """

    model: str
    base_url: str
    messages: tuple[JudgeMessage, ...]
    schema: Mapping[str, Any]
    temperature: float | None
    max_tokens: int | None
    timeout: float
    tries: int = 3
    key_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeReply:
    """What the model answered. `cut_off` says that it ran into its token limit; `tries` counts requests sent.

    `latency` is in seconds for all tries together, without the time that the call waited for its turn.
    """

    text: str
    usage: Usage | None = None
    cut_off: bool = False
    tries: int = 1
    latency: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """A reply, read strictly. `score` is in [0, 1]; `label` the choice it comes from, None when it was a number.

    `repairs` names what had to be forgiven in the reply's form.
    """

    score: float
    label: str | None = None
    rationale: str | None = None
    repairs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeCall:
    """One model call made for an assertion, in full.

    `assertion` is the index of its row. `repetition` and `vote` tell independent draws of one request apart. `request`
    is the digest of everything that decides the answer, `prompt` that of the messages alone. `ruling` is None when
    the call failed or its reply can't be read; `code` and `message` then say why. `started_at` is in seconds since
    the epoch, `latency` in seconds; neither counts the wait for a free place. A `cached` reply was given to an earlier
    call: it took no time and cost nothing here.
    """

    assertion: int
    repetition: int
    vote: int
    recipe: str
    version: int
    model: str
    request: str
    prompt: str
    messages: tuple[JudgeMessage, ...]
    started_at: float
    latency: float
    tries: int
    cached: bool = False
    reply: str | None = None
    ruling: Ruling | None = None
    usage: Usage | None = None
    cost_usd: float | None = None
    code: str | None = None
    message: str | None = None
