"""The report document: what stands where, by which name, and what never enters it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalfleet.errors import FailureKind
from evalfleet.model.assertion import AssertionPolicy, AssertionResult, Result
from evalfleet.model.events import MISSING
from evalfleet.model.turn import InputFile, InputResponse, TurnInput
from evalfleet.model.verdict import CaseStatus, RunStatus, Settlement, Style
from evalfleet.reports.document_models import CASE_STATES, report_schema
from evalfleet.suites.matrix import case_id, turn_id
from tests.architecture.source import ROOT
from tests.unit.reports.documents import (
    CHECKOUT,
    PRIVATE,
    case,
    detail,
    document_of,
    row,
    run_info,
    suite_row,
    suite_run,
    text_of,
    turn,
)


def test_the_published_schema_is_the_generated_one() -> None:
    published = Path(ROOT, "docs", "report.schema.json").read_text(encoding="utf-8")
    assert published == json.dumps(report_schema(), indent=2) + "\n"


#: A case of ours, and its status, code and reason in the report.
CASES = [
    (case(CaseStatus.PASSED), "passed", None, None),
    (case(CaseStatus.FAILED), "failed", None, None),
    (case(CaseStatus.ERRORED, kind=FailureKind.PROVIDER, code="RATE_LIMITED"), "error", "RATE_LIMITED", None),
    (case(CaseStatus.PENDING, settlement=None), "pending", None, None),
    (case(CaseStatus.RUNNING, settlement=None), "running", None, None),
    (case(CaseStatus.CANCELLED, settlement=None), "cancelled", "EVALUATION_CANCELLED", None),
    (case(CaseStatus.SKIPPED, message="not on this model"), "skipped", None, "not on this model"),
    (case(CaseStatus.NOT_NEEDED, code="early_exit"), "skipped", None, "not-needed:early_exit"),
    (case(CaseStatus.NOT_NEEDED), "skipped", None, "not-needed"),
    *(
        (case(CaseStatus.BLOCKED, settlement=Settlement.BLOCKED, code=code), "blocked", code, None)
        for code in (
            "EXTERNAL_WRITES_NOT_AUTHORIZED",
            "EXTERNAL_WRITE_RESUME_REQUIRES_RECONCILIATION",
            "EXTERNAL_WRITE_RETRY_REQUIRES_RECONCILIATION",
        )
    ),
    *(
        (case(CaseStatus.ERRORED, kind=FailureKind.ADAPTER, code=code), "blocked", code, None)
        for code in (
            "EVALUATION_EARLY_COMPLETION",
            "EVALUATION_INCOMPLETE",
            "TURN_RESUME_NOT_SUPPORTED",
            "TURN_RESUME_UNSAFE",
        )
    ),
]


@pytest.mark.parametrize(("view", "status", "code", "reason"), CASES, ids=lambda value: str(value)[:40])
async def test_what_became_of_a_case(view: Any, status: str, code: str | None, reason: str | None) -> None:
    document = await document_of(run_info(), (view, None))
    (entry,) = document["cases"]
    assert (entry["status"], entry.get("errorCode"), entry.get("skipReason")) == (status, code, reason)
    assert document["summary"] == {"total": 1, **{state: int(state == status) for state in CASE_STATES}}


#: How an attempt failed, and what the report calls it.
CODES = [
    (FailureKind.DEADLINE, "TURN_TIMEOUT", "EVALUATION_TIMEOUT"),
    (FailureKind.DEADLINE, "ATTEMPT_TIMEOUT", "EVALUATION_TIMEOUT"),
    (FailureKind.CANCELLED, "CANCELLED", "EVALUATION_CANCELLED"),
    (FailureKind.ADAPTER, "SEND_FAILED", "EVALUATION_TRANSPORT_FAILED"),
    (FailureKind.ADAPTER, "ADAPTER_RAISED", "EVALUATION_TRANSPORT_FAILED"),
    (FailureKind.ADAPTER, "ADAPTER_CANCELLED", "EVALUATION_TRANSPORT_FAILED"),
    (FailureKind.ADAPTER, "SESSION_OPEN_FAILED", "EVALUATION_SESSION_FAILED"),
    (FailureKind.ADAPTER, "INVALID_TURN", "EVALUATION_OBSERVATION_INVALID"),
    (FailureKind.ADAPTER, "EVIDENCE_NOT_JSON", "EVALUATION_OBSERVATION_INVALID"),
    (FailureKind.ADAPTER, "EVIDENCE_TOO_DEEP", "EVALUATION_DATA_LIMIT"),
    (FailureKind.ADAPTER, "SESSION_CLOSE_FAILED", "EVALUATION_CLEANUP_FAILED"),
    (FailureKind.SANDBOX, "SANDBOX_CLOSE_FAILED", "EVALUATION_CLEANUP_FAILED"),
    (FailureKind.PROVIDER, "RATE_LIMITED", "RATE_LIMITED"),
    (FailureKind.AGENT, "HOST_OWN_CODE", "HOST_OWN_CODE"),
]


@pytest.mark.parametrize(("kind", "code", "named"), CODES)
async def test_what_a_failure_is_called(kind: FailureKind, code: str, named: str) -> None:
    view = case(CaseStatus.ERRORED, kind=kind, code=code, message=PRIVATE)
    failed = detail(turn(0), turn(1, failure=f"{code}: {PRIVATE}"), kind=kind, code=code)
    text = await text_of(run_info(), (view, failed))
    (entry,) = json.loads(text)["cases"]
    assert entry["errorCode"] == named
    whole, *broken = entry["turns"]
    assert whole["status"] == "passed" and whole["observation"]["reply"] == "hi"
    if code == "SESSION_OPEN_FAILED":
        assert not broken
        return
    assert broken[0]["status"] == ("cancelled" if kind is FailureKind.CANCELLED else "error")
    assert broken[0]["errorCode"] == named and "observation" not in broken[0]


async def test_the_text_of_a_failure_never_enters() -> None:
    rows = [
        row(0, Result.UNAVAILABLE, scope="turn/0/0", reason=f"coverage:actions=partial (send-failed: {PRIVATE})"),
        row(1, Result.ERRORED, reason=f"evaluator-error:{PRIVATE}"),
        row(2, Result.UNAVAILABLE, name="judge.rubric", reason=f"JUDGE_REFUSED ({PRIVATE})"),
    ]
    view = case(CaseStatus.ERRORED, kind=FailureKind.ADAPTER, code="ADAPTER_RAISED", message=PRIVATE)
    failed = detail(turn(0, failure=f"ADAPTER_RAISED: {PRIVATE}"), rows=rows, code="ADAPTER_RAISED")
    text = await text_of(run_info(), (view, failed))
    assert "hunter2" not in text and "/home/someone" not in text
    codes = [each["errorCode"] for each in json.loads(text)["cases"][0]["assertions"]]
    assert codes == ["EVALUATOR_FAILED", "JUDGE_UNAVAILABLE"]


async def test_an_adapters_reason_for_missing_evidence_stands_beside_its_code() -> None:
    rows = [row(0, Result.UNAVAILABLE, reason="coverage:actions=partial (final events only)")]
    view = case(CaseStatus.ERRORED, kind=FailureKind.ADAPTER, code="ASSERTION_UNAVAILABLE")
    (entry,) = (await document_of(run_info(), (view, detail(turn(), rows=rows))))["cases"]
    assert (entry["errorCode"], entry["errorPointer"]) == ("EVIDENCE_NOT_COVERED", "assertions.check.0")
    assert entry["assertions"][0]["reason"] == "coverage:actions=partial (final events only)"


async def test_assertions_stand_where_they_look() -> None:
    rows = [
        row(0, scope="turn/0/1", label="says it"),
        row(1, scope="t", group=("Payment", "card"), label="pays"),
        row(2, Result.MISMATCHED, scope="session/0", key="mine", actual={"seen": None}),
        row(3, scope="value", name="check", criterion={"criterion": "is_true"}),
    ]
    view = case(CaseStatus.FAILED)
    (entry,) = (await document_of(run_info(), (view, detail(turn(0), turn(1), rows=rows))))["cases"]
    assert [[each["id"] for each in one["assertions"]] for one in entry["turns"]] == [[], ["check.0"]]
    assert [each["id"] for each in entry["assertions"]] == ["check.1", "mine", "check.3"]
    assert entry["assertions"][0]["label"] == "Payment › card › pays"
    assert entry["assertions"][1]["actual"] == {"present": True, "value": {"seen": None}}
    assert entry["assertions"][1]["expected"] == {"match": "includes", "text": "sunny"}
    assert "expected" not in entry["assertions"][2] and "actual" not in entry["assertions"][2]


#: Whether a result decides its case: the style of the eval, how it is configured, what it came to.
DECIDING = [
    (Style.PASS, AssertionPolicy(), Result.MISMATCHED, None, True),
    (Style.PASS, AssertionPolicy(optional=True), Result.UNAVAILABLE, None, False),
    (Style.PASS, AssertionPolicy(at_least=0.5), Result.MATCHED, 0.2, False),
    (Style.PASS, AssertionPolicy(gate=True, gate_min=0.5), Result.MATCHED, 0.2, True),
    (Style.PASS, AssertionPolicy(at_least=0.5), Result.UNAVAILABLE, None, True),
    (Style.SCORE, AssertionPolicy(), Result.MISMATCHED, None, False),
    (Style.SCORE, AssertionPolicy(points=2), Result.MISMATCHED, None, False),
    (Style.SCORE, AssertionPolicy(gate=True), Result.MISMATCHED, None, True),
    (Style.SCORE, AssertionPolicy(points=2), Result.UNAVAILABLE, None, True),
    (Style.SCORE, AssertionPolicy(), Result.UNAVAILABLE, None, False),
]


@pytest.mark.parametrize(("style", "policy", "result", "measurement", "decides"), DECIDING)
async def test_what_only_is_recorded_is_advisory(
    style: Style, policy: AssertionPolicy, result: Result, measurement: float | None, decides: bool
) -> None:
    outcome = AssertionResult(result=result, reason="coverage:x", measurement=measurement)
    recorded = row(0, result, policy=policy, outcome=outcome, holds=None)
    (entry,) = (await document_of(run_info(), (case(CaseStatus.FAILED, style=style), detail(rows=[recorded]))))["cases"]
    assert ("severity" not in entry["assertions"][0]) is decides


async def test_parts_of_a_composite_are_its_children_and_parts_of_an_assert_its_evidence() -> None:
    parts = (
        AssertionResult(result=Result.MATCHED, expected="a", actual=1),
        AssertionResult(result=Result.ERRORED, reason=PRIVATE),
        AssertionResult(result=Result.MISMATCHED, expected={"part": "total"}, actual=3),
    )
    outcome = AssertionResult(result=Result.MISMATCHED, children=parts)
    (entry,) = (
        await document_of(run_info(), (case(CaseStatus.FAILED), detail(rows=[row(0, outcome=outcome, holds=False)])))
    )["cases"]
    assert entry["assertions"][0]["children"] == [
        {"id": "0", "passed": True, "actual": {"present": True, "value": 1}, "expected": "a"},
        {"id": "1", "passed": False, "errorCode": "EVALUATOR_FAILED"},
    ]
    assert entry["assertions"][0]["evidence"] == {"where": [{"part": "total", "value": 3}]}


async def test_evals_stand_for_a_suite_where_none_was_declared() -> None:
    rows = [row(0, label="says it"), row(1, scope="turn/0/0", name="succeeded")]
    records = [
        (case(eval_id="weather/0000"), detail(turn(), rows=rows)),
        (case(CaseStatus.PENDING, ordinal=1, eval_id="weather/0001", settlement=None), None),
    ]
    suite = (await document_of(run_info(), *records))["suite"]
    told = {"description": "What the weather is", "source": "5e0ce"}
    registered = [{"id": "check.0", "kind": "check", "label": "says it"}, {"id": "succeeded.1", "kind": "succeeded"}]
    assert suite == {
        "schemaVersion": 1,
        "generated": True,
        "id": "sweep",
        "name": "sweep",
        "scenarios": [
            {"id": "weather/0000", "name": "weather/0000", **told, "assertions": registered},
            {"id": "weather/0001", "name": "weather/0001", **told, "assertions": []},
        ],
    }


def played(passed: bool = True) -> list[Any]:
    return [
        suite_row(0, "choose", path=["reply"], operator="exists", actual={"present": True, "value": None}),
        suite_row(1, "pay", passed=passed, actual={"present": False}, expected="choice"),
        row(2, name="judge.rubric", group=("pay",), key="polite", policy=AssertionPolicy(gate=True, gate_min=0.5)),
        suite_row(3, None, kind="any", children=[{"id": "x", "kind": "check", "passed": False}]),
    ]


async def test_a_case_of_a_declared_suite() -> None:
    turns = [
        turn(0, input=TurnInput("a desk lamp", value={"text": "a desk lamp"}), session_state={"cursor": 1}),
        turn(1, input=TurnInput("pay", value={"text": "pay"}), observation={"paid": True}),
    ]
    view = case(CaseStatus.FAILED, eval_id="shop/checkout", variants={"choose": "long"}, repetition=1)
    left_out = case(CaseStatus.SKIPPED, ordinal=1, eval_id="shop/left-out", settlement=Settlement.SKIPPED, attempts=0)
    results = {
        "shop": [{"id": "all-settled", "kind": "check", "passed": False, "actual": {"present": True, "value": 1}}]
    }
    document = await document_of(
        suite_run(),
        (view, detail(*turns, rows=played(passed=False))),
        (left_out, None),
        suites={"shop": CHECKOUT},
        results=results,
    )
    assert document["suite"] == CHECKOUT and document["assertions"] == results["shop"]
    entry, skipped = document["cases"]
    assert entry["id"] == case_id("checkout", {"choose": "long"}, 1)
    assert skipped["threadId"] == f"7f3k2m0q1x:{skipped['id']}", "nobody began its conversation"
    thread = "7f3k2m0q1x:11"
    assert (entry["scenarioId"], entry["name"], entry["threadId"]) == ("checkout", "Checkout", thread)
    assert (entry["variants"], entry["repetition"], entry["attempt"]) == ({"choose": "long"}, 1, 1)
    assert entry["worker"] == "w"
    assert (entry["startedAt"], entry["finishedAt"]) == ("2025-06-15T15:06:42.000Z", "2025-06-15T15:06:43.250Z")
    choose, pay = entry["turns"]
    assert (choose["stepId"], choose["turnId"], choose["status"]) == ("choose", turn_id(thread, "choose"), "passed")
    assert (choose["durationMs"], choose["checkpoint"]) == (250, {"cursor": 1})
    assert (pay["input"], pay["observation"], pay["status"]) == ({"text": "pay"}, {"paid": True}, "failed")
    assert [each["id"] for each in pay["assertions"]] == ["c1", "polite"]
    assert pay["assertions"][0] == {
        "id": "c1", "kind": "check", "passed": False, "actual": {"present": False}, "expected": "choice",
    }  # fmt: skip
    assert [each["id"] for each in entry["assertions"]] == ["c3"]
    assert (skipped["status"], skipped["skipReason"], skipped["turns"]) == ("skipped", "reviewed in March", [])


async def test_the_first_cause_of_an_error_is_lifted_with_its_place() -> None:
    broken = {"id": "inner", "kind": "custom", "passed": False, "errorCode": "EVALUATOR_RESULT_INVALID"}
    rows = [suite_row(0, "choose", passed=False, errorCode="EVALUATOR_RESULT_INVALID", kind="all", children=[broken])]
    view = case(CaseStatus.ERRORED, kind=FailureKind.GRADER, code="ASSERTION_ERRORED", eval_id="shop/checkout")
    value = turn(0, input=TurnInput("a lamp", value={"text": "a lamp"}))
    (entry,) = (await document_of(suite_run(), (view, detail(value, rows=rows)), suites={"shop": CHECKOUT}))["cases"]
    assert entry["errorCode"] == "EVALUATOR_RESULT_INVALID"
    assert entry["errorPointer"] == "turns.0.assertions.c0.inner"
    assert entry["turns"][0]["status"] == "error" and "errorCode" not in entry["turns"][0]


async def test_a_failed_cleanup_keeps_what_it_hides() -> None:
    view = case(CaseStatus.ERRORED, kind=FailureKind.ADAPTER, code="SESSION_CLOSE_FAILED")
    closed = detail(turn(), rows=[row(0)], outcome_before_cleanup="passed")
    (entry,) = (await document_of(run_info(), (view, closed)))["cases"]
    assert (entry["status"], entry["errorCode"]) == ("error", "EVALUATION_CLEANUP_FAILED")
    assert entry["cleanup"] == {"status": "failed", "code": "EVALUATION_CLEANUP_FAILED"}
    assert entry["outcomeBeforeCleanup"] == "passed"


@pytest.mark.parametrize(
    ("status", "told", "ended"),
    [
        (RunStatus.QUEUED, "running", False),
        (RunStatus.RUNNING, "running", False),
        (RunStatus.COMPLETED, "completed", True),
        (RunStatus.CANCELLED, "cancelled", True),
        (RunStatus.LIMITED, "limited", True),
    ],
)
async def test_how_far_a_run_is(status: RunStatus, told: str, ended: bool) -> None:
    document = await document_of(run_info(status, stop_reason="max_failures of 3 reached"), (case(), None))
    assert document["status"] == told and ("finishedAt" in document) is ended
    assert document["startedAt"] == "2025-06-15T15:06:41.500Z"
    assert document["stopReason"] == "max_failures of 3 reached"


async def test_of_a_case_that_is_tried_again_nothing_is_told_yet() -> None:
    earlier = detail(turn(0, failure="RATE_LIMITED: x"), kind=FailureKind.PROVIDER, code="RATE_LIMITED")
    for status in (CaseStatus.PENDING, CaseStatus.RUNNING):
        (entry,) = (await document_of(run_info(), (case(status, settlement=None), earlier)))["cases"]
        assert entry["turns"] == [] and "startedAt" not in entry


async def test_a_carried_case_names_the_conversation_of_the_run_that_held_it() -> None:
    carried = case(settlement=Settlement.CARRIED, attempts=0, carried_from=("8g4", 3))
    (entry,) = (await document_of(run_info(), (carried, detail(turn(), rows=[row(0)]))))["cases"]
    assert entry["threadId"].startswith("8g4:") and "attempt" not in entry


async def test_what_was_sent() -> None:
    given = TurnInput(
        "look",
        files=(InputFile("a.txt", "text/plain", b"secret"),),
        responses=(InputResponse("r1", option_id="yes"), InputResponse("r2", text="no")),
    )
    (entry,) = (await document_of(run_info(), (case(), detail(turn(0, input=given), rows=[row(0)]))))["cases"]
    assert entry["turns"][0]["input"] == {
        "text": "look",
        "files": [{"name": "a.txt", "mediaType": "text/plain", "bytes": 6}],
        "responses": [{"requestId": "r1", "optionId": "yes"}, {"requestId": "r2", "text": "no"}],
    }


async def test_odd_values_stay_valid() -> None:
    odd = {"nan": float("nan"), "big": 10**40, "half": "\ud800", "nothing": MISSING}
    strange = turn(0, data={key: value for key, value in odd.items() if value is not MISSING})
    rows = [row(0, label="\ud800 half", actual=float("inf"))]
    (entry,) = (await document_of(run_info(), (case(), detail(strange, rows=rows))))["cases"]
    assert entry["turns"][0]["observation"]["data"] == {"nan": {"$number": "nan"}, "big": 10**40, "half": "\ud800"}
    assert entry["assertions"][0]["actual"]["value"] == {"$number": "inf"}
    assert entry["assertions"][0]["label"] == "\\ud800 half"


async def test_a_fingerprint_is_of_definitions_cases_and_target_and_of_nothing_that_happened() -> None:
    async def printed(run: Any, *records: Any) -> str:
        return (await document_of(run, *records))["fingerprint"]

    whole = await printed(run_info(), (case(), detail(turn(), rows=[row(0)])))
    assert await printed(run_info(RunStatus.RUNNING), (case(CaseStatus.PENDING, settlement=None), None)) == whole
    assert await printed(run_info(), (case(repetition=1), None)) != whole
    lock = {**run_info().lock, "parts": {"arms": {"mine": {"agent": "another"}}, "evals": {}}}
    assert await printed(run_info(lock=lock), (case(), None)) != whole
