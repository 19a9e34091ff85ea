"""Criteria on a scope: each frozen, each answered from the scope's evidence in three values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from evalfleet.assertions.answers import bounded, counted, in_order, positive, shown
from evalfleet.assertions.arguments import require_limit, require_match, require_order
from evalfleet.assertions.attributed import ChangedPaths, DiffText
from evalfleet.assertions.covered import unwrap
from evalfleet.assertions.evidence import NOT_STARTED, ScopeEvidence, coverage_reason, gap
from evalfleet.assertions.match import Match, decided, evaluate_now, kleene_or, require_boolean
from evalfleet.assertions.snapshot import snapshot
from evalfleet.assertions.texts import includes
from evalfleet.assertions.tools import NEVER, EventMatch, OperationMatch, Quantifier
from evalfleet.model.assertion import AssertionResult, Result
from evalfleet.model.coverage import Channel
from evalfleet.model.events import OperationFinished, OperationKind, OperationStatus
from evalfleet.model.turn import TurnStatus

_REPLIES = 16  # last replies kept in a row's `actual`


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The scope ended completed and nothing waits for a person; a scope without any turn did not succeed."""

    channel: ClassVar[Channel] = Channel.STATUS

    def describe(self) -> Any:
        return {"criterion": "succeeded"}

    def evaluate(self, scope: ScopeEvidence) -> AssertionResult:
        actual = _status_seen(scope)
        if scope.status == NOT_STARTED:
            return decided(False, expected=TurnStatus.COMPLETED.value, actual=actual, reason="evidence:no-activity")
        holds = scope.status == TurnStatus.COMPLETED.value
        return positive(holds, gap(scope, self.channel), expected=TurnStatus.COMPLETED.value, actual=actual)


@dataclass(frozen=True, slots=True)
class Parked:
    """The scope waits for a person, with at least one input request pending."""

    channel: ClassVar[Channel] = Channel.STATUS

    def describe(self) -> Any:
        return {"criterion": "parked"}

    def evaluate(self, scope: ScopeEvidence) -> AssertionResult:
        holds = scope.status == TurnStatus.WAITING.value and scope.pending_requests > 0
        reason = gap(scope, self.channel)
        return positive(holds, reason, expected=TurnStatus.WAITING.value, actual=_status_seen(scope))


@dataclass(frozen=True, slots=True)
class MessageIncludes:
    """The assistant's text of some turn contains a text, or satisfies a matcher."""

    channel: ClassVar[Channel] = Channel.MESSAGES
    text: str | Match

    def __post_init__(self) -> None:
        require_boolean(self.match, "message_includes")

    @property
    def match(self) -> Match:
        return self.text if isinstance(self.text, Match) else includes(self.text)

    def describe(self) -> Any:
        return {"criterion": "message_includes", "message": self.match.describe()}

    def evaluate(self, scope: ScopeEvidence) -> AssertionResult:
        match, reason = self.match, gap(scope, self.channel)
        replies = scope.seen.replies
        outcomes = [evaluate_now(match, reply) for reply in replies]
        if reason is not None:
            outcomes = [match.under_gap(outcome, reason) for outcome in outcomes]
        result = kleene_or(outcome.result for outcome in outcomes)
        if result is Result.MISMATCHED and reason is not None:
            result = Result.UNAVAILABLE
        said = next((outcome.reason for outcome in outcomes if outcome.result is result), reason)
        return AssertionResult(
            result=result,
            reason=said if result in (Result.UNAVAILABLE, Result.ERRORED) else None,
            expected=snapshot(match.describe()),
            actual=snapshot(replies[-_REPLIES:]),
        )


@dataclass(frozen=True, slots=True)
class CalledTool:
    """Operations that match occur as often as the match says; at least once when it says nothing."""

    channel: ClassVar[Channel] = Channel.ACTIONS
    match: OperationMatch

    def __post_init__(self) -> None:
        require_match(self.match, OperationMatch, "called_tool")

    def describe(self) -> Any:
        return {"criterion": "called_tool", "tool": self.match.describe()}

    def evaluate(self, scope: ScopeEvidence) -> AssertionResult:
        return _count_operations(scope, self.match, self.match.wanted)


@dataclass(frozen=True, slots=True)
class NotCalledTool:
    """No operation matches."""

    channel: ClassVar[Channel] = Channel.ACTIONS
    match: OperationMatch

    def __post_init__(self) -> None:
        require_match(self.match, OperationMatch, "not_called_tool", counted=False)

    def describe(self) -> Any:
        return {"criterion": "not_called_tool", "tool": self.match.describe()}

    def evaluate(self, scope: ScopeEvidence) -> AssertionResult:
        return _count_operations(scope, self.match, NEVER)


@dataclass(frozen=True, slots=True)
class ToolOrder:
    """Distinct operations match in this order; others may stand between them."""

    channel: ClassVar[Channel] = Channel.ACTIONS
    matches: tuple[OperationMatch, ...]

    def __post_init__(self) -> None:
        require_order(self.matches, OperationMatch, "tool_order")

    def describe(self) -> Any:
        return {"criterion": "tool_order", "tools": [match.describe() for match in self.matches]}

    def evaluate(self, scope: ScopeEvidence) -> AssertionResult:
        seen, unpaired = scope.seen, gap(scope, self.channel)
        rows = [match.survey(seen, unpaired) for match in self.matches]
        return in_order(rows, _operations_gap(scope), seen.names)


@dataclass(frozen=True, slots=True)
class UsedNoTools:
    """No tool was called; sub-agents are no tools."""

    channel: ClassVar[Channel] = Channel.ACTIONS

    def describe(self) -> Any:
        return {"criterion": "used_no_tools"}

    def evaluate(self, scope: ScopeEvidence) -> AssertionResult:
        return _bound_tools(scope, 0)


@dataclass(frozen=True, slots=True)
class MaxToolCalls:
    """At most `limit` tools were called."""

    channel: ClassVar[Channel] = Channel.ACTIONS
    limit: int

    def __post_init__(self) -> None:
        require_limit(self.limit, "max_tool_calls", whole=True)

    def describe(self) -> Any:
        return {"criterion": "max_tool_calls", "limit": self.limit}

    def evaluate(self, scope: ScopeEvidence) -> AssertionResult:
        return _bound_tools(scope, self.limit)


@dataclass(frozen=True, slots=True)
class NoFailedActions:
    """No tool and no sub-agent failed; one that was refused did not fail."""

    channel: ClassVar[Channel] = Channel.ACTIONS

    def describe(self) -> Any:
        return {"criterion": "no_failed_actions"}

    def evaluate(self, scope: ScopeEvidence) -> AssertionResult:
        finished = [event for _, event in scope.seen.by_type.get(OperationFinished.type, ())]
        failed = sum(getattr(event, "status", None) is OperationStatus.FAILED for event in finished)
        return bounded(failed, 0, gap(scope, self.channel), actual={"failed": failed, "finished": len(finished)})


@dataclass(frozen=True, slots=True)
class EventOccurs:
    """Events that match occur as often as the match says; at least once when it says nothing."""

    channel: ClassVar[Channel] = Channel.EVENTS
    match: EventMatch

    def __post_init__(self) -> None:
        require_match(self.match, EventMatch, "event")

    def describe(self) -> Any:
        return {"criterion": "event", "event": self.match.describe()}

    def evaluate(self, scope: ScopeEvidence) -> AssertionResult:
        return _count_events(scope, self.match, self.match.wanted)


@dataclass(frozen=True, slots=True)
class NotEvent:
    """No event matches."""

    channel: ClassVar[Channel] = Channel.EVENTS
    match: EventMatch

    def __post_init__(self) -> None:
        require_match(self.match, EventMatch, "not_event", counted=False)

    def describe(self) -> Any:
        return {"criterion": "not_event", "event": self.match.describe()}

    def evaluate(self, scope: ScopeEvidence) -> AssertionResult:
        return _count_events(scope, self.match, NEVER)


@dataclass(frozen=True, slots=True)
class EventOrder:
    """Distinct events match in this order; others may stand between them."""

    channel: ClassVar[Channel] = Channel.EVENTS
    matches: tuple[EventMatch, ...]

    def __post_init__(self) -> None:
        require_order(self.matches, EventMatch, "event_order")

    def describe(self) -> Any:
        return {"criterion": "event_order", "events": [match.describe() for match in self.matches]}

    def evaluate(self, scope: ScopeEvidence) -> AssertionResult:
        seen = scope.seen
        rows = [match.survey(seen) for match in self.matches]
        return in_order(rows, gap(scope, self.channel), seen.types)


@dataclass(frozen=True, slots=True)
class MaxTokens:
    """Input plus output tokens stay within `limit`; cached tokens are not counted."""

    channel: ClassVar[Channel] = Channel.USAGE
    limit: int

    def __post_init__(self) -> None:
        require_limit(self.limit, "max_tokens", whole=True)

    def describe(self) -> Any:
        return {"criterion": "max_tokens", "limit": self.limit}

    def evaluate(self, scope: ScopeEvidence) -> AssertionResult:
        known = unknown = 0
        for turn in scope.turns:
            usage = turn.usage
            if usage is not None:
                known += (usage.input_tokens or 0) + (usage.output_tokens or 0)
            unknown += usage is None or usage.total_tokens is None or usage.unknown_calls > 0
        reason = gap(scope, self.channel) or (f"evidence:usage-unknown-turns={unknown}" if unknown else None)
        return bounded(known, self.limit, reason, actual={"tokens": known, "unknown_turns": unknown})


@dataclass(frozen=True, slots=True)
class MaxCost:
    """The estimated cost stays within `limit` US dollars.

    `costs` holds one estimate for each turn of the scope, None where a price or the usage is not known.
    """

    channel: ClassVar[Channel] = Channel.USAGE
    limit: float
    costs: tuple[float | None, ...]

    def __post_init__(self) -> None:
        require_limit(self.limit, "max_cost", whole=False)

    def describe(self) -> Any:
        return {"criterion": "max_cost", "limit": self.limit}

    def evaluate(self, scope: ScopeEvidence) -> AssertionResult:
        known = math.fsum(cost for cost in self.costs if cost is not None)
        unpriced = sum(cost is None for cost in self.costs) + max(0, len(scope.turns) - len(self.costs))
        reason = gap(scope, self.channel) or (f"evidence:unpriced-turns={unpriced}" if unpriced else None)
        return bounded(known, self.limit, reason, actual={"usd": known, "unpriced_turns": unpriced})


@dataclass(frozen=True, slots=True)
class Check:
    """A matcher on one value; the channel, when there is one, comes with the value."""

    channel: ClassVar[None] = None
    match: Match

    def describe(self) -> Any:
        return self.match.describe()


ScopeCriterion: TypeAlias = (
    Succeeded
    | Parked
    | MessageIncludes
    | CalledTool
    | NotCalledTool
    | ToolOrder
    | UsedNoTools
    | MaxToolCalls
    | NoFailedActions
    | EventOccurs
    | NotEvent
    | EventOrder
    | MaxTokens
    | MaxCost
)
Criterion: TypeAlias = ScopeCriterion | Check


def evaluate(criterion: ScopeCriterion, scope: ScopeEvidence) -> AssertionResult:
    """What the evidence of `scope` says of `criterion`."""
    return criterion.evaluate(scope)


async def check_value(value: Any, match: Match) -> AssertionResult:
    """What `match` says of `value`, read under the coverage the value carries."""
    plain, channel, entry = unwrap(value)
    outcome = match.evaluate(plain)
    if not isinstance(outcome, AssertionResult):
        outcome = await outcome
    if isinstance(value, (ChangedPaths, DiffText)) and value.gap is not None:
        return value.under_gap(match, outcome, value.gap)
    if channel is None or entry is None or entry.is_complete:
        return outcome
    return match.under_gap(outcome, coverage_reason(channel, entry))


def _operations_gap(scope: ScopeEvidence) -> str | None:
    """Why there may be more operations than are known."""
    orphans = scope.seen.orphans
    return gap(scope, Channel.ACTIONS) or (f"evidence:orphan-finishes={orphans}" if orphans else None)


def _count_operations(scope: ScopeEvidence, match: OperationMatch, wanted: Quantifier) -> AssertionResult:
    candidates = [candidate for _, candidate in match.survey(scope.seen, gap(scope, Channel.ACTIONS))]
    return counted(candidates, wanted, _operations_gap(scope), scope.seen.names)


def _count_events(scope: ScopeEvidence, match: EventMatch, wanted: Quantifier) -> AssertionResult:
    candidates = [candidate for _, candidate in match.survey(scope.seen)]
    return counted(candidates, wanted, gap(scope, Channel.EVENTS), scope.seen.types)


def _bound_tools(scope: ScopeEvidence, limit: int) -> AssertionResult:
    names = [each.name for each in scope.seen.operations if each.kind is OperationKind.TOOL]
    actual = {"calls": len(names), "seen": shown(names)}
    return bounded(len(names), limit, _operations_gap(scope), actual=actual)


def _status_seen(scope: ScopeEvidence) -> dict[str, Any]:
    return {"status": scope.status, "pending_requests": scope.pending_requests}
