"""Steps that choose from what an agent offered: exactly one option, or the code that says why not."""

from __future__ import annotations

from typing import Any

import pytest

from evalfleet.errors import Acceptance, SendFailure
from evalfleet.model.events import InputOption, InputRequested
from evalfleet.model.turn import InputResponse, Turn, TurnInput
from evalfleet.testing.adapter_context import FakeContext
from evalfleet_adapters.selections import AMBIGUOUS, INPUT_INVALID, UNAVAILABLE, SelectingSession, resumed_state

OPTIONS = (InputOption("desk", "Desk lamp"), InputOption("wall", "A lamp"), InputOption("floor", "A lamp"))
ASKS = InputRequested("which", options=OPTIONS)


class Agent:
    """Offers what it is told to, and keeps what it was given."""

    def __init__(self, *offers: Turn) -> None:
        self.given: list[TurnInput] = []
        self.offers = list(offers)

    async def send(self, turn: TurnInput, ctx: Any) -> Turn:
        self.given.append(turn)
        return self.offers.pop(0) if self.offers else Turn()

    async def close(self) -> None: ...


def step(value: dict[str, Any]) -> TurnInput:
    return TurnInput(str(value.get("text", "")), value=value)


async def after(offer: Turn, selection: Any, **more: Any) -> Agent:
    """The agent that made the offer, once a step selected from it."""
    agent, ctx = Agent(offer), FakeContext()
    session = SelectingSession(agent)
    await session.send(step({"text": "Which are there?"}), ctx)
    await session.send(step({"text": "That one", "selection": selection, **more}), ctx)
    return agent


@pytest.mark.parametrize(
    ("selection", "option"),
    [({"optionIndex": 0}, "desk"), ({"optionIndex": 2}, "floor"), ({"optionLabel": "Desk lamp"}, "desk"),
     ({"optionId": "wall"}, "wall")],
)  # fmt: skip
async def test_an_option_is_given_as_a_click_would_come(selection: dict[str, Any], option: str) -> None:
    agent = await after(Turn(events=(ASKS,)), selection)
    assert agent.given[1].responses == (InputResponse("which", option_id=option),)
    assert agent.given[1].text == "That one"


@pytest.mark.parametrize(
    ("selection", "code"),
    [
        ({"optionIndex": 3}, AMBIGUOUS),
        ({"optionLabel": "A lamp"}, AMBIGUOUS),
        ({"optionLabel": "desk lamp"}, AMBIGUOUS),
        ({"optionId": "Desk lamp"}, AMBIGUOUS),
        ({"optionIndex": -1}, INPUT_INVALID),
        ({"optionIndex": True}, INPUT_INVALID),
        ({"optionIndex": 0.0}, INPUT_INVALID),
        ({"optionLabel": ""}, INPUT_INVALID),
        ({"optionId": 1}, INPUT_INVALID),
        ({"option": "desk"}, INPUT_INVALID),
        ({"optionIndex": 0, "optionId": "desk"}, INPUT_INVALID),
        ({}, INPUT_INVALID),
        (None, INPUT_INVALID),
        ("desk", INPUT_INVALID),
    ],
)
async def test_there_is_no_first_match(selection: Any, code: str) -> None:
    with pytest.raises(SendFailure) as refused:
        await after(Turn(events=(ASKS,)), selection)
    assert (refused.value.code, refused.value.acceptance) == (code, Acceptance.REJECTED)


@pytest.mark.parametrize(
    "offer",
    [Turn(), Turn(events=(InputRequested("free"),)), Turn(events=(ASKS, ASKS))],
    ids=["no request", "no options", "two requests"],
)
async def test_nothing_to_select_from(offer: Turn) -> None:
    with pytest.raises(SendFailure, match="offered no options") as refused:
        await after(offer, {"optionIndex": 0})
    assert refused.value.code == UNAVAILABLE


@pytest.mark.parametrize("value", [{"text": 1}, {}, {"text": "x" * 10_001}, {"text": "x", "user": "me"}])
async def test_a_step_is_a_text_and_a_selection(value: dict[str, Any]) -> None:
    agent = Agent()
    with pytest.raises(SendFailure) as refused:
        await SelectingSession(agent).send(step(value), FakeContext())
    assert (refused.value.code, agent.given) == (INPUT_INVALID, [])


async def test_what_a_python_eval_sends_is_not_looked_at() -> None:
    agent = Agent()
    await SelectingSession(agent).send(TurnInput("x" * 20_000), FakeContext())
    assert len(agent.given) == 1


async def test_an_offer_survives_the_process_that_heard_it() -> None:
    session = SelectingSession(Agent(Turn(events=(ASKS,), session_state={"cart": []})))
    found = await session.send(step({"text": "Which?"}), FakeContext())
    assert found.session_state is not None
    state, offered = resumed_state(found.session_state)
    again = Agent()
    await SelectingSession(again, offered).send(step({"text": "", "selection": {"optionIndex": 1}}), FakeContext())
    assert (state, again.given[0].responses[0].option_id) == ({"cart": []}, "wall")
    silent = SelectingSession(Agent(Turn(session_state={"cart": []})))
    assert resumed_state((await silent.send(step({"text": ""}), FakeContext())).session_state or {}) == (
        {"cart": []},
        None,
    )
