"""The assertions that `t`, a session and a turn have in common; each call registers one and freezes its scope."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from evalfleet.assertions.change_criteria import ChangeCriterion
from evalfleet.assertions.covered import CoveredStr, CoveredValue
from evalfleet.assertions.criteria import (
    CalledTool,
    Check,
    Criterion,
    EventOccurs,
    EventOrder,
    MaxCost,
    MaxTokens,
    MaxToolCalls,
    MessageIncludes,
    NoFailedActions,
    NotCalledTool,
    NotEvent,
    Parked,
    Succeeded,
    ToolOrder,
    UsedNoTools,
)
from evalfleet.assertions.custom import Predicate, satisfies_all
from evalfleet.assertions.evidence import scope_of
from evalfleet.assertions.json_match import as_match
from evalfleet.assertions.match import Match
from evalfleet.assertions.tools import (
    EventMatch,
    OperationMatch,
    as_event_match,
    as_tool_match,
    event_match,
    subagent_match,
)
from evalfleet.assertions.values import equals
from evalfleet.execution.handles import Assertion, Configurable, SyncAssertion
from evalfleet.execution.judging import Judged
from evalfleet.execution.ledger import Entry, Ledger, Snapshot, frozen
from evalfleet.execution.unrecorded import Unrecorded
from evalfleet.model.coverage import Channel
from evalfleet.model.turn import TurnRecord

H = TypeVar("H", Assertion, SyncAssertion)


class Author(Generic[H]):
    """How one attempt's author objects register assertions: its ledger, and the kind of handle they return."""

    __slots__ = ("_make", "ledger", "state")

    def __init__(self, ledger: Ledger, make: Callable[[Ledger, Entry], H]) -> None:
        self.ledger = ledger
        self.state = ledger.state
        self._make = make

    def add(self, name: str, criterion: Criterion | ChangeCriterion | Judged, subject: Any) -> H:
        """Register the assertion that the caller's caller wrote."""
        return self._make(self.ledger, self.ledger.register(name, criterion, subject))


class Scoped(ABC, Generic[H]):
    """Assertions over a scope: one turn, one session so far, or all sessions started so far.

    Missing evidence makes them unavailable, never passed. Each raises AuthoringError on arguments it can't use.
    """

    __slots__ = ("author",)

    def __init__(self, author: Author[H]) -> None:
        self.author = author

    @abstractmethod
    def _snapshot(self) -> Snapshot:
        """The scope as it is at this moment."""

    @property
    @abstractmethod
    def data(self) -> CoveredStr | CoveredValue:
        """The structured answer of the last turn; its `value` is MISSING when there was none."""

    def succeeded(self) -> H:
        """It ended completed, and nothing waits for a person."""
        return self.author.add("succeeded", Succeeded(), self._snapshot())

    def parked(self) -> H:
        """It waits for a person, with at least one input request pending."""
        return self.author.add("parked", Parked(), self._snapshot())

    def message_includes(self, text: str | Match) -> H:
        """An assistant message contains `text`, or satisfies a matcher."""
        criterion = MessageIncludes(text)
        return self.author.add("message_includes", criterion, self._snapshot())

    def called_tool(self, tool: str | OperationMatch) -> H:
        """A tool call matches, at least once or as often as the match says."""
        criterion = CalledTool(as_tool_match(tool, "called_tool"))
        return self.author.add("called_tool", criterion, self._snapshot())

    def not_called_tool(self, tool: str | OperationMatch) -> H:
        """No tool call matches."""
        criterion = NotCalledTool(as_tool_match(tool, "not_called_tool"))
        return self.author.add("not_called_tool", criterion, self._snapshot())

    def called_subagent(self, name: str | Match | None = None) -> H:
        """A sub-agent ran; with `name`, one of that name. `called_tool(subagent_match(…))` says more."""
        return self.author.add("called_subagent", CalledTool(subagent_match(name)), self._snapshot())

    def loaded_skill(self, skill: str | Match) -> H:
        """A skill was loaded."""
        criterion = EventOccurs(event_match("skill.loaded", skill=skill))
        return self.author.add("loaded_skill", criterion, self._snapshot())

    def tool_order(self, *tools: str | OperationMatch) -> H:
        """Tool calls match in this order; others may stand between."""
        criterion = ToolOrder(tuple(as_tool_match(tool, "tool_order") for tool in tools))
        return self.author.add("tool_order", criterion, self._one_line("tool_order"))

    def used_no_tools(self) -> H:
        """No tool was called."""
        return self.author.add("used_no_tools", UsedNoTools(), self._snapshot())

    def max_tool_calls(self, limit: int) -> H:
        """At most `limit` tools were called."""
        criterion = MaxToolCalls(limit)
        return self.author.add("max_tool_calls", criterion, self._snapshot())

    def no_failed_actions(self) -> H:
        """No tool call and no sub-agent failed; a refused one did not fail."""
        criterion = NoFailedActions()
        return self.author.add("no_failed_actions", criterion, self._snapshot())

    def event(self, event: str | EventMatch) -> H:
        """An event matches, at least once or as often as the match says. User messages are events too."""
        criterion = EventOccurs(as_event_match(event, "event"))
        return self.author.add("event", criterion, self._snapshot())

    def not_event(self, event: str | EventMatch) -> H:
        """No event matches."""
        criterion = NotEvent(as_event_match(event, "not_event"))
        return self.author.add("not_event", criterion, self._snapshot())

    def event_order(self, *events: str | EventMatch) -> H:
        """Events match in this order; others may stand between."""
        criterion = EventOrder(tuple(as_event_match(event, "event_order") for event in events))
        return self.author.add("event_order", criterion, self._one_line("event_order"))

    def events_satisfy(self, label: str, predicate: Predicate) -> H:
        """`predicate` says True of the tuple of all events, user messages included; `label` says what it looks for.

        Unavailable where events may be missing, whatever it says of those that are there.
        """
        snapshot = self._snapshot()
        scope = scope_of(snapshot.kind, snapshot.turns, snapshot.in_flight)
        subject = CoveredValue(scope.seen.events, Channel.EVENTS, scope.coverage.events)
        return self.author.add("events_satisfy", Check(satisfies_all(label, predicate)), subject)

    def max_tokens(self, limit: int) -> H:
        """Input plus output tokens, without cached ones, stay within `limit`."""
        criterion = MaxTokens(limit)
        return self.author.add("max_tokens", criterion, self._snapshot())

    def max_cost(self, limit: float) -> H:
        """The cost stays within `limit` US dollars: what a turn says it cost, else by the price list."""
        snapshot = self._snapshot()
        criterion = MaxCost(limit, tuple(self._cost(turn) for turn in snapshot.turns))
        return self.author.add("max_cost", criterion, snapshot)

    def output_equals(self, expected: Any) -> H:
        """The structured answer (the last turn's) equals `expected`, as strictly as `equals` compares."""
        return self.author.add("output_equals", Check(equals(expected)), frozen(self.data))

    def output_matches(self, pattern: Any) -> H:
        """The structured answer (the last turn's) is what `pattern` says: a matcher, or what `json_match` takes."""
        criterion = Check(as_match(pattern, "output_matches"))
        return self.author.add("output_matches", criterion, frozen(self.data))

    def check(self, value: Any, match: Match) -> H:
        """`match` holds for `value`, which is taken as it is now.

        Values read off a turn (`turn.reply`, `.data`, `.status`, `.usage`) bring their coverage along.
        """
        state = self.author.state
        if not isinstance(match, Match):  # pyright: ignore[reportUnnecessaryIsInstance] - authors need not type-check
            raise state.refuse(f"check() takes a matcher such as includes(…), not {type(match).__name__}", _CODE)
        if not isinstance(value, Unrecorded) and isinstance(value, Configurable):
            raise state.refuse("check() got the handle of another assertion as its value", _CODE)
        return self.author.add("check", Check(match), frozen(value))

    def _cost(self, turn: TurnRecord) -> float | None:
        observed = None if turn.usage is None else turn.usage.cost_usd
        return self.author.state.estimate(turn.usage) if observed is None else observed

    def _one_line(self, name: str) -> Snapshot:
        """The snapshot, refused when it spans sessions, which have no common order."""
        snapshot = self._snapshot()
        if len({turn.session for turn in snapshot.turns}) > 1:
            message = f"{name}() on `t` spans several sessions, which have no common order; use one session's"
            raise self.author.state.refuse(message, _CODE)
        return snapshot


_CODE = "INVALID_ASSERTION"
