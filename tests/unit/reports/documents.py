"""Runs of one arm as a test wrote them down, and their report documents."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import jsonschema

from evalfleet.errors import FailureKind
from evalfleet.model.assertion import AssertionPolicy, AssertionResult, AssertionRow, Result
from evalfleet.model.coverage import COMPLETE_COVERAGE
from evalfleet.model.events import MISSING, Message, Role
from evalfleet.model.report import AttemptDetail, AttemptView, CaseView, RunInfo
from evalfleet.model.turn import TurnInput, TurnRecord, TurnStatus
from evalfleet.model.verdict import CaseStatus, Outcome, RunKind, RunStatus, Settlement, Style
from evalfleet.reports.document import Reported, render_document
from evalfleet.reports.document_checks import check_document
from evalfleet.reports.document_models import report_schema

PRIVATE = "token=hunter2 at /home/someone/agent.py"

VALIDATOR = jsonschema.Draft202012Validator(report_schema())

CHECKOUT: dict[str, Any] = {
    "schemaVersion": 1,
    "id": "shop",
    "name": "Shop",
    "scenarios": [
        {
            "id": "checkout",
            "name": "Checkout",
            "writePolicy": "read_only",
            "steps": [
                {
                    "id": "choose",
                    "input": {"text": "a lamp"},
                    "variants": [{"id": "long", "input": {"text": "a desk lamp"}}],
                },
                {"id": "pay", "input": {"text": "pay"}},
            ],
        },
        {
            "id": "left-out",
            "name": "Left out",
            "writePolicy": "read_only",
            "skipReason": "reviewed in March",
            "steps": [{"id": "ask", "input": {"text": "?"}}],
        },
    ],
}


def run_info(status: RunStatus = RunStatus.COMPLETED, **fields: Any) -> RunInfo:
    values: dict[str, Any] = {
        "id": "7f3k2m0q1x",
        "kind": RunKind.SWEEP,
        "name": "sweep",
        "project": "p",
        "status": status,
        "total": 1,
        "created_at": 1_750_000_000.0,
        "started_at": 1_750_000_001.5,
        "finished_at": 1_750_000_010.25,
        "lock": {
            "parts": {"arms": {"mine": {"agent": "a1"}}, "evals": {"weather": {"source": "5e0ce"}}},
            "descriptions": {"weather": "What the weather is"},
        },
    }
    return RunInfo(**{**values, **fields})


def suite_run(status: RunStatus = RunStatus.COMPLETED, **fields: Any) -> RunInfo:
    evals = {"shop/checkout": {"source": "1"}, "shop/left-out": {"source": "2"}}
    return run_info(status, lock={"parts": {"arms": {"mine": {"agent": "a1"}}, "evals": evals}}, **fields)


def case(status: CaseStatus = CaseStatus.PASSED, **fields: Any) -> CaseView:
    values: dict[str, Any] = {
        "ordinal": 0,
        "arm": "mine",
        "eval_id": "weather",
        "style": Style.PASS,
        "repetition": 0,
        "status": status,
        "settlement": Settlement.ATTEMPT,
        "attempts": 1,
    }
    return CaseView(**{**values, **fields})


def detail(
    *turns: TurnRecord,
    rows: Sequence[AssertionRow] = (),
    kind: FailureKind | None = None,
    code: str | None = None,
    **fields: Any,
) -> AttemptDetail:
    view = AttemptView(
        attempt=11,
        case=0,
        number=1,
        outcome=Outcome.COMPLETED if code is None else Outcome.ERRORED,
        settles=True,
        worker="w",
        started_at=1_750_000_002.0,
        duration=1.25,
        kind=kind,
        code=code,
        message=PRIVATE,
    )
    return AttemptDetail(view=view, turns=turns, assertions=tuple(rows), diagnostics=(PRIVATE,), **fields)


def turn(index: int = 0, text: str = "hello", failure: str | None = None, **fields: Any) -> TurnRecord:
    values: dict[str, Any] = {
        "session": 0,
        "index": index,
        "sequence": index,
        "input": TurnInput(text),
        "status": TurnStatus.COMPLETED if failure is None else TurnStatus.FAILED,
        "events": (Message(Role.USER, text), *(() if failure else (Message(Role.ASSISTANT, "hi"),))),
        "data": MISSING,
        "usage": None,
        "coverage": COMPLETE_COVERAGE,
        "started_at": 1_750_000_002.0,
        "duration": 0.25,
        "failure": failure,
    }
    return TurnRecord(**{**values, **fields})


def row(index: int, result: Result = Result.MATCHED, *, scope: str = "t", **fields: Any) -> AssertionRow:
    outcome = AssertionResult(result=result, reason=fields.pop("reason", None), actual=fields.pop("actual", MISSING))
    values: dict[str, Any] = {
        "index": index,
        "name": "check",
        "scope": scope,
        "criterion": {"match": "includes", "text": "sunny"},
        "policy": AssertionPolicy(),
        "outcome": outcome,
        "holds": {Result.MATCHED: True, Result.MISMATCHED: False}.get(result),
    }
    return AssertionRow(**{**values, **fields})


def suite_row(index: int, step: str | None, *, passed: bool = True, **result: Any) -> AssertionRow:
    """A criterion of a suite; `result` adds to its result in the report's form."""
    told = {"id": f"c{index}", "kind": "check", "passed": passed, **result}
    state = Result.ERRORED if "errorCode" in result else Result.MATCHED if passed else Result.MISMATCHED
    criterion = {"criterion": "suite", "step": step, "result": told}
    return row(index, state, name="suite", criterion=criterion, group=() if step is None else (step,))


async def text_of(
    run: RunInfo,
    *records: tuple[CaseView, AttemptDetail | None],
    suites: Mapping[str, Any] | None = None,
    results: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
) -> str:
    async def read() -> AsyncIterator[tuple[CaseView, AttemptDetail | None]]:
        for each in records:
            yield each

    reported = Reported(run=run, arm="mine", suites=suites or {}, results=results or {})
    return "".join([piece async for piece in render_document(reported, read())])


async def document_of(run: RunInfo, *records: tuple[CaseView, AttemptDetail | None], **more: Any) -> Any:
    """The document, which is valid by its schema and agrees with itself."""
    value = json.loads(await text_of(run, *records, **more))
    VALIDATOR.validate(value)
    check_document(value, "report.json")
    return value
