"""Reads what an agent decided and asked for from its tool calls. PURE."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from evalfleet.taskpacks.graders import Reading
from evalfleet.taskpacks.trace import CallStatus, TraceLine

#: What reads the agent's calls of one turn.
Reader = Callable[[Sequence[TraceLine]], Reading]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallReader:
    """Reads two tools: `decides`, with the decision in the argument `decision`, and `requests`, whose argument `items`
    is a list of objects with a `requirement` and perhaps a `reason`, beside a `message`.

    Who asks and decides nothing has decided `asking`. Of several decisions the last counts, of calls those
    that succeeded.
    """

    decides: str
    requests: str
    asking: str
    decision: str = "decision"
    items: str = "items"
    requirement: str = "requirement"
    reason: str = "reason"
    message: str = "message"

    def __call__(self, calls: Sequence[TraceLine]) -> Reading:
        done = [call for call in calls if call.status is CallStatus.OK]
        decisions = [str(call.arguments.get(self.decision)) for call in done if call.tool == self.decides]
        asked = [call.arguments for call in done if call.tool == self.requests]
        items = [item for each in asked for item in _objects(each.get(self.items))]
        return Reading(
            decision=decisions[-1] if decisions else self.asking if items else None,
            requested=tuple(str(item.get(self.requirement)) for item in items),
            reasons={str(item.get(self.requirement)): str(item.get(self.reason) or "") for item in items},
            message="\n".join(str(each.get(self.message) or "") for each in asked),
        )


def _objects(value: Any) -> Iterable[Mapping[str, Any]]:
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("Mapping[str, Any]", item) for item in items if isinstance(item, Mapping)]


@dataclass(frozen=True, slots=True)
class Point:
    """A decision point: the turn, from 1, what was said to the agent, and what it made of it."""

    turn: int
    said: str
    reading: Reading = field(default_factory=Reading)

    def document(self) -> dict[str, Any]:
        """The point as JSON."""
        reading = self.reading
        return {
            "turn": self.turn,
            "said": self.said,
            "decision": reading.decision,
            "requested": list(reading.requested),
            "reasons": dict(reading.reasons),
            "message": reading.message,
        }


def read_point(document: Mapping[str, Any]) -> Point:
    """The point of a document that `Point.document` made."""
    reading = Reading(
        document["decision"], tuple(document["requested"]), dict(document["reasons"]), document["message"]
    )
    return Point(document["turn"], document["said"], reading)
