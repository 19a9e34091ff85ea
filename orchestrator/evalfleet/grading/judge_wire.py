"""OpenAI-style chat completions as a judge speaks them: requests to bytes, bytes to replies. PURE.

Servers differ in which form of answer they can be asked for and in how they call the token limit: a `Dialect` is one
way to ask, and says which to try after a refusal.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from evalfleet.model.judge import JudgeReply, JudgeRequest
from evalfleet.model.usage import Usage
from evalfleet.redact import Redactor

#: Characters of a provider's own text that stand in a message.
SHOWN_TEXT = 200

_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]*)?")
#: What servers answer to a field that they don't know.
_REFUSING = frozenset({400, 404, 422})
_OLD_LIMIT, _NEW_LIMIT = "max_tokens", "max_completion_tokens"


class InvalidCompletion(ValueError):
    """An answer that holds no text of the model; the message says why, and may hold text of the provider."""


class Form(StrEnum):
    """What the answer is asked to be: of one schema, any JSON object, or anything."""

    SCHEMA = "json_schema"
    OBJECT = "json_object"
    ANY = "any"


_LOOSER = {Form.SCHEMA: Form.OBJECT, Form.OBJECT: Form.ANY}


@dataclass(frozen=True, slots=True)
class Dialect:
    """One way to ask a server: the form of the answer, and the name of the field that limits its tokens."""

    form: Form = Form.SCHEMA
    limit: str = _OLD_LIMIT

    def body(self, request: JudgeRequest) -> bytes:
        """The request as JSON; what is not set is left to the server."""
        fields: dict[str, Any] = {
            "model": request.model,
            "messages": [{"role": message.role, "content": message.text} for message in request.messages],
        }
        if request.temperature is not None:
            fields["temperature"] = request.temperature
        if request.max_tokens is not None:
            fields[self.limit] = request.max_tokens
        if self.form is Form.SCHEMA:
            schema = {"name": "ruling", "strict": True, "schema": dict(request.schema)}
            fields["response_format"] = {"type": self.form.value, "json_schema": schema}
        elif self.form is Form.OBJECT:
            fields["response_format"] = {"type": self.form.value}
        return json.dumps(fields).encode("ascii")

    def instead(self, status: int | None, body: bytes) -> Dialect | None:
        """How to ask a server that answered `status` and `body` to this; None when it is not about the asking."""
        if status == 400 and self.limit == _OLD_LIMIT and _NEW_LIMIT.encode() in body:
            return replace(self, limit=_NEW_LIMIT)
        if status in _REFUSING and self.form in _LOOSER:
            return replace(self, form=_LOOSER[self.form])
        return None


def _or_none(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """A field that can't be read is unknown; it spoils neither its neighbours nor the answer."""
    try:
        return validate(value)
    except ValidationError:
        return None


# no token count is larger than what JSON holds exactly and a column takes
_Count = Annotated[int | None, Field(strict=True, ge=0, le=2**53), WrapValidator(_or_none)]
_Amount = Annotated[float | None, Field(strict=True, ge=0, allow_inf_nan=False), WrapValidator(_or_none)]


class _InputDetails(BaseModel):
    cached_tokens: _Count = None
    cache_write_tokens: _Count = None
    cache_creation_tokens: _Count = None


class _OutputDetails(BaseModel):
    reasoning_tokens: _Count = None


class _RawUsage(BaseModel):
    prompt_tokens: _Count = None
    completion_tokens: _Count = None
    prompt_cache_hit_tokens: _Count = None
    prompt_tokens_details: Annotated[_InputDetails | None, WrapValidator(_or_none)] = None
    completion_tokens_details: Annotated[_OutputDetails | None, WrapValidator(_or_none)] = None
    cost: _Amount = None

    def exclusive(self) -> Usage | None:
        """The usage in exclusive buckets: cached tokens are taken out of the input, unless they were never in it."""
        if self.prompt_tokens is None and self.completion_tokens is None:
            return None
        details = self.prompt_tokens_details or _InputDetails()
        read = _known(details.cached_tokens, self.prompt_cache_hit_tokens)
        write = _known(details.cache_write_tokens, details.cache_creation_tokens)
        fresh, cached = self.prompt_tokens, (read or 0) + (write or 0)
        if fresh is not None and cached <= fresh:
            fresh -= cached
        return Usage(
            input_tokens=fresh,
            output_tokens=self.completion_tokens,
            cache_read_tokens=read,
            cache_write_tokens=write,
            reasoning_tokens=(self.completion_tokens_details or _OutputDetails()).reasoning_tokens,
            requests=1,
            cost_usd=self.cost,
        )


class _Said(BaseModel):
    content: str | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Said
    finish_reason: str | None = None


class _Completion(BaseModel):
    choices: Annotated[list[_Choice], Field(min_length=1)]
    usage: Annotated[_RawUsage | None, WrapValidator(_or_none)] = None


def read_completion(body: bytes) -> JudgeReply:
    """The reply in a chat completion, `tries` left at 1. Raises InvalidCompletion when it holds no text."""
    try:
        completion = _Completion.model_validate_json(body)
    except ValidationError:
        raise InvalidCompletion(f"not a chat completion: {provider_text(body)}") from None
    choice = completion.choices[0]
    cut_off = choice.finish_reason == "length"
    if choice.message.refusal:
        raise InvalidCompletion(f"a refusal: {choice.message.refusal}")
    if choice.message.content is None and not cut_off:
        raise InvalidCompletion(f"no text (finish_reason: {choice.finish_reason})")
    usage = None if completion.usage is None else completion.usage.exclusive()
    # a model that spends its limit on thoughts answers nothing, and is paid
    return JudgeReply(text=choice.message.content or "", usage=usage, cut_off=cut_off)


class _Error(BaseModel):
    message: str


class _Reported(BaseModel):
    error: _Error | str


def provider_text(body: bytes) -> str:
    """What a body says went wrong: its error's message, else all of it."""
    try:
        error = _Reported.model_validate_json(body).error
    except ValidationError:
        return body.decode("utf-8", "replace")
    return error if isinstance(error, str) else error.message


def shown(text: str, key: str | None) -> str:
    """Somebody else's text in one line for a message: first without the key, then cut to `SHOWN_TEXT` characters."""
    text = Redactor.of(() if key is None else (key,)).text(text)
    return " ".join((text if len(text) <= SHOWN_TEXT else text[: SHOWN_TEXT - 1] + "…").split())


def host_of(base_url: str) -> str:
    """Host and port of a URL, without the credentials that it may hold."""
    try:
        parts = urlsplit(base_url)
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        return "an unreadable base_url"
    return f"{parts.hostname or 'an unreadable base_url'}{port}"


def wait_asked(retry_after: str, now: float) -> float | None:
    """Seconds that a Retry-After header asks for, as a number or a date; None when it can't be read.

    `now` is seconds since the epoch. A date in the past is 0.
    """
    value = retry_after.strip()
    if _SECONDS.fullmatch(value):
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now)


def _known(*counts: int | None) -> int | None:
    return next((count for count in counts if count is not None), None)
