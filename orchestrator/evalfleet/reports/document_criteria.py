"""The results of an attempt's assertions as a report document has them, each where it was declared. PURE."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from evalfleet.grading.fold import judge_row
from evalfleet.model.assertion import AssertionResult, AssertionRow, Result
from evalfleet.model.events import MISSING
from evalfleet.model.judge import JudgeCall
from evalfleet.model.verdict import Style
from evalfleet.reports.assertion_tree import is_value
from evalfleet.reports.evidence_value import plain
from evalfleet.reports.report_codes import assertion_code
from evalfleet.reports.visible import visible

_FORMED = frozenset({Result.MATCHED, Result.MISMATCHED})

#: Where criteria stand that are declared of no step.
OF_CASE = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """The assertions of an attempt and what is needed to tell of them.

    `declared` says that the eval is a scenario, whose judged criteria name their step by their group. `complete` says
    that no send of the attempt failed, whose text could else stand in a reason.
    """

    rows: Sequence[AssertionRow]
    calls: Sequence[JudgeCall]
    style: Style
    declared: bool
    complete: bool


def criteria_by_step(evaluated: Evaluated) -> dict[str, list[dict[str, Any]]]:
    """The results by the id of their step, OF_CASE for those of the whole case, in the order of evaluation."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in evaluated.rows:
        step, result = _placed(row, evaluated)
        found.setdefault(step, []).append(result)
    return found


def list_status(results: Iterable[Mapping[str, Any]]) -> str:
    """The status of one list: an error before a failure before a pass; advisory results don't count."""
    deciding = [result for result in results if result.get("severity") != "advisory"]
    if any("errorCode" in result for result in deciding):
        return "error"
    return "passed" if all(result["passed"] for result in deciding) else "failed"


def first_error(results: Iterable[Mapping[str, Any]], place: str) -> tuple[str, str] | None:
    """The code of the first result that could not be judged, and where it stands, by ids down to the innermost."""
    for result in results:
        if "errorCode" in result and result.get("severity") != "advisory":
            pointer = f"{place}.{result['id']}"
            return first_error(result.get("children", ()), pointer) or (result["errorCode"], pointer)
    return None


def _placed(row: AssertionRow, evaluated: Evaluated) -> tuple[str, dict[str, Any]]:
    described = row.criterion
    if isinstance(described, Mapping) and "result" in described and row.name == "suite":
        own = cast("Mapping[str, Any]", described)
        return own["step"] or OF_CASE, plain(own["result"])
    if evaluated.declared:
        return (row.group[0] if row.group else OF_CASE), _result(row, evaluated)
    return (row.scope if row.scope.startswith("turn/") else OF_CASE), _result(row, evaluated)


def _result(row: AssertionRow, evaluated: Evaluated) -> dict[str, Any]:
    code = assertion_code(row)
    result: dict[str, Any] = {"id": criterion_id(row), "kind": row.name}
    if label := criterion_label(row, declared=evaluated.declared):
        result["label"] = label
    if not decides(row, evaluated.style):
        result["severity"] = "advisory"
    result["passed"] = code is None and row.holds is not False
    result |= _seen(row.outcome, _wanted(row))
    if code is not None:
        result["errorCode"] = code
        reason = row.outcome.reason or ""
        if evaluated.complete and reason.startswith("coverage:"):
            result["reason"] = visible(reason)
    if evidence := _evidence(row, evaluated.calls):
        result["evidence"] = evidence
    if children := [_child(number, child) for number, child in enumerate(_parts(row.outcome))]:
        result["children"] = children
    return result


def criterion_id(row: AssertionRow) -> str:
    """How an assertion is named among those of its attempt: by its key, else by what and where it is in the source."""
    return row.key or f"{row.name}.{row.index}"


def criterion_label(row: AssertionRow, *, declared: bool) -> str | None:
    """The label after the titles of the groups around it; a scenario's groups are steps and no titles."""
    titles = () if declared else row.group
    return visible(" › ".join((*titles, row.label) if row.label else titles)) or None


def decides(row: AssertionRow, style: Style) -> bool:
    """Whether the assertion can make its case fail, or keep it from being judged."""
    if row.outcome.result in _FORMED:
        return judge_row(style, row.name, row.outcome, row.policy).gate
    return not row.policy.optional and (style is Style.PASS or row.policy.gate is True or row.policy.points is not None)


def _wanted(row: AssertionRow) -> Any:
    """The whole criterion, where it says more than its name; else what it expected."""
    criterion: Any = row.criterion
    said = cast("dict[str, Any]", criterion) if isinstance(criterion, dict) else {}
    return said if len(said) > 1 else row.outcome.expected


def _seen(outcome: AssertionResult, wanted: Any) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    if outcome.actual is not MISSING:
        seen["actual"] = {"present": True, "value": plain(outcome.actual)}
    if wanted is not MISSING:
        seen["expected"] = plain(wanted)
    return seen


def _child(number: int, outcome: AssertionResult) -> dict[str, Any]:
    """A part of a composite, named by its place."""
    child: dict[str, Any] = {
        "id": str(number),
        "passed": outcome.result is Result.MATCHED,
        **_seen(outcome, outcome.expected),
    }
    if outcome.result not in _FORMED:
        child["errorCode"] = "EVALUATOR_FAILED" if outcome.result is Result.ERRORED else "EVIDENCE_NOT_COVERED"
    if children := [_child(place, part) for place, part in enumerate(_parts(outcome))]:
        child["children"] = children
    return child


def _parts(outcome: AssertionResult) -> list[AssertionResult]:
    return [child for child in outcome.children if not is_value(child)]


def _evidence(row: AssertionRow, calls: Sequence[JudgeCall]) -> dict[str, Any]:
    """What a result stands on beside what was expected and seen."""
    told: dict[str, Any] = {
        "measurement": row.outcome.measurement,
        "minimum": row.policy.at_least if row.policy.gate_min is None else row.policy.gate_min,
        "points": row.policy.points,
        "earned": row.earned,
    }
    evidence = {name: plain(value) for name, value in told.items() if value is not None}
    if codes := [call.code for call in calls if call.assertion == row.index and call.code is not None]:
        evidence["judgeCodes"] = codes
    values = [child for child in row.outcome.children if is_value(child)]
    if values:
        evidence["where"] = [{"part": plain(each.expected["part"]), "value": _shown(each.actual)} for each in values]
    return evidence


def _shown(value: Any) -> Any:
    return None if value is MISSING else plain(value)
