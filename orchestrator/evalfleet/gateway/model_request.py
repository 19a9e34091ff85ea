"""What an agent may ask of its model by the gateway, and how it is told that it may not. PURE."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

from evalfleet.model.model_route import Dialect, ModelUpstream

#: Where each dialect is asked, below the route, and where its `base_url` already leads to.
_ASKED = {
    Dialect.CHAT: {"/v1/chat/completions": "/chat/completions"},
    Dialect.RESPONSES: {"/v1/responses": "/responses"},
    Dialect.MESSAGES: {"/v1/messages": "/v1/messages", "/v1/messages/count_tokens": "/v1/messages/count_tokens"},
}
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
    """A request that may be passed on. `output_limit` is in tokens; `counts` is one that makes no answer."""

    url: str
    model: str
    body: bytes
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
    limits = [document.get(name) for name in ("max_output_tokens", "max_completion_tokens", "max_tokens")]
    return Asked(
        url=upstream.base_url + below,
        model=model,
        body=body,
        output_limit=next((each for each in limits if type(each) is int and each > 0), None),
        counts=path.endswith("/count_tokens"),
    )


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
