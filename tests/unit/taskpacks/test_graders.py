"""Three graders on one evidence: each for itself, and none hides another."""

from __future__ import annotations

from typing import Any

import pytest

from evalfleet.taskpacks.graders import (
    SUFFICIENCY,
    Gold,
    GraderResult,
    GraderStatus,
    PointEvidence,
    Reading,
    grade,
    grade_gap,
    grade_request,
)

NAMES = {"lease": ("signed lease",), "permit": ("trade permit", "permit of trade"), "id": ("identity card",)}
SUFFICIENT = Gold("approve")
LACKING = Gold("request", frozenset({"lease", "permit"}))


def evidence(gold: Gold, decision: str | None = None, *requested: str, **more: Any) -> PointEvidence:
    return PointEvidence(gold, Reading(decision, requested, **more), NAMES)


GOOD = "We need the signed lease because the one on file is unsigned. Your permit expired in March."


@pytest.mark.parametrize(
    ("seen", "decision", "gap", "request_"),
    [
        (evidence(SUFFICIENT, "approve"), "pass", "pass", "not_applicable"),
        (evidence(SUFFICIENT, "request"), "fail", "pass", "not_applicable"),
        (evidence(SUFFICIENT), "fail", "pass", "not_applicable"),
        (evidence(SUFFICIENT, "approve", "id"), "pass", "fail", "not_applicable"),
        (evidence(LACKING), "fail", "fail", "fail"),
        (evidence(LACKING, "request", "lease", "permit", message=GOOD), "pass", "pass", "pass"),
        (evidence(LACKING, "approve", "lease", "permit", message=GOOD), "fail", "pass", "pass"),
        (evidence(LACKING, "request", "lease", message=GOOD), "pass", "fail", "pass"),
        (evidence(LACKING, "request", "lease", "permit", "id", message=GOOD), "pass", "fail", "pass"),
        (
            evidence(LACKING, "request", "lease", "permit", message="Send the lease and the permit."),
            "pass",
            "pass",
            "fail",
        ),
        (evidence(LACKING, "request", "lease", "permit", message="Please send papers."), "pass", "pass", "fail"),
        (evidence(LACKING, "request", "lease", "lease", "permit", message=GOOD), "pass", "pass", "pass"),
        (evidence(LACKING, "REQUEST", "Lease", "permit", message=GOOD), "fail", "fail", "pass"),
    ],
)
def test_each_grader_says_its_own(seen: PointEvidence, decision: str, gap: str, request_: str) -> None:
    found = {name: grade(name, grader, seen).status.value for name, grader in SUFFICIENCY.items()}
    assert found == {"decision": decision, "gap": gap, "request": request_}


def test_a_gap_result_says_what_was_missed_what_was_extra_and_why() -> None:
    found = grade_gap(evidence(LACKING, "request", "lease", "lease", "id", "passport"))
    assert (found.expected, found.actual) == (["lease", "permit"], ["id", "lease", "passport"])
    assert found.detail == {
        "missed": ["permit"],
        "extra": {"id": "already_met", "passport": "unknown_requirement"},
        "duplicates": ["lease"],
        "precision": pytest.approx(1 / 3),
        "recall": 0.5,
        "f1": pytest.approx(0.4),
    }


def test_figures_without_a_divisor_are_none() -> None:
    detail = grade_gap(evidence(SUFFICIENT, "approve")).detail
    assert (detail["precision"], detail["recall"], detail["f1"]) == (None, None, None)


def test_a_request_result_tells_gaps_apart_from_what_was_asked_for() -> None:
    found = grade_request(evidence(LACKING, "request", "id", message="Your identity card is missing. Send the lease."))
    assert found.detail["of_gaps"] == {
        "lease": {"named": True, "reason": False},
        "permit": {"named": False, "reason": False},
    }
    assert found.detail["of_requested"] == {"id": {"named": True, "reason": True}}


@pytest.mark.parametrize(
    ("message", "reasons", "passes"),
    [
        ("lease", {"lease": "the copy is unsigned"}, True),
        ("lease", {"lease": "unsigned"}, False),
        ("Lease: expired.", {}, True),
        ("The lease. It expired.", {}, False),
        ("The lease.\nIt expired.", {}, False),
        ("We need the release because it expired.", {}, False),
        ("SIGNED LEASE, since yours differs", {}, True),
        ("leasehold is missing", {}, False),
        ("", {"lease": "the copy is unsigned"}, False),
    ],
)
def test_when_a_message_names_a_gap_and_says_why(message: str, reasons: dict[str, str], passes: bool) -> None:
    seen = evidence(Gold("request", frozenset({"lease"})), "request", "lease", message=message, reasons=reasons)
    assert (grade_request(seen).status.value == "pass") is passes


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lambda seen: seen.gone, "AttributeError: 'PointEvidence' object has no attribute 'gone'"),
        (lambda seen: None, "it returned a NoneType, no GraderResult"),
        (lambda seen: True, "it returned a bool, no GraderResult"),
        (lambda seen: 0, "it returned a int, no GraderResult"),
        (lambda seen: "pass", "it returned a str, no GraderResult"),
        (lambda seen: GraderResult("x", GraderStatus.PASS, detail={"seen": {1, 2}}), "TypeError: Object of type set"),
    ],
)
def test_no_answer_is_neither_pass_nor_fail(answer: Any, error: str) -> None:
    found = grade("mine", answer, evidence(SUFFICIENT, "approve"))
    assert (found.grader, found.status) == ("mine", GraderStatus.ERROR)
    assert found.detail["error"].startswith(error)
