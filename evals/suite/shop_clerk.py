"""A clerk who sells lamps, written for this example. It takes a vague choice for the wrong lamp."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from evalfleet import COMPLETE_COVERAGE, AdapterContext, Turn, TurnInput, Usage, agent

LAMPS = {"desk-lamp": 40, "wall-lamp": 25}


@agent(coverage=COMPLETE_COVERAGE)
class Clerk:
    """Keeps a cart over the turns of a conversation, and shows all of its state as its observation."""

    def __init__(self, ctx: AdapterContext, left: Mapping[str, Any] | None = None) -> None:
        state = left or {}
        self.cart: list[str] = list(state.get("cart", ()))
        self.paid: bool = state.get("paid", False)

    @classmethod
    def resume(cls, state: Mapping[str, Any], ctx: AdapterContext) -> Self:
        """The clerk as a turn left it: a conversation that was cut goes on."""
        return cls(ctx, state)

    async def send(self, turn: TurnInput) -> Turn:
        text = turn.text.lower()
        response: dict[str, Any]
        if "which" in text:
            options = [{"id": lamp, "label": f"{lamp} for {price}"} for lamp, price in LAMPS.items()]
            response = {"text": "We have these.", "interaction": {"kind": "choice", "options": options}}
        elif "floor lamp" in text:
            response = {"text": "It is sold out."}
        elif "pay" in text:
            self.paid = bool(self.cart)
            response = {"text": f"That is {sum(LAMPS[lamp] for lamp in self.cart)}, thank you."}
        else:
            self.cart.append(self._choice(text, turn.value or {}))
            response = {"text": "It is in your cart."}
        state = {"cart": list(self.cart), "paid": self.paid}
        return Turn(
            reply=response["text"],
            observation={"response": response, "orders": int(self.paid), **state},
            session_state=state,
            usage=Usage(input_tokens=len(turn.text), output_tokens=len(response["text"])),
        )

    def _choice(self, text: str, given: Mapping[str, Any]) -> str:
        selection: dict[str, int] | None = given.get("selection")
        if selection is not None:
            return list(LAMPS)[selection["optionIndex"]]
        return next((lamp for lamp in LAMPS if lamp.replace("-", " ") in text), "wall-lamp")
