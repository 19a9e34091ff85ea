"""Steps that choose from what the agent offered in its last turn, as a click does: by place, label or id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from evalfleet.errors import Acceptance, FailureKind, SendFailure
from evalfleet.model.events import InputOption, InputRequested
from evalfleet.model.turn import InputResponse, Turn, TurnInput
from evalfleet.ports import AdapterContext, Session

INPUT_INVALID = "EVALUATION_AGENT_INPUT_INVALID"
UNAVAILABLE = "EVALUATION_SELECTION_UNAVAILABLE"
AMBIGUOUS = "EVALUATION_SELECTION_AMBIGUOUS"

#: Characters of a step's text.
TEXT_LIMIT = 10_000

#: A request of the agent, and what it offers.
Offer = tuple[str | None, Sequence[InputOption]]


class SelectingSession:
    """A session whose steps are `{text, selection?}`: the agent is given the option that is meant as a response.

    `offered` is what the turn before the first one left open, when the conversation goes on elsewhere.
    """

    def __init__(self, session: Session, offered: Offer | None = None) -> None:
        self._session = session
        self._offered = offered

    async def send(self, turn: TurnInput, ctx: AdapterContext) -> Turn:
        given = turn if turn.value is None else selected(turn, turn.value, self._offered)
        found = await self._session.send(given, ctx)
        self._offered = offer_of(found)
        if not isinstance(found.session_state, Mapping):
            return found
        return replace(found, session_state={"agent": found.session_state, "offered": _as_json(self._offered)})

    async def close(self) -> None:
        await self._session.close()


def selected(turn: TurnInput, value: Mapping[str, Any], offered: Offer | None) -> TurnInput:
    """The turn with the response that its selection means. Raises SendFailure before anything is sent."""
    text, selection = value.get("text"), value.get("selection")
    if not isinstance(text, str) or len(text) > TEXT_LIMIT or not value.keys() <= {"text", "selection"}:
        raise _refused(INPUT_INVALID, f"a step is {{text, selection?}} with a text of at most {TEXT_LIMIT} characters")
    if "selection" not in value:
        return turn
    by, wanted = _checked(selection)
    if offered is None:
        raise _refused(UNAVAILABLE, "the turn before offered no options to select from")
    request, options = offered
    found = [option for place, option in enumerate(options) if _is_meant(by, wanted, place, option)]
    if len(found) != 1:
        raise _refused(AMBIGUOUS, f"{by} fits {len(found)} of the {len(options)} options that were offered")
    return replace(turn, responses=(InputResponse(request or "", option_id=found[0].id),))


def offer_of(turn: Turn) -> Offer | None:
    """What a turn offers: the options of its one request that has some; with several there is no telling which."""
    requests = [event for event in turn.events if isinstance(event, InputRequested) and event.options]
    return (requests[0].request_id, requests[0].options) if len(requests) == 1 else None


def resumed_state(state: Mapping[str, Any]) -> tuple[Mapping[str, Any], Offer | None]:
    """The agent's own state, and what its last turn offered."""
    offered = state.get("offered")
    if offered is None:
        return state["agent"], None
    request, options = offered
    return state["agent"], (request, tuple([InputOption(identifier, label) for identifier, label in options]))


def _as_json(offered: Offer | None) -> list[Any] | None:
    return None if offered is None else [offered[0], [[option.id, option.label] for option in offered[1]]]


def _checked(selection: object) -> tuple[str, Any]:
    """By what an option is selected, and its value."""
    if isinstance(selection, Mapping) and len(cast("Mapping[str, Any]", selection)) == 1:
        ((by, wanted),) = cast("Mapping[str, Any]", selection).items()
        if (by == "optionIndex" and type(wanted) is int and wanted >= 0) or (
            by in ("optionLabel", "optionId") and isinstance(wanted, str) and wanted
        ):
            return by, wanted
    raise _refused(INPUT_INVALID, "a selection has exactly one of optionIndex (from 0), optionLabel and optionId")


def _is_meant(by: str, wanted: Any, place: int, option: InputOption) -> bool:
    return wanted == {"optionIndex": place, "optionLabel": option.label, "optionId": option.id}[by]


def _refused(code: str, message: str) -> SendFailure:
    kind = FailureKind.AUTHORING if code == INPUT_INVALID else FailureKind.AGENT
    return SendFailure(message, kind=kind, code=code, acceptance=Acceptance.REJECTED)
