"""Evidence coverage: per channel, what an adapter can prove, and its worst-of algebra."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum


class Channel(StrEnum):
    """The six kinds of evidence an adapter speaks about."""

    EVENTS = "events"
    ACTIONS = "actions"
    MESSAGES = "messages"
    USAGE = "usage"
    STATUS = "status"
    DATA = "data"


class CoverageState(StrEnum):
    COMPLETE = "complete"
    PARTIAL = "partial"
    UNAVAILABLE = "unavailable"


_RANK = {CoverageState.COMPLETE: 0, CoverageState.PARTIAL: 1, CoverageState.UNAVAILABLE: 2}


@dataclass(frozen=True, slots=True)
class CoverageEntry:
    """One channel's state; `complete` carries no reason, the others must carry one.

    Raises ValueError when built otherwise.
    """

    state: CoverageState
    reason: str | None = None

    def __post_init__(self) -> None:
        if self.state is CoverageState.COMPLETE and self.reason is not None:
            raise ValueError("a complete channel carries no reason")
        if self.state is not CoverageState.COMPLETE and not (self.reason and self.reason.strip()):
            raise ValueError(f"a channel that is {self.state.value} needs a reason")

    @property
    def is_complete(self) -> bool:
        return self.state is CoverageState.COMPLETE


complete = CoverageEntry(CoverageState.COMPLETE)


def partial(reason: str) -> CoverageEntry:
    """Some evidence of the channel may be missing, because of `reason`."""
    return CoverageEntry(CoverageState.PARTIAL, reason)


def unavailable(reason: str) -> CoverageEntry:
    """The channel carries no evidence, because of `reason`."""
    return CoverageEntry(CoverageState.UNAVAILABLE, reason)


def worse(left: CoverageEntry, right: CoverageEntry) -> CoverageEntry:
    """The worse of two entries; the left one on a tie, so that the first reason stays."""
    return right if _RANK[right.state] > _RANK[left.state] else left


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """All six channels, each declared: there is no fourth state and no default."""

    events: CoverageEntry
    actions: CoverageEntry
    messages: CoverageEntry
    usage: CoverageEntry
    status: CoverageEntry
    data: CoverageEntry

    def __post_init__(self) -> None:
        for channel in Channel:
            if not isinstance(getattr(self, channel.value), CoverageEntry):
                raise TypeError(
                    f"coverage.{channel.value} must be complete, partial(reason) or unavailable(reason), "
                    f"not {type(getattr(self, channel.value)).__name__}"
                )

    def entry(self, channel: Channel) -> CoverageEntry:
        return getattr(self, channel.value)

    def downgrade(self, changes: Mapping[Channel, CoverageEntry]) -> Coverage:
        """This coverage made worse where `changes` is worse; an upgrade is clamped to what stands."""
        if not changes:
            return self
        worsened = {channel.value: worse(self.entry(channel), entry) for channel, entry in changes.items()}
        return replace(self, **worsened)


COMPLETE_COVERAGE = Coverage(
    events=complete, actions=complete, messages=complete, usage=complete, status=complete, data=complete
)


def worst(coverages: Iterable[Coverage]) -> Coverage:
    """Per channel the worst over `coverages`; complete when there are none."""
    result = COMPLETE_COVERAGE
    for coverage in coverages:
        if coverage is COMPLETE_COVERAGE:
            continue
        result = result.downgrade({channel: coverage.entry(channel) for channel in Channel})
    return result
