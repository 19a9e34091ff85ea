"""Rules that stand where a language model would be: they read the transcript and say what to do next.

A careful model asks for the discount and admits what it does not know. A hasty one forgets the discount every other
time, and makes up what it could not find. Both share a bug, which the evals find.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

ITEM = re.compile(r"(\w+) (dozen )?(honey|kettle|mug|spoon|teapot|tea)s?\b")
ORDER = re.compile(r"order (\d+)")
NUMBERS = {"a": 1, "two": 2, "three": 3, "four": 4, "five": 5}


@dataclass(frozen=True)
class ToolCall:
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class ToolResult:
    call: ToolCall
    output: Any
    failed: bool = False


Transcript = Sequence[str | ToolResult]


class ShopModel:
    """`seed` decides what a hasty model forgets, as sampling would."""

    def __init__(self, *, careful: bool, seed: int) -> None:
        self._careful = careful
        self._asks_for_discount = careful or random.Random(seed).random() < 0.5

    def next_move(self, transcript: Transcript) -> ToolCall | str:
        """A tool call, or the reply to the customer's latest message, whose tool results stand after it."""
        latest = max(index for index, entry in enumerate(transcript) if isinstance(entry, str))
        question = str(transcript[latest])
        results = [entry for entry in transcript[latest:] if isinstance(entry, ToolResult)]
        if order := ORDER.search(question):
            return self._track(order.group(1), results)
        if items := ITEM.findall(question):
            return self._add_up(items, results)
        return self._recall(transcript)

    def _track(self, number: str, results: list[ToolResult]) -> ToolCall | str:
        if not results:
            return ToolCall("find_order", {"number": number})
        found = results[0]
        if not found.failed:
            return f"Order {number} is {found.output['status']} and arrives on {found.output['arrives']}."
        return f"I can't find order {number}." if self._careful else f"Order {number} is packed and arrives soon."

    def _add_up(self, items: list[tuple[str, str, str]], results: list[ToolResult]) -> ToolCall | str:
        quantities = [_pieces(number, dozen) for number, dozen, _ in items]
        known = [result.output for result in results]
        if len(known) < len(items):
            return ToolCall("price_of", {"item": items[len(known)][2]})
        if self._asks_for_discount and len(known) == len(items):
            return ToolCall("discount_for", {"pieces": sum(quantities)})
        cents = sum(quantity * price for quantity, price in zip(quantities, known, strict=False))
        percent = known[len(items)] if self._asks_for_discount else 0
        return f"That is €{cents * (100 - percent) / 10_000:.2f}."

    def _recall(self, transcript: Transcript) -> str:
        for entry in reversed(transcript):
            if isinstance(entry, ToolResult) and entry.call.name == "find_order" and not entry.failed:
                return f"It holds {', '.join(entry.output['items'])}."
        return "What can I do for you?"


def _pieces(number: str, dozen: str) -> int:
    """How many "12", "two" or "a dozen" are."""
    if dozen:
        return 12
    return NUMBERS.get(number) or int(number)
