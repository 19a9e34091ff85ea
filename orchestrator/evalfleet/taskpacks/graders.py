"""Three graders that look at the same frozen evidence, each for itself: decision, gap and request. PURE."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from evalfleet.errors import describe
from evalfleet.model.canonical import canonical_bytes


class GraderStatus(StrEnum):
    PASS = "pass"
    FAIL = "fail"
    ERROR = "error"
    NOT_APPLICABLE = "not_applicable"


@dataclass(frozen=True, slots=True)
class Gold:
    """What is right at a decision point: the decision, and the requirements that are not met."""

    decision: str
    unmet: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Reading:
    """What the agent said at a decision point, read from its tool calls: None where it decided nothing.

    `requested` holds the ids as they were asked for, repetitions included; `reasons` what it gave for each;
    `message` the whole text that went out.
    """

    decision: str | None = None
    requested: tuple[str, ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict[str, str])
    message: str = ""


@dataclass(frozen=True, slots=True)
class PointEvidence:
    """The frozen input of the graders. `requirements` maps each known id to the names it goes by in a text."""

    gold: Gold
    reading: Reading
    requirements: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class GraderResult:
    """What a grader says: its status, and as JSON what it compared."""

    grader: str
    status: GraderStatus
    expected: Any = None
    actual: Any = None
    detail: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def document(self) -> dict[str, Any]:
        """The result as JSON."""
        return {
            "grader": self.grader,
            "status": self.status.value,
            "expected": self.expected,
            "actual": self.actual,
            "detail": dict(self.detail),
        }


PointGrader = Callable[[PointEvidence], GraderResult]


def grade(name: str, grader: PointGrader, evidence: PointEvidence) -> GraderResult:
    """What a grader says. One that raises, or answers with anything else, is an error and no answer."""
    try:
        found = grader(evidence)
        if isinstance(found, GraderResult):  # pyright: ignore[reportUnnecessaryIsInstance] - may be untyped
            canonical_bytes(found.document())
            return replace(found, grader=name)
        return broke(name, f"it returned a {type(found).__name__}, no GraderResult")
    except Exception as error:  # noqa: BLE001 - a pack's own grader may raise anything
        return broke(name, f"{type(error).__name__}: {describe(error)}")


def broke(name: str, why: str) -> GraderResult:
    """The result of a grader that gave no answer."""
    return GraderResult(name, GraderStatus.ERROR, detail={"error": why})


def grade_decision(evidence: PointEvidence) -> GraderResult:
    """Whether the decision is the right one; none at all is wrong."""
    expected, actual = evidence.gold.decision, evidence.reading.decision
    return GraderResult("decision", _status(actual == expected), expected, actual)


def grade_gap(evidence: PointEvidence) -> GraderResult:
    """Whether exactly the unmet requirements were asked for: what was missed, and what was asked for beyond them."""
    gold, counts = evidence.gold.unmet, Counter(evidence.reading.requested)
    asked = frozenset(counts)
    found = len(gold & asked)
    precision = found / len(asked) if asked else None
    recall = found / len(gold) if gold else None
    extra = {
        name: "already_met" if name in evidence.requirements else "unknown_requirement" for name in sorted(asked - gold)
    }
    detail = {
        "missed": sorted(gold - asked),
        "extra": extra,
        "duplicates": sorted(name for name, count in counts.items() if count > 1),
        "precision": precision,
        "recall": recall,
        "f1": _f1(found, len(asked), len(gold)),
    }
    return GraderResult("gap", _status(asked == gold), sorted(gold), sorted(asked), detail)


def grade_request(evidence: PointEvidence) -> GraderResult:
    """Whether the message names every gap and says why, by rules: the id or a name of it, and a reason.

    Told apart: of the gaps that there are, and of what the agent itself asked for. The first decides. Without gaps
    there is nothing that a request would have to say.
    """
    gold, reading = evidence.gold.unmet, evidence.reading
    if not gold:
        return GraderResult("request", GraderStatus.NOT_APPLICABLE)
    of_gold = {name: _said(evidence, name) for name in sorted(gold)}
    of_asked = {name: _said(evidence, name) for name in sorted(set(reading.requested))}
    passed = all(said["named"] and said["reason"] for said in of_gold.values())
    actual = sorted(name for name, said in of_gold.items() if said["named"] and said["reason"])
    detail = {"of_gaps": of_gold, "of_requested": of_asked}
    return GraderResult("request", _status(passed), sorted(gold), actual, detail)


SUFFICIENCY: Mapping[str, PointGrader] = {"decision": grade_decision, "gap": grade_gap, "request": grade_request}

#: What announces a reason in a sentence, and how many words a reason in its own field has at least.
_REASONS = (
    *("because", "since", "as it", "as the", "due to", "required", "needed"),
    *("is missing", "are missing", "was missing", "not provided", "not included", "not found", "not on file"),
    *("not enclosed", "not received", "not been provided", "expired", "out of date", "older than", "no longer valid"),
    *("contradicts", "contradict", "conflicts", "conflict", "does not match", "do not match", "differs", "differ"),
    *("illegible", "unsigned", "incomplete"),
)
_REASON_WORDS = 3


def _said(evidence: PointEvidence, name: str) -> dict[str, bool]:
    """Whether the message names a requirement, and whether a reason is given: in its own field or its sentence."""
    names = (name, *evidence.requirements.get(name, ()))
    sentences = [text for text in _sentences(evidence.reading.message) if _mentions(text, names)]
    given = len(evidence.reading.reasons.get(name, "").split()) >= _REASON_WORDS
    return {"named": bool(sentences), "reason": given or any(_mentions(text, _REASONS) for text in sentences)}


def _sentences(message: str) -> Sequence[str]:
    return [part for part in re.split(r"(?<=[.!?])\s+|\n+", message) if part.strip()]


def _mentions(text: str, names: Iterable[str]) -> bool:
    """Whether one of the names stands in the text as words of its own."""
    return any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE) for name in names)


def _f1(found: int, asked: int, gold: int) -> float | None:
    return 2 * found / (asked + gold) if asked + gold else None


def _status(passed: bool) -> GraderStatus:
    return GraderStatus.PASS if passed else GraderStatus.FAIL
