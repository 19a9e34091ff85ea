"""A run as JUnit XML, streamed: one suite an arm, one test case a case, legal XML 1.0 whatever an agent said.

A case that counts but has no answer (blocked, cancelled, not run) is an error, never a skip: a skip reads as fine.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from xml.sax.saxutils import escape, quoteattr

from evalfleet.model.report import CaseView, RunInfo
from evalfleet.reports import wording
from evalfleet.reports.classes import LEAVING, MISSING_CLASSES, CaseClass, class_of
from evalfleet.reports.figures import instant
from evalfleet.reports.model import ArmReport, ReportModel
from evalfleet.reports.visible import cut, visible, visible_line

TEXT_LIMIT = 64_000
_ERRORS = MISSING_CLASSES | {CaseClass.ERRORED_OWN, CaseClass.ERRORED_OTHER}


async def render_junit(report: ReportModel, cases: Callable[[str], AsyncIterator[CaseView]]) -> AsyncIterator[str]:
    """The document in pieces; `cases(arm)` yields that arm's cases. Never holds more than one case."""
    yield '<?xml version="1.0" encoding="UTF-8"?>\n'
    yield f"<testsuites{_attributes({'name': _name(report.run), **_counts(report.totals)})}>\n"
    for arm in report.arms:
        yield _suite_head(report, arm)
        async for case in cases(arm.counts.arm):
            yield _test_case(case)
        yield "  </testsuite>\n"
    yield "</testsuites>\n"


def _name(run: RunInfo) -> str:
    return f"{run.name} (grading {run.grading})" if run.grading else run.name


def testcase_name(case: CaseView) -> str:
    """The case's name, different for each case of an arm: marks inside ids are escaped with a backslash."""
    chosen = ", ".join(f"{_part(step)}={_part(variant)}" for step, variant in sorted(case.variants.items()))
    variants = f" [{chosen}]" if chosen else ""
    return f"{_part(case.eval_id)}{variants} #{case.repetition + 1}"


def _part(text: str) -> str:
    return "".join(f"\\{each}" if each in "\\[],=#" else each for each in text)


def _counts(classes: Mapping[CaseClass, int]) -> dict[str, str]:
    return {
        "tests": str(sum(classes.values())),
        "failures": str(classes[CaseClass.FAILED]),
        "errors": str(sum(classes[each] for each in _ERRORS)),
        "skipped": str(sum(classes[each] for each in LEAVING)),
    }


def _suite_head(report: ReportModel, arm: ArmReport) -> str:
    run = report.run
    started = {"timestamp": instant(run.started_at)} if run.started_at is not None else {}
    result, interval, bounds, answered = wording.headline_cells(arm.headline)
    properties = {
        "run": run.id,
        "status": run.status.value,
        "result": result,
        "wilson_95": interval,
        "bounds": bounds,
        "answered": answered,
    }
    lines = [f"      <property{_attributes({'name': name, 'value': value})}/>\n" for name, value in properties.items()]
    head = _attributes({"name": arm.counts.arm, **_counts(arm.classes), **started})
    return f"  <testsuite{head}>\n    <properties>\n{''.join(lines)}    </properties>\n"


def _test_case(case: CaseView) -> str:
    time = {} if case.duration is None else {"time": f"{case.duration:.3f}"}
    head = f"    <testcase{_attributes({'classname': case.arm, 'name': testcase_name(case), **time})}"
    body = _result(case)
    return f"{head}>{body}</testcase>\n" if body else f"{head}/>\n"


def _result(case: CaseView) -> str:
    each = class_of(case)
    message = case.message or wording.case_result(case)
    if each is CaseClass.PASSED:
        return ""
    if each in LEAVING:
        return f"<skipped{_attributes({'message': case.message or each.label})}/>"
    tag = "failure" if each is CaseClass.FAILED else "error"
    kind = case.code or (case.kind.value if case.kind else each.value)
    first = message.strip().split("\n", 1)[0]
    attributes = _attributes({"type": kind, "message": cut(first, 300)})
    return f"<{tag}{attributes}>{escape(visible(cut(message, TEXT_LIMIT)))}</{tag}>"


def _attributes(values: Mapping[str, str]) -> str:
    return "".join(f" {name}={quoteattr(visible_line(value))}" for name, value in values.items())
