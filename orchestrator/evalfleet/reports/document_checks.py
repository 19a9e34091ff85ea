"""Whether a report document agrees with itself: its counts, its suite, and what it says of each case. PURE."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from evalfleet.errors import DefinitionError, Problem
from evalfleet.reports.document import document_fingerprint
from evalfleet.reports.document_models import CASE_STATES, Case, Criterion, GeneratedSuite, Report
from evalfleet.suites.locations import Path, dotted
from evalfleet.suites.matrix import case_id
from evalfleet.suites.parse import parse_suite

INVALID = "EVALUATION_RESUME_INVALID"

#: So many things wrong are enough to say.
_SHOWN = 20


def check_document(document: Any, file: str, within: Path = ()) -> Report:
    """The report that a JSON value is, read from `file` at the path `within`.

    Raises DefinitionError, EVALUATION_RESUME_INVALID, with the place of each thing wrong and no value.
    """
    prefix = "".join(f"{part}." for part in within)
    try:
        report = Report.model_validate(document)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False)
        raise _refused([(_path(each["loc"]), each["msg"]) for each in wrong], prefix, file) from None
    if found := list(_faults(report, document)):
        raise _refused(found, prefix, file)
    return report


def _refused(found: Sequence[tuple[str, str]], prefix: str, file: str) -> DefinitionError:
    shown = found[:_SHOWN]
    return DefinitionError(INVALID, [Problem(INVALID, what, file, field=f"{prefix}{place}") for place, what in shown])


def _path(place: Path) -> str:
    """Where in the document, without the form of the suite, which is no key of it."""
    return dotted((*place[:1], *place[2:]) if place[:1] == ("suite",) else place)


def _faults(report: Report, document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    counts = Counter(case.status for case in report.cases)
    for state in CASE_STATES:
        if getattr(report.summary, state) != counts[state]:
            yield f"summary.{state}", f"there are {counts[state]} such cases"
    if report.summary.total != len(report.cases):
        yield "summary.total", f"there are {len(report.cases)} cases"
    if (report.status == "running") == (report.finished_at is not None):
        yield "finishedAt", "stands in the report of a run that has ended, and in no other"
    scenarios: Mapping[str, Mapping[str, Any]] = {each["id"]: each for each in document["suite"]["scenarios"]}
    if not isinstance(report.suite, GeneratedSuite):
        yield from _suite_faults(document["suite"])
    known: set[str] = set()
    for number, case in enumerate(report.cases):
        place = f"cases.{number}"
        if case.id in known:
            yield f"{place}.id", "another case has this id"
        known.add(case.id)
        yield from _case_faults(case, place, scenarios.get(case.scenario_id))
    if document_fingerprint(document["suite"], (case.id for case in report.cases), document["target"]) != (
        report.fingerprint
    ):
        yield "fingerprint", "is not that of this suite, these cases and this target"


def _suite_faults(suite: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    try:
        parse_suite(suite)
    except DefinitionError as error:
        for problem in error.problems:
            yield f"suite.{problem.field}" if problem.field else "suite", problem.message


def _case_faults(case: Case, place: str, scenario: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    if scenario is None:
        yield f"{place}.scenarioId", "the suite has no such scenario"
        return
    if case.id != case_id(case.scenario_id, case.variants, case.repetition):
        yield f"{place}.id", "is not that of this scenario, these variants and this repetition"
    declared: Sequence[Mapping[str, Any]] | None = scenario.get("steps")
    if declared is not None:
        yield from _step_faults(case, place, declared)
    for number, turn in enumerate(case.turns):
        if turn.status == "passed" and (turn.observation is None or not _all_pass(turn.assertions)):
            yield f"{place}.turns.{number}.status", "a turn that passed has an observation and results that pass"
    if case.status == "passed":
        played = declared is None or len(case.turns) == len(declared)
        if not (played and _all_pass(case.assertions) and all(turn.status == "passed" for turn in case.turns)):
            yield f"{place}.status", "a case that passed has all its turns, and results that pass"


def _step_faults(case: Case, place: str, declared: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    if len(case.turns) > len(declared):
        yield f"{place}.turns", f"the scenario has {len(declared)} steps"
    for number, (turn, step) in enumerate(zip(case.turns, declared, strict=False)):
        if turn.step_id != step["id"]:
            yield f"{place}.turns.{number}.stepId", "is not the step of the scenario that stands here"
        elif turn.input != _input(step, case.variants):
            yield f"{place}.turns.{number}.input", "is not the input of the step with the case's variants"


def _input(step: Mapping[str, Any], variants: Mapping[str, str]) -> Any:
    chosen = variants.get(step["id"])
    return next((each["input"] for each in step.get("variants", ()) if each["id"] == chosen), step["input"])


def _all_pass(results: Sequence[Criterion]) -> bool:
    return all(result.passed and result.error_code is None for result in results if result.decides)
