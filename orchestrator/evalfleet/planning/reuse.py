"""Which Cases run, which are carried from an earlier run, which are blocked, and why. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from evalfleet.model.case import Case
from evalfleet.model.verdict import CaseStatus
from evalfleet.planning.fingerprint import FingerprintParts

#: Only a decided answer is worth carrying: errored, cancelled, skipped and blocked Cases run again.
CARRIED = frozenset({CaseStatus.PASSED, CaseStatus.FAILED})


class ActionKind(StrEnum):
    RUN = "run"
    CARRY = "carry"
    BLOCKED = "blocked"
    SKIP = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What an earlier run of the project knows of a Case. `parts` are that run's fingerprint parts for it.

    `executed_by` is the run whose attempt it is, another one than `run` when that had carried it; `grading` judged it.
    """

    run: str
    ordinal: int
    status: CaseStatus
    fingerprint: str | None
    attempt: int | None = None
    executed_by: str | None = None
    grading: int = 0
    parts: Mapping[str, str] = field(default_factory=dict[str, str])


class History(Protocol):
    """Settled results of this project; never another's."""

    def settled(self, fingerprint: str, repetition: int) -> Past | None:
        """The Case of the *latest* run that settled this fingerprint at this repetition, whatever it came to."""
        ...

    def resembling(self, case: Case) -> Past | None:
        """The latest settled Case with the same arm, eval id and repetition: to say what changed since."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What happens to one Case. `reason` is for people; `changed` names the fingerprint fields that changed."""

    case: Case
    kind: ActionKind
    reason: str
    past: Past | None = None
    changed: tuple[str, ...] = ()


class NoHistory:
    """A project without earlier runs, or a run that carries nothing."""

    def settled(self, fingerprint: str, repetition: int) -> Past | None:
        return None

    def resembling(self, case: Case) -> Past | None:
        return None


class PartsOf(Protocol):
    """The fingerprint parts of a Case."""

    def __call__(self, case: Case, /) -> FingerprintParts: ...


def reuse(
    cases: Iterable[Case],
    history: History,
    parts: PartsOf,
    *,
    allow_external: bool,
    unprintable: Mapping[str, str],
    skips: Mapping[str, str],
) -> Iterator[Action]:
    """One Action a Case, in order. `unprintable` says why an arm's agent can't be fingerprinted, by arm name; `skips`
    why a definition is left out, by its id.
    """
    for case in cases:
        if (reason := skips.get(case.definition)) is not None:
            yield Action(case=case, kind=ActionKind.SKIP, reason=reason)
        elif case.external and not allow_external:
            reason = "the eval writes to the outside world and writes.allow_external is not set"
            yield Action(case=case, kind=ActionKind.BLOCKED, reason=reason)
        elif case.fingerprint is None:
            why = unprintable.get(case.arm, "nothing identifies its agent")
            yield Action(case=case, kind=ActionKind.RUN, reason=f"the arm's agent can't be fingerprinted: {why}")
        else:
            yield _decide(case, case.fingerprint, history, parts)


def _decide(case: Case, fingerprint: str, history: History, parts: PartsOf) -> Action:
    past = history.settled(fingerprint, case.repetition)
    if past is not None and past.status in CARRIED:
        reason = f"{past.status.value} in run {past.run}"
        return Action(case=case, kind=ActionKind.CARRY, reason=reason, past=past)
    if past is not None:
        reason = f"{past.status.value} in run {past.run}, which is not an answer to carry"
        return Action(case=case, kind=ActionKind.RUN, reason=reason, past=past)
    before = history.resembling(case)
    if before is None:
        return Action(case=case, kind=ActionKind.RUN, reason="never settled before")
    changed = parts(case).changed(before.parts)
    reason = f"changed since run {before.run}: {', '.join(changed) or 'the fingerprint'}"
    return Action(case=case, kind=ActionKind.RUN, reason=reason, past=before, changed=changed)
