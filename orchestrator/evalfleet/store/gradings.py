"""A run's recorded attempts judged again: read in pages, gathered out of sight, made its grading at once."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import psycopg

from evalfleet.errors import ConfigurationError, FailureKind, RunHeld, StoreError
from evalfleet.model.case import AttemptSummary, Case
from evalfleet.model.grading import Basis, Regrading
from evalfleet.model.record import AttemptEvidence, EncodedRows
from evalfleet.model.verdict import Outcome, ScoreState, Verdict
from evalfleet.ports import ArtifactStore
from evalfleet.store import grading_sql
from evalfleet.store.binary import HEADER, TRAILER
from evalfleet.store.case_row import read_case
from evalfleet.store.connection import Connection, connect, first_line
from evalfleet.store.evidence import EvidenceReader
from evalfleet.store.records import PAGE_BYTES
from evalfleet.store.rows import EvidenceEncoder, finished

_PAGE = 500


@dataclass(frozen=True, slots=True)
class RecordedAttempt:
    """A settled attempt with its evidence, and its verdict by the current grading."""

    case: Case
    evidence: AttemptEvidence
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class EncodedRegrading:
    """A regrading ready to be stored; without rows when an earlier judgement is kept."""

    attempt: int
    basis: Basis
    reason: str | None
    rows: EncodedRows | None


class Regrader:
    """One pass over a run on a connection of its own; nothing of it is seen before `commit`, or ever without."""

    def __init__(self, connection: Connection, run: str, standing: Mapping[str, int], artifacts: ArtifactStore) -> None:
        self._connection = connection
        self._run = run
        self._standing = standing
        self._evidence = EvidenceReader(artifacts)
        self._encoder = EvidenceEncoder(standing["run_key"])

    @classmethod
    async def open(cls, url: str, run: str, artifacts: ArtifactStore) -> Regrader:
        """Begin a pass. Raises RunHeld while a coordinator works on the run, ConfigurationError without one."""
        connection = await connect(url, autocommit=True)
        try:
            row = await (await connection.execute(grading_sql.STANDING.encode(), {"run": run})).fetchone()
            if row is None:
                raise ConfigurationError(f"there is no run {run}")
            *numbers, holder, host, pid = row
            if holder is not None:
                raise RunHeld(
                    f"run {run} is being worked on by process {pid} on {host}; cancel it or wait for its end before "
                    "its attempts are judged again"
                )
            await connection.execute(grading_sql.SESSION)
        except BaseException:
            await connection.close()
            raise
        names = ("run_key", "epoch", "commit_seq", "grading", "reopenings")
        return cls(connection, run, dict(zip(names, numbers, strict=True)), artifacts)

    async def close(self) -> None:
        await self._connection.close()

    async def pages(self, *, only_unavailable: bool = False) -> AsyncGenerator[list[RecordedAttempt]]:
        """All attempts that settle a case, and then those that did before it was reopened, with all their evidence.

        A page holds up to 500 of them, some 8 MiB as stored. Interrupted attempts left nothing to judge.
        """
        for superseded in (False, True):
            statement = grading_sql.recorded(superseded=superseded, only_unavailable=only_unavailable)
            after, last = -1, 0
            while True:
                given = {**self._standing, "after": after, "last": last, "count": _PAGE, "limit": PAGE_BYTES}
                async with self._connection.cursor(binary=True) as cursor:
                    rows = await (await cursor.execute(statement, given)).fetchall()
                if not rows:
                    break
                yield [await self._recorded(row) for row in rows]
                after, last = rows[-1][0], rows[-1][12]

    def encode(self, regrading: Regrading) -> EncodedRegrading:
        """What came of an attempt as it is stored. Raises AttemptFailure when an assertion of it is no JSON."""
        summary = regrading.evidence.summary
        if regrading.basis is Basis.KEPT:
            return EncodedRegrading(summary.attempt, regrading.basis, regrading.reason, None)
        rows = self._encoder.encode_inline(replace(regrading.evidence, turns=(), attribution=None, attachments={})).rows
        return EncodedRegrading(summary.attempt, regrading.basis, regrading.reason, rows)

    async def add(self, regradings: Sequence[EncodedRegrading]) -> None:
        """Gather what came of some attempts."""
        rows = [each.rows for each in regradings if each.rows is not None]
        staged = {
            "attempts": [finished(each, settles=False, worker="") for each in rows],
            "assertions": [each.assertions for each in rows],
            "judge_calls": [each.judge_calls for each in rows],
        }
        bases = {
            "attempts": [each.attempt for each in regradings],
            "bases": [each.basis.value for each in regradings],
            "reasons": [each.reason for each in regradings],
        }
        async with self._connection.transaction(), self._connection.cursor() as cursor:
            await cursor.execute(grading_sql.STAGE_BASES.encode(), bases)
            for table, parts in staged.items():
                if any(parts):
                    async with cursor.copy(grading_sql.copy_into(table)) as copy:
                        await copy.write(b"".join((HEADER, *parts, TRAILER)))

    async def commit(self, *, who: str, why: str, evaluation: int, sources: Mapping[str, str]) -> int:
        """Make what was gathered the run's current grading, and return its number.

        Raises RunHeld when the run was worked on, reopened or judged by somebody else meanwhile.
        """
        given: dict[str, Any] = {**self._standing, "who": who, "why": why, "evaluation": evaluation}
        given["sources"] = json.dumps(dict(sources))
        try:
            async with self._connection.transaction():
                locked = await self._connection.execute(grading_sql.LOCK.encode(), given)
                if await locked.fetchone() is None:
                    raise RunHeld(
                        f"run {self._run} changed meanwhile: it went on, was reopened, or somebody else "
                        f"judged it; nothing was kept (orchestrate rescore {self._run} does it again)"
                    )
                row = await (await self._connection.execute(grading_sql.NEXT.encode(), given)).fetchone()
                given["number"] = 0 if row is None else row[0]
                for statement in grading_sql.WRITE:
                    await self._connection.execute(statement, given, prepare=False)
        except psycopg.Error as error:
            raise StoreError(f"the grading could not be written: {first_line(error)}") from error
        return int(given["number"])

    async def _recorded(self, row: Sequence[Any]) -> RecordedAttempt:
        case = read_case(row, row[1])
        attempt, outcome, verdict, kind, code, message, state, earned, skip_reason = row[12:21]
        started_at, duration, turns, events, assertions, judged, record, pages = row[21:]
        found = await self._evidence.decoded(self._run, record, pages or ())
        summary = AttemptSummary(
            attempt=attempt,
            case=case.ordinal,
            outcome=Outcome(outcome),
            verdict=Verdict(verdict),
            kind=None if kind is None else FailureKind(kind),
            code=code,
            message=message if found.message is None else found.message,
            score_state=None if state is None else ScoreState(state),
            earned=earned,
            skip_reason=skip_reason,
            started_at=started_at,
            duration=duration,
            turns=turns,
            events=events,
            assertions=assertions,
            sandbox=found.sandbox,
            extra=found.extra,
        )
        evidence = AttemptEvidence(
            summary=summary,
            turns=found.turns,
            assertions=found.assertions,
            diagnostics=found.diagnostics,
            judge_calls=found.judge_calls,
            attribution=found.attribution,
            attachments=found.attachments,
        )
        return RecordedAttempt(case, evidence, Verdict(judged))
