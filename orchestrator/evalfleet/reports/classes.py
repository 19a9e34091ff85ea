"""The exclusive classes of cases: each case is in exactly one, and they add up to what was planned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Protocol

from evalfleet.errors import AGENT_OWN_KINDS, FailureKind, StoreError
from evalfleet.model.report import ArmCounts
from evalfleet.model.verdict import CaseStatus


class CaseClass(StrEnum):
    """What became of a case, as statistics count it. The values are the fields of `ArmCounts`."""

    PASSED = "passed"
    FAILED = "failed"
    ERRORED_OWN = "errored_own"
    ERRORED_OTHER = "errored_other"
    SKIPPED = "skipped"
    NOT_NEEDED = "not_needed"
    BLOCKED = "blocked"
    CANCELLED = "cancelled"
    PENDING = "pending"

    @property
    def label(self) -> str:
        """The class as people read it."""
        return _LABELS.get(self, self.value)


_LABELS = {
    CaseClass.ERRORED_OWN: "errored by the agent",
    CaseClass.ERRORED_OTHER: "errored otherwise",
    CaseClass.NOT_NEEDED: "not needed",
}

#: Counted against the agent: a verdict was formed, or the agent itself kept it from being formed.
DECIDED = frozenset({CaseClass.PASSED, CaseClass.FAILED, CaseClass.ERRORED_OWN})

#: Leave the denominator and are counted beside it.
LEAVING = frozenset({CaseClass.SKIPPED, CaseClass.NOT_NEEDED})

#: In the denominator without an answer: nobody knows how the agent would have done.
MISSING_CLASSES = frozenset(CaseClass) - DECIDED - LEAVING


class Ended(Protocol):
    """A case as far as its class goes."""

    @property
    def status(self) -> CaseStatus: ...

    @property
    def kind(self) -> FailureKind | None: ...


def class_of(case: Ended) -> CaseClass:
    """The one class that `case` is counted in; a running case is still pending."""
    if case.status is CaseStatus.RUNNING:
        return CaseClass.PENDING
    if case.status is CaseStatus.ERRORED:
        return CaseClass.ERRORED_OWN if case.kind in AGENT_OWN_KINDS else CaseClass.ERRORED_OTHER
    return CaseClass(case.status.value)


def classes_of(counts: ArmCounts) -> dict[CaseClass, int]:
    """The arm's cases by class, in declared order. Raises StoreError when they don't add up to `planned`."""
    classes = {each: int(getattr(counts, each.value)) for each in CaseClass}
    if sum(classes.values()) != counts.planned:
        parts = ", ".join(f"{count} {each.label}" for each, count in classes.items() if count)
        raise StoreError(f"arm {counts.arm}: {counts.planned} cases were planned, but the record store counts {parts}")
    return classes


def add_classes(parts: Iterable[Mapping[CaseClass, int]]) -> dict[CaseClass, int]:
    """The sum over arms, class by class."""
    total = dict.fromkeys(CaseClass, 0)
    for part in parts:
        for each, count in part.items():
            total[each] += count
    return total
