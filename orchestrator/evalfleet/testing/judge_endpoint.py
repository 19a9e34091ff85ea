"""A scripted local judge for tests and examples: it rules as it is told, and misbehaves on order."""

from __future__ import annotations

import json
import re
from typing import Any

from evalfleet.testing.http_endpoint import Reply, Request, json_reply
from evalfleet.testing.model_endpoint import Scripted, completion

_TICKET = re.compile(r'"ticket": "([0-9a-f]+)"')


def ruling(value: float | str, rationale: str = "Because.", usage: tuple[int, int] = (100, 20)) -> Scripted:
    """A well-formed answer with this score, or with this verdict when it is a text."""

    def answer(request: Request) -> dict[str, Any]:
        field = "verdict" if isinstance(value, str) else "score"
        document = {"ticket": ticket(request), "rationale": rationale, field: value}
        return completion(json.dumps(document), usage=usage)

    return answer


def ticket(request: Request) -> str:
    """The ticket by which this request's answer is known. Raises LookupError for a request to no judge."""
    found = _TICKET.search(json.dumps([message["content"] for message in request.json["messages"]]).replace('\\"', '"'))
    if found is None:
        raise LookupError("the request names no ticket: it is none to a judge")
    return found[1]


def rate_limited(seconds: float | None = None) -> Reply:
    """429, with `Retry-After` when there are seconds."""
    headers = {} if seconds is None else {"retry-after": f"{seconds:g}"}
    return json_reply({"error": {"message": "slow down"}}, 429, headers)


def server_error(status: int = 500) -> Reply:
    return json_reply({"error": {"message": "it broke"}}, status)


def refuses_formats(*refused: str, otherwise: Scripted) -> Scripted:
    """400 to a request with one of these response formats, as servers without structured output answer."""

    def answer(request: Request) -> Scripted:
        form: Any = request.json.get("response_format", {}).get("type")
        if form in refused:
            return json_reply({"error": {"message": f"response_format {form} is not supported"}}, 400)
        return otherwise

    return answer  # pyright: ignore[reportReturnType] - what it makes may itself be a function


#: Rubbish instead of JSON, a connection broken before and inside the answer, and no answer at all.
GARBLED = Reply(headers={"content-type": "application/json"}, body=b'{"choices": [{"message": {"cont')
RESET = Reply(drop=True)
CUT = Reply(headers={"content-type": "application/json"}, body=b'{"choices": [', cut=True)
SILENT = Reply(silent=True)
