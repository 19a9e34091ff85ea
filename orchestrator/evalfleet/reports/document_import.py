"""A report document, or several by arm, as what other formats are rendered from. PURE.

A document tells less than the record store: no tags, tokens or cost, no kind of failure but a deadline, no rule of
acceptance. What is rendered from it is what it tells; it is accepted when every case and every suite criterion passed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, cast

from evalfleet.errors import DefinitionError, FailureKind, Problem
from evalfleet.model.report import ArmCounts, CaseView, RunAggregate, RunInfo
from evalfleet.model.verdict import CaseStatus, RunKind, RunStatus, Style, Verdict
from evalfleet.reports import report_codes
from evalfleet.reports.accept import Accepted
from evalfleet.reports.classes import class_of
from evalfleet.reports.document_checks import INVALID, check_document
from evalfleet.reports.document_models import Case, Report
from evalfleet.reports.model import ReportModel, build_report

_NOTABLE = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedReport:
    """What was read: the report of all arms, their cases in order, and the document of each arm as it was written."""

    report: ReportModel
    cases: tuple[CaseView, ...]
    documents: Mapping[str, Any]


def import_report(value: Any, file: str) -> ImportedReport:
    """Read a document, or `{run, arms: {name: document}}`, that stands in `file`.

    Raises DefinitionError, EVALUATION_RESUME_INVALID, with the place of everything that is wrong.
    """
    wrapped: Any = cast("Mapping[str, Any]", value).get("arms") if isinstance(value, dict) else None
    if not isinstance(wrapped, dict):
        report = check_document(value, file)
        return _imported({report.target.id: report}, {report.target.id: value})
    documents = cast("dict[str, Any]", wrapped)
    reports = {arm: check_document(document, file, ("arms", arm)) for arm, document in documents.items()}
    if len({report.run_id for report in reports.values()}) != 1:
        raise DefinitionError(INVALID, [Problem(INVALID, "the arms are not those of one run", file, field="arms")])
    return _imported(reports, documents)


def _imported(reports: Mapping[str, Report], documents: Mapping[str, Any]) -> ImportedReport:
    cases: list[CaseView] = []
    for arm, report in reports.items():
        cases += (_view(arm, len(cases) + number, case) for number, case in enumerate(report.cases))
    arms = tuple(_counts(arm, [case for case in cases if case.arm == arm]) for arm in reports)
    aggregate = RunAggregate(run=_run(next(iter(reports.values())), len(cases)), arms=arms)
    notable = (case for case in cases if case.status in (CaseStatus.FAILED, CaseStatus.ERRORED, CaseStatus.BLOCKED))
    model = build_report(aggregate, tuple(case for _, case in zip(range(_NOTABLE), notable, strict=False)))
    model = replace(model, accepted=_with_suites(model.accepted, reports))
    return ImportedReport(report=model, cases=tuple(cases), documents=documents)


def _with_suites(accepted: Accepted, reports: Mapping[str, Report]) -> Accepted:
    """The decision about the cases, unless a suite's own criterion is not met."""
    unmet = tuple(
        f"arm {arm}: the suite criterion {result.id} is not met"
        for arm, report in reports.items()
        for result in report.assertions
        if result.decides and not result.passed
    )
    return Accepted(False, (*accepted.reasons, *unmet)) if unmet else accepted


def _run(report: Report, total: int) -> RunInfo:
    started = _seconds(report.started_at)
    return RunInfo(
        id=report.run_id,
        kind=RunKind.SWEEP,
        name=report.suite.name,
        project="",
        status=RunStatus(report.status),
        total=total,
        created_at=started,
        started_at=started,
        finished_at=None if report.finished_at is None else _seconds(report.finished_at),
        stop_reason=report.stop_reason,
        derived_from=report.resumed_from,
        grading=report.grading or 0,
    )


def _counts(arm: str, cases: Sequence[CaseView]) -> ArmCounts:
    classes = Counter(class_of(case).value for case in cases)
    kinds = Counter(case.kind.value for case in cases if case.kind is not None)
    counts = ArmCounts(
        arm=arm, style=Style.PASS, planned=len(cases), failures_by_kind=dict(kinds), by_eval=_by_eval(cases)
    )
    return replace(counts, **classes)


def _by_eval(cases: Sequence[CaseView]) -> dict[tuple[int, int, int], int]:
    """Evals by how many of their repetitions count, were answered and passed."""
    evals: dict[tuple[str, tuple[tuple[str, str], ...]], list[CaseView]] = {}
    for case in cases:
        evals.setdefault((case.eval_id, tuple(sorted(case.variants.items()))), []).append(case)
    return Counter(
        (
            sum(each.status not in (CaseStatus.SKIPPED, CaseStatus.NOT_NEEDED) for each in own),
            sum(each.verdict in (Verdict.PASSED, Verdict.FAILED) or each.kind is FailureKind.DEADLINE for each in own),
            sum(each.verdict is Verdict.PASSED for each in own),
        )
        for own in evals.values()
    )


def _view(arm: str, ordinal: int, case: Case) -> CaseView:
    status = _status(case)
    verdict = Verdict(status.value) if status.value in {each.value for each in Verdict} else None
    return CaseView(
        ordinal=ordinal,
        arm=arm,
        eval_id=case.scenario_id,
        style=Style.PASS,
        repetition=case.repetition,
        status=status,
        verdict=verdict,
        kind=FailureKind.DEADLINE if _code(case) == report_codes.TIMEOUT and verdict is Verdict.ERRORED else None,
        code=_code(case),
        message=case.skip_reason or next(_unmet(case), None),
        attempts=0 if case.attempt is None else case.attempt,
        duration=_duration(case),
        variants=case.variants,
    )


def _status(case: Case) -> CaseStatus:
    if case.status == "skipped" and (case.skip_reason or "").startswith("not-needed"):
        return CaseStatus.NOT_NEEDED
    return CaseStatus.ERRORED if case.status == "error" else CaseStatus(case.status)


def _code(case: Case) -> str | None:
    return case.error_code or next((turn.error_code for turn in case.turns if turn.error_code is not None), None)


def _unmet(case: Case) -> Iterator[str]:
    """The criteria that a case failed by, each with its step."""
    lists = [*((f"{turn.step_id}: ", turn.assertions) for turn in case.turns), ("", case.assertions)]
    for place, results in lists:
        for result in results:
            if result.decides and not result.passed:
                yield f"{place}{result.label or result.id} {result.error_code or 'is not met'}"


def _duration(case: Case) -> float | None:
    if case.started_at is None or case.finished_at is None:
        return None
    return max(0.0, _seconds(case.finished_at) - _seconds(case.started_at))


def _seconds(instant: str) -> float:
    return datetime.fromisoformat(instant).timestamp()
