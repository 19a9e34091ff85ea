"""Runs, cases and attempts as tests of the store plan and produce them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from evalfleet.errors import FailureKind
from evalfleet.model.assertion import AssertionPolicy, AssertionResult, AssertionRow, Result
from evalfleet.model.case import AttemptSummary, Case
from evalfleet.model.coverage import COMPLETE_COVERAGE
from evalfleet.model.events import MISSING, Message, Role
from evalfleet.model.ids import sha256
from evalfleet.model.record import AttemptEvidence, AttemptWrite, CommitBatch
from evalfleet.model.turn import TurnInput, TurnRecord, TurnStatus
from evalfleet.model.usage import Usage
from evalfleet.model.verdict import Outcome, Style, Verdict
from evalfleet.ports import Holder
from evalfleet.store.creation import create_run
from evalfleet.store.planned import CreatedRun, NewRun, Presettled
from evalfleet.store.rows import encode_attempt
from evalfleet.store.writer import PostgresRecorder

ME = Holder(id="actor-1", host="here", pid=11)
OTHER = Holder(id="actor-2", host="there", pid=22)


def ignore(_: str) -> None:
    """No failpoint."""


def a_case(ordinal: int, **changes: Any) -> Case:
    case = Case(
        ordinal=ordinal,
        arm="small",
        eval_id=f"sql/{ordinal:04d}",
        definition="sql",
        style=Style.PASS,
        repetition=0,
        content=sha256(b"content %d" % ordinal),
        fingerprint=sha256(b"fingerprint %d" % ordinal),
        row=b'{"n":%d}' % ordinal,
    )
    return replace(case, **changes)


def a_run(count: int = 3, **changes: Any) -> NewRun:
    run = NewRun(
        id="r1",
        name="sweep",
        project="shop",
        digest=sha256(b"experiment"),
        experiment={"name": "sweep"},
        lock={"python": "3.11"},
        arms={"small": {"model": "s"}, "big": {"model": "b"}},
        cases=[(a_case(ordinal), None) for ordinal in range(count)],
    )
    return replace(run, **changes)


def evidence(attempt: int, case: int, **changes: Any) -> AttemptEvidence:
    """A null attempt: one turn, two events, one assertion; `changes` are those of its summary."""
    question, reply = f"question {case}", f"answer {case}"
    summary = AttemptSummary(
        attempt=attempt,
        case=case,
        outcome=Outcome.COMPLETED,
        verdict=Verdict.PASSED,
        started_at=1_760_000_000.25,
        duration=0.5,
        turns=1,
        events=2,
        assertions=1,
        reply=reply,
    )
    turn = TurnRecord(
        session=0,
        index=0,
        sequence=0,
        input=TurnInput(question),
        status=TurnStatus.COMPLETED,
        events=(Message(Role.USER, question), Message(Role.ASSISTANT, reply)),
        data=MISSING,
        usage=None,
        coverage=COMPLETE_COVERAGE,
        started_at=1_760_000_000.25,
        duration=0.5,
    )
    row = AssertionRow(
        index=0,
        name="check",
        scope="t",
        criterion={"matcher": "includes", "text": "answer"},
        policy=AssertionPolicy(),
        outcome=AssertionResult(result=Result.MATCHED, expected="answer", actual=reply),
        holds=True,
    )
    return AttemptEvidence(summary=replace(summary, **changes), turns=(turn,), assertions=(row,))


def priced(attempt: int, case: int, usd: float, **changes: Any) -> AttemptEvidence:
    usage = Usage(input_tokens=10, output_tokens=5, cost_usd=usd)
    return evidence(attempt, case, usage=usage, **changes)


def errored(attempt: int, case: int, kind: FailureKind = FailureKind.PROVIDER, code: str = "BOOM") -> AttemptEvidence:
    return evidence(attempt, case, outcome=Outcome.ERRORED, verdict=Verdict.ERRORED, kind=kind, code=code)


def batch(run_key: int, *attempts: AttemptEvidence, settles: bool = True, worker: str = "w1") -> CommitBatch:
    return CommitBatch(tuple(AttemptWrite(encode_attempt(one, run_key), worker, settles) for one in attempts))


async def started(url: str, cases: int = 3, **changes: Any) -> tuple[CreatedRun, PostgresRecorder]:
    """A run with a recorder that holds it."""
    run = await create_run(url, a_run(cases, **changes))
    recorder = PostgresRecorder(url, run.id, ignore)
    await recorder.claim(ME, takeover=False)
    return run, recorder


async def claimed(url: str, cases: Iterable[tuple[Case, Presettled | None]]) -> tuple[int, PostgresRecorder]:
    """The key of a run over exactly these cases, with a recorder that holds it."""
    run = await create_run(url, replace(a_run(), cases=cases))
    recorder = PostgresRecorder(url, run.id, ignore)
    await recorder.claim(ME, takeover=False)
    return run.run_key, recorder


async def resumed(url: str, run: str = "r1") -> PostgresRecorder:
    """The recorder of a resume."""
    recorder = PostgresRecorder(url, run, ignore)
    await recorder.claim(OTHER, takeover=True)
    return recorder
