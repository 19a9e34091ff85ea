"""Questions the agent waits on: finding the one an author means, and answering without a typo reaching it. PURE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from evalfleet.assertions.match import Match, evaluate_now
from evalfleet.errors import AuthoringError
from evalfleet.model.assertion import AssertionResult, Result
from evalfleet.model.events import InputRequested
from evalfleet.model.turn import InputResponse, TurnInput, TurnRecord

INVALID_RESPONSE = "INVALID_RESPONSE"


@dataclass(frozen=True, slots=True)
class RequestFilter:
    """Which request is meant; what is None is not asked. `options` are all option ids of the request."""

    request_id: str | None = None
    prompt: str | Match | None = None
    action: str | Match | None = None
    options: frozenset[str] | None = None
    input: Match | None = None

    def describe(self) -> Any:
        parts = {
            "request_id": self.request_id,
            "prompt": self.prompt.describe() if isinstance(self.prompt, Match) else self.prompt,
            "action": self.action.describe() if isinstance(self.action, Match) else self.action,
            "options": None if self.options is None else sorted(self.options),
            "input": self.input.describe() if self.input else None,
        }
        return {"criterion": "require_input_request"} | {key: part for key, part in parts.items() if part is not None}

    def fits(self, request: InputRequested) -> bool:
        return (
            self.request_id in (None, request.request_id)
            and _fits(self.prompt, request.prompt)
            and _fits(self.action, request.action)
            and self.options in (None, frozenset(option.id for option in request.options))
            and (self.input is None or evaluate_now(self.input, request.input).holds)
        )

    def outcome(
        self, found: Sequence[InputRequested], pending: Sequence[InputRequested], last: TurnRecord | None
    ) -> AssertionResult:
        """Matched with exactly one; with none, unavailable where the events may be incomplete."""
        result, reason = (Result.MATCHED if len(found) == 1 else Result.MISMATCHED), None
        if not found and last is not None and not last.coverage.events.is_complete:
            entry = last.coverage.events
            result, reason = Result.UNAVAILABLE, f"coverage:events={entry.state.value} ({entry.reason})"
        seen = {"found": len(found), "pending": [request.request_id for request in pending[:16]]}
        return AssertionResult(result=result, reason=reason, expected={"exactly": 1}, actual=seen)


def _fits(wanted: str | Match | None, text: str | None) -> bool:
    if wanted is None:
        return True
    return evaluate_now(wanted, text).holds if isinstance(wanted, Match) else wanted == text


def response_input(pending: Sequence[InputRequested], answers: Sequence[str | InputResponse]) -> TurnInput:
    """Answers to pending requests.

    A plain text answers the only pending request; when it is the id of one of its options, it chooses that.
    Raises AuthoringError before anything is sent when an answer fits no request.
    """
    if not pending:
        raise AuthoringError("respond(): nothing waits for an answer on this session", INVALID_RESPONSE)
    if not answers:
        raise AuthoringError("respond() needs at least one answer", INVALID_RESPONSE)
    responses = tuple(_response(pending, answer) for answer in answers)
    if len({response.request_id for response in responses}) < len(responses):
        raise AuthoringError("respond(): two answers to one request", INVALID_RESPONSE)
    text = "\n".join(response.text or response.option_id or "" for response in responses)
    return TurnInput(text, responses=responses)


def response_to_all(pending: Sequence[InputRequested], option_id: str) -> TurnInput:
    """The same option for every pending request. Raises AuthoringError when one of them lacks it."""
    return response_input(pending, [InputResponse(_id_of(request), option_id=option_id) for request in pending])


def _response(pending: Sequence[InputRequested], answer: str | InputResponse) -> InputResponse:
    if isinstance(answer, InputResponse):
        return _checked(pending, answer)
    if not isinstance(answer, str):  # pyright: ignore[reportUnnecessaryIsInstance] - authors need not type-check
        raise AuthoringError(f"respond() takes texts or InputResponse, not {type(answer).__name__}", INVALID_RESPONSE)
    if len(pending) > 1:
        raise AuthoringError(
            f"respond(text) with {len(pending)} pending requests: say which with InputResponse(request_id, …)",
            INVALID_RESPONSE,
        )
    request = pending[0]
    chosen = any(option.id == answer for option in request.options)
    return InputResponse(_id_of(request), **({"option_id": answer} if chosen else {"text": answer}))


def _checked(pending: Sequence[InputRequested], answer: InputResponse) -> InputResponse:
    if (answer.option_id is None) == (answer.text is None):
        raise AuthoringError("an InputResponse has an option_id or a text, and not both", INVALID_RESPONSE)
    request = next((request for request in pending if _id_of(request) == answer.request_id), None)
    if request is None:
        known = ", ".join(_id_of(request) for request in pending)
        raise AuthoringError(f"no pending request {answer.request_id!r}; pending: {known}", INVALID_RESPONSE)
    if answer.option_id is not None and all(option.id != answer.option_id for option in request.options):
        known = ", ".join(option.id for option in request.options) or "none"
        raise AuthoringError(
            f"request {answer.request_id!r} has no option {answer.option_id!r}; it has: {known}", INVALID_RESPONSE
        )
    return replace(answer)


def _id_of(request: InputRequested) -> str:
    if request.request_id is None:
        raise AuthoringError("a pending request has no id, so that no answer can name it", INVALID_RESPONSE)
    return request.request_id
