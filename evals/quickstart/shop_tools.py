"""What a tea shop knows, and the tools that let a clerk look it up."""

from __future__ import annotations

from typing import Annotated, Any

from evalfleet import tool

PRICES = {"tea": 450, "honey": 820, "mug": 1280, "teapot": 2650, "kettle": 3490, "spoon": 190}

ORDERS: dict[str, dict[str, Any]] = {
    "1042": {"status": "shipped", "arrives": "Thursday", "items": ["kettle", "tea"]},
    "1043": {"status": "being packed", "arrives": "Monday", "items": ["teapot", "mug", "mug"]},
}


@tool
def find_order(number: Annotated[str, "the number on the receipt"]) -> dict[str, Any]:
    """Status, arrival and items of an order."""
    if number not in ORDERS:
        raise LookupError(f"there is no order {number}")
    return ORDERS[number]


@tool
def price_of(item: str) -> int:
    """The price of one piece, in cents."""
    return PRICES[item]


@tool
def discount_for(pieces: int) -> int:
    """The discount on so many pieces, in percent."""
    return 10 if pieces >= 10 else 0


TOOLS = {each.name: each for each in (find_order, price_of, discount_for)}
