from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalfleet.errors import FailureKind
from evalfleet.model.report import ArmCounts, CaseView
from evalfleet.model.verdict import CaseStatus, Style
from evalfleet.reports import junit
from evalfleet.reports.junit import render_junit
from evalfleet.reports.model import ReportModel

HOSTILE = "\x1b[31mred\x1b[0m \x00 \ufffe ]]> \ud800 </failure><script>"


async def parsed(report: ReportModel, cases: Sequence[CaseView]) -> ElementTree.Element:
    async def of_arm(arm: str) -> AsyncIterator[CaseView]:
        for case in cases:
            if case.arm == arm:
                yield case

    text = "".join([piece async for piece in render_junit(report, of_arm)])
    return ElementTree.fromstring(text.encode("utf-8"))


async def test_hostile_text_stays_legal_and_visible(
    make_report: Callable[..., ReportModel], make_arm: Callable[..., ArmCounts], make_case: Callable[..., CaseView]
) -> None:
    case = make_case(status=CaseStatus.FAILED, message=HOSTILE, eval_id=f"sql/{HOSTILE}")
    root = await parsed(make_report(make_arm(planned=1, failed=1)), [case])
    failure = root.find(".//failure")
    assert failure is not None
    assert failure.text == r"\x1b[31mred\x1b[0m \x00 \ufffe ]]> \ud800 </failure><script>"
    assert failure.attrib["message"] == failure.text


async def test_every_case_of_every_arm_is_told_apart_and_counted(
    make_report: Callable[..., ReportModel], make_arm: Callable[..., ArmCounts], make_case: Callable[..., CaseView]
) -> None:
    cases = [make_case(arm=arm, repetition=n, duration=1234.5678) for arm in ("gpt", "claude") for n in range(3)]
    report = make_report(make_arm("gpt", planned=3, passed=3), make_arm("claude", planned=3, passed=3))
    root = await parsed(report, cases)
    found = root.findall(".//testcase")
    assert len({(each.attrib["classname"], each.attrib["name"]) for each in found}) == 6
    assert {each.attrib["time"] for each in found} == {"1234.568"}
    assert root.attrib["tests"] == "6"


RESULTS = [
    (CaseStatus.PASSED, None, None),
    (CaseStatus.FAILED, None, "failure"),
    (CaseStatus.ERRORED, FailureKind.AGENT, "error"),
    (CaseStatus.ERRORED, FailureKind.JUDGE, "error"),
    (CaseStatus.ERRORED, FailureKind.INFRASTRUCTURE, "error"),
    (CaseStatus.SKIPPED, None, "skipped"),
    (CaseStatus.NOT_NEEDED, None, "skipped"),
    (CaseStatus.BLOCKED, None, "error"),
    (CaseStatus.CANCELLED, None, "error"),
    (CaseStatus.PENDING, None, "error"),
]


@pytest.mark.parametrize(("status", "kind", "tag"), RESULTS)
async def test_result(
    status: CaseStatus,
    kind: FailureKind | None,
    tag: str | None,
    make_report: Callable[..., ReportModel],
    make_arm: Callable[..., ArmCounts],
    make_case: Callable[..., CaseView],
) -> None:
    root = await parsed(make_report(make_arm(planned=1, passed=1)), [make_case(status=status, kind=kind)])
    case = root.find(".//testcase")
    assert case is not None
    assert [child.tag for child in case] == ([] if tag is None else [tag])


async def test_the_suite_counts_what_its_cases_say(
    make_report: Callable[..., ReportModel], make_arm: Callable[..., ArmCounts], make_case: Callable[..., CaseView]
) -> None:
    cases = [
        make_case(ordinal=n, repetition=n, status=status, kind=kind) for n, (status, kind, _) in enumerate(RESULTS)
    ]
    arm = make_arm(
        passed=1, failed=1, errored_own=1, errored_other=2, skipped=1, not_needed=1, blocked=1, cancelled=1, pending=1
    )
    suite = (await parsed(make_report(arm), cases)).find("testsuite")
    assert suite is not None
    for attribute, tag in {"tests": "testcase", "failures": "failure", "errors": "error", "skipped": "skipped"}.items():
        assert int(suite.attrib[attribute]) == len(suite.findall(f".//{tag}"))
    assert sum(int(suite.attrib[name]) for name in ("failures", "errors", "skipped")) == 9


names = st.text(alphabet=st.sampled_from("ab,=[]\\# \x1b"), min_size=1, max_size=6)
parts = st.tuples(names, st.dictionaries(names, names, max_size=2), st.integers(0, 2))


@given(parts, parts)
def test_names_are_equal_only_for_equal_cases(
    left: tuple[str, dict[str, str], int], right: tuple[str, dict[str, str], int]
) -> None:
    def name(part: tuple[str, dict[str, str], int]) -> str:
        eval_id, variants, repetition = part
        return junit.testcase_name(
            CaseView(
                ordinal=0,
                arm="a",
                eval_id=eval_id,
                style=Style.PASS,
                repetition=repetition,
                status=CaseStatus.PASSED,
                variants=variants,
            )
        )

    assert (name(left) == name(right)) == (left == right)
