"""The result of a criterion as JSON and back, in the names of the suite format; what the criterion wanted. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evalfleet.model.events import MISSING
from evalfleet.model.suite import Severity, SuiteOutcome


def wanted_value(outcome: SuiteOutcome) -> dict[str, Any]:
    """What the criterion wanted, in the form of a matcher: its operator or kind, its value, and where it looked."""
    wanted: dict[str, Any] = {"match": outcome.operator or outcome.kind}
    if outcome.expected is not MISSING:
        wanted["value"] = outcome.expected
    if outcome.path is not None:
        wanted["at"] = ".".join(map(str, outcome.path)) or "the observation"
    return wanted


def read_outcome(value: Mapping[str, Any]) -> SuiteOutcome:
    """The result that `outcome_value` gave this JSON of."""
    actual: Mapping[str, Any] | None = value.get("actual")
    path: Sequence[str | int] | None = value.get("path")
    return SuiteOutcome(
        id=value["id"],
        kind=value["kind"],
        passed=value["passed"],
        label=value.get("label"),
        severity=Severity(value.get("severity", Severity.REQUIRED)),
        looked=actual is not None,
        actual=MISSING if actual is None else actual.get("value", MISSING),
        expected=value.get("expected", MISSING),
        operator=value.get("operator"),
        path=None if path is None else tuple(path),
        error_code=value.get("errorCode"),
        reason=value.get("reason"),
        evidence=value.get("evidence"),
        children=tuple(map(read_outcome, value.get("children", ()))),
    )


def outcome_value(outcome: SuiteOutcome) -> dict[str, Any]:
    """The result with all of its children. `actual` tells what is missing from what is null."""
    value: dict[str, Any] = {"id": outcome.id, "kind": outcome.kind, "passed": outcome.passed}
    if outcome.severity is not Severity.REQUIRED:
        value["severity"] = outcome.severity.value
    if outcome.path is not None:
        value["path"] = list(outcome.path)
    if outcome.looked:
        present = outcome.actual is not MISSING
        value["actual"] = {"present": True, "value": outcome.actual} if present else {"present": False}
    if outcome.expected is not MISSING:
        value["expected"] = outcome.expected
    said = {
        "label": outcome.label,
        "operator": outcome.operator,
        "errorCode": outcome.error_code,
        "reason": outcome.reason,
        "evidence": outcome.evidence,
    }
    value |= {key: item for key, item in said.items() if item is not None}
    if outcome.children:
        value["children"] = [outcome_value(child) for child in outcome.children]
    return value
