"""What an agent may ask of its model by the gateway, and how it is told that it may not. PURE."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

from evalfleet.model.model_route import Dialect, ModelUpstream

#: Where each dialect is asked, below the route, and where its `base_url` already leads to.
_ASKED = {
    Dialect.CHAT: {"/v1/chat/completions": "/chat/completions"},
    Dialect.RESPONSES: {"/v1/responses": "/responses"},
    Dialect.MESSAGES: {"/v1/messages": "/v1/messages", "/v1/messages/count_tokens": "/v1/messages/count_tokens"},
}
#: How the dialects call the most tokens of an answer.
_LIMITS = ("max_output_tokens", "max_completion_tokens", "max_tokens")
#: Headers of a request that go on: what else an agent sends is ours to say, its key first of all.
_PASSED = frozenset({"content-type", "accept", "anthropic-version", "anthropic-beta", "openai-beta", "user-agent"})
#: Headers of an answer that go back.
_RETURNED = frozenset({"content-type", "retry-after", "retry-after-ms", "request-id", "x-request-id", "x-should-retry"})


class Refused(Exception):
    """A request that is not passed on: the status, and the type of the error in the dialect's own form."""

    def __init__(self, status: int, kind: str, message: str, retry_after: float | None = None) -> None:
        self.status = status
        self.kind = kind
        self.retry_after = retry_after
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request that may be passed on, as it goes on: `body` is `document`, or says the same in the agent's bytes.

    `output_limit` is in tokens; `counts` is one that only has tokens counted, and costs nothing.
    """

    url: str
    model: str
    body: bytes
    document: Mapping[str, Any]
    output_limit: int | None
    counts: bool


def read_request(upstream: ModelUpstream, method: str, path: str, body: bytes) -> Asked:
    """What a request below the route asks for. Raises Refused."""
    below = _ASKED[upstream.dialect].get(path)
    if below is None:
        raise Refused(404, "not_found_error", f"{path} is not served here: ask {', '.join(_ASKED[upstream.dialect])}")
    if method != "POST":
        raise Refused(405, "invalid_request_error", f"{path} takes POST")
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise Refused(400, "invalid_request_error", "the body is no JSON object")
    document = cast("dict[str, Any]", value)
    model = document.get("model")
    if not isinstance(model, str) or model not in upstream.models:
        allowed = ", ".join(upstream.models)
        raise Refused(403, "permission_error", f"the model {model!r} is not this arm's: {allowed}")
    counts = path.endswith("/count_tokens")
    changes = {} if counts else {**_limited(upstream, document), **_telling_usage(upstream, document)}
    document |= changes
    return Asked(
        url=upstream.base_url + below,
        model=model,
        body=json.dumps(document).encode() if changes else body,
        document=document,
        output_limit=_limit_of(document)[1],
        counts=counts,
    )


def _limit_of(document: Mapping[str, Any]) -> tuple[str | None, int | None]:
    """The field that limits the answer, and its tokens."""
    for name in _LIMITS:
        value = document.get(name)
        if type(value) is int and value > 0:
            return name, value
    return None, None


def _limited(upstream: ModelUpstream, document: Mapping[str, Any]) -> dict[str, Any]:
    """What is changed of a request whose answer may be longer than the arm's limit."""
    most = upstream.output_limit
    name, asked = _limit_of(document)
    if most is None or (asked is not None and asked <= most):
        return {}
    return {name or _limit_name(upstream): most}


def _limit_name(upstream: ModelUpstream) -> str:
    """How a request without a limit says one: OpenAI's newer models take another field than all others do."""
    if upstream.dialect is Dialect.RESPONSES:
        return "max_output_tokens"
    own = upstream.dialect is Dialect.CHAT and urlsplit(upstream.base_url).hostname == "api.openai.com"
    return "max_completion_tokens" if own else "max_tokens"


def _telling_usage(upstream: ModelUpstream, document: Mapping[str, Any]) -> dict[str, Any]:
    """What is changed of a request for a stream that would not tell its usage: it is asked to, at its end."""
    if upstream.dialect is not Dialect.CHAT or not upstream.stream_usage or document.get("stream") is not True:
        return {}
    options = document.get("stream_options")
    own = cast("dict[str, Any]", options) if isinstance(options, dict) else {}
    return {} if own.get("include_usage") is True else {"stream_options": {**own, "include_usage": True}}


def models_listed(upstream: ModelUpstream) -> dict[str, Any]:
    """The answer to `/v1/models`."""
    return {
        "object": "list",
        "data": [{"id": name, "object": "model", "type": "model", "owned_by": "evalfleet"} for name in upstream.models],
    }


def headers_on(given: Iterable[tuple[str, str]], upstream: ModelUpstream, key: str | None) -> dict[str, str]:
    """The headers of the request to the provider: with the arm's key, and none of the agent's."""
    passed = {name: value for name, value in given if name in _PASSED}
    if key is None:
        return passed
    own = {"x-api-key": key} if upstream.dialect is Dialect.MESSAGES else {"authorization": f"Bearer {key}"}
    return passed | own


def headers_back(given: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The headers of the answer to the agent."""
    return {name: value for name, value in given if name in _RETURNED or "ratelimit" in name}


def error_body(dialect: Dialect, refused: Refused) -> dict[str, Any]:
    """An error in the form of the dialect."""
    error = {"type": refused.kind, "message": str(refused)}
    return (
        {"type": "error", "error": error} if dialect is Dialect.MESSAGES else {"error": {**error, "code": refused.kind}}
    )
