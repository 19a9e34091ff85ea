"""The model calls of a sandboxed agent, as its gateway sees them, until a turn has them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from evalfleet.model.coverage import Coverage, complete, partial
from evalfleet.model.events import ModelRequest, ModelResponse
from evalfleet.model.model_call import CallFate
from evalfleet.model.usage import Usage

#: Events of one turn that are kept; what comes after is counted in its usage only.
EVENTS_LIMIT = 10_000

_FREE = frozenset({CallFate.THROTTLED.value, CallFate.REFUSED.value})


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a turn's agent asked of its model. `usage` is None where it can't be told whose calls they were."""

    events: tuple[ModelRequest | ModelResponse, ...]
    usage: Usage | None


NOTHING_SEEN = Seen(events=(), usage=None)


def metered(seen: Seen, told: Usage | None, coverage: Coverage) -> tuple[Usage | None, Coverage]:
    """The usage of a turn, and how far it is known: what the gateway metered, with the price that its agent told."""
    if seen.usage is None:
        return told, coverage
    unknown = seen.usage.unknown_calls
    if unknown and told is not None and not told.unknown_calls and coverage.usage.is_complete:
        return told, coverage
    entry = partial(f"{unknown} model calls did not tell what they used") if unknown else complete
    return replace(seen.usage, cost_usd=None if told is None else told.cost_usd), replace(coverage, usage=entry)


@dataclass(slots=True)
class SeenCalls:
    """Of one attempt. `whole` says that the agent has no other way to its model."""

    whole: bool
    _events: list[ModelRequest | ModelResponse] = field(default_factory=list[ModelRequest | ModelResponse])
    _usage: Usage = field(default_factory=Usage)
    _open: set[str] = field(default_factory=set[str])
    _sends: int = 0
    _is_mixed: bool = False

    def observe(self, event: ModelRequest | ModelResponse) -> None:
        """A call began or ended. The end of one whose turn is over tells nothing any more."""
        if isinstance(event, ModelRequest):
            self._open.add(event.call_id)
        elif event.call_id not in self._open:
            return
        else:
            self._open.discard(event.call_id)
            if event.outcome not in _FREE:
                self._usage += event.usage or Usage(unknown_calls=1)
        if len(self._events) < EVENTS_LIMIT:
            self._events.append(event)

    def send_began(self) -> None:
        """A turn begins; of turns at once nobody can tell which of them made a call."""
        self._sends += 1
        self._is_mixed = self._is_mixed or self._sends > 1

    def send_ended(self) -> Seen:
        """A turn is over: what was seen meanwhile is its own. Calls that have not ended are unknown."""
        self._sends -= 1
        usage = self._usage + Usage(unknown_calls=len(self._open))
        known = self.whole and not self._is_mixed and usage != Usage()
        seen = Seen(events=tuple(self._events), usage=usage if known else None)
        self._events, self._usage, self._open = [], Usage(), set()
        self._is_mixed = self._is_mixed and self._sends > 0
        return seen
