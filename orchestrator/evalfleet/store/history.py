"""What earlier runs of a project made of the same cases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evalfleet.errors import FailureKind
from evalfleet.model.verdict import ScoreState, Settlement, Verdict
from evalfleet.store.connection import Connection
from evalfleet.store.judged_sql import settlements
from evalfleet.store.planned import PastResult, UnfinishedRun

# by index only: a hash of the fingerprint finds the few cases, whose runs are then sorted by age
_SETTLED = """
SELECT k.fingerprint, k.repetition, f.id, f.ordinal, f.how,
       coalesce(j.verdict, f.verdict)::text, CASE WHEN j.attempt IS NULL THEN f.kind ELSE j.kind END::text,
       CASE WHEN j.attempt IS NULL THEN f.code ELSE j.code END,
       CASE WHEN j.attempt IS NULL THEN f.score_state ELSE j.score_state END::text,
       CASE WHEN j.attempt IS NULL THEN f.earned ELSE j.earned END, f.from_run, f.from_attempt, f.from_grading
FROM unnest(%(fingerprints)s::bytea[], %(repetitions)s::integer[]) AS k (fingerprint, repetition)
CROSS JOIN LATERAL (
    SELECT r.run_key, r.id, r.grading, c.definition, c.ordinal, s.how::text, s.verdict, s.kind, s.code,
           coalesce(a.score_state, s.score_state) AS score_state, coalesce(a.earned, s.earned) AS earned, s.attempt,
           coalesce(s.from_run, r.id) AS from_run, coalesce(s.from_attempt, s.attempt) AS from_attempt,
           CASE WHEN s.attempt IS NULL THEN s.from_grading ELSE r.grading END AS from_grading
    FROM cases c
    JOIN runs r ON r.run_key = c.run_key
    JOIN settlements s ON s.run_key = c.run_key AND s.ordinal = c.ordinal AND s.superseded_at IS NULL
    LEFT JOIN attempts a ON a.run_key = s.run_key AND a.attempt = s.attempt
    WHERE c.fingerprint = k.fingerprint AND c.repetition = k.repetition
      AND r.project = %(project)s AND r.kind = 'sweep' AND r.deleted_at IS NULL
    ORDER BY r.run_key DESC, c.ordinal LIMIT 1
) f
LEFT JOIN LATERAL (
    SELECT j.*, j.source = 0
           OR (SELECT g.sources::json ->> f.definition FROM gradings g
               WHERE g.run_key = f.run_key AND g.grading = j.source)
            = (SELECT r.lock::json #>> ARRAY['parts', 'evals', f.definition, 'source'] FROM runs r
               WHERE r.run_key = f.run_key) AS by_the_same
    FROM judgements j
    WHERE f.grading > 0 AND j.run_key = f.run_key AND j.grading = f.grading AND j.attempt = f.attempt LIMIT 1
) j ON true
WHERE j.attempt IS NULL OR j.by_the_same
"""

_LATEST = """
SELECT run_key, grading FROM runs
WHERE project = %(project)s AND name = %(name)s AND kind = 'sweep' AND deleted_at IS NULL
  AND EXISTS (SELECT FROM settlements s WHERE s.run_key = runs.run_key AND s.superseded_at IS NULL)
ORDER BY run_key DESC LIMIT 1
"""


def _resembling(graded: bool) -> bytes:
    return f"""
    SELECT a.name, c.eval_id, c.repetition, r.id, c.ordinal, s.how::text, s.verdict::text, s.kind::text, s.code,
           NULL, NULL, coalesce(s.from_run, r.id), coalesce(s.from_attempt, s.attempt),
           CASE WHEN s.attempt IS NULL THEN s.from_grading ELSE r.grading END
    FROM runs r
    JOIN cases c ON c.run_key = r.run_key
    JOIN arms a ON a.run_key = c.run_key AND a.arm = c.arm
    JOIN {settlements(graded)} s ON s.run_key = c.run_key AND s.ordinal = c.ordinal AND s.superseded_at IS NULL
    WHERE r.run_key = %(run_key)s
    """.encode()


_UNFINISHED = """
SELECT r.id, extract(epoch FROM r.created_at)::float8, r.total,
       r.total - (SELECT coalesce(sum(unsettled), 0) FROM case_blocks b WHERE b.run_key = r.run_key)::bigint
FROM runs r
WHERE r.project = %s AND r.digest = %s AND r.kind = 'sweep' AND r.deleted_at IS NULL
  AND r.status IN ('queued', 'running', 'cancelled', 'limited')
ORDER BY r.run_key DESC LIMIT 1
"""

#: An arm's name, an eval id and a repetition.
CaseName = tuple[str, str, int]


async def settled_before(
    connection: Connection, project: str, keys: Sequence[tuple[str, int]]
) -> dict[tuple[str, int], PastResult]:
    """For each (fingerprint, repetition) what the latest run of the project that settled it made of it.

    Never another project's, never a try's, and never an older run's because it passed there. The fingerprint is that of
    the eval as it was planned: a result that another version of it judged since is none. Ask in batches of some
    thousands.
    """
    given = {
        "project": project,
        "fingerprints": [bytes.fromhex(fingerprint) for fingerprint, _ in keys],
        "repetitions": [repetition for _, repetition in keys],
    }
    rows = await (await connection.execute(_SETTLED, given)).fetchall()
    return {(fingerprint.hex(), repetition): _past(row) for fingerprint, repetition, *row in rows}


async def resembling(connection: Connection, project: str, name: str) -> dict[CaseName, PastResult]:
    """The settled cases of the latest run of the experiment `name` by arm, eval id and repetition."""
    latest = await (await connection.execute(_LATEST, {"project": project, "name": name})).fetchone()
    if latest is None:
        return {}
    run_key, grading = latest
    given = {"run_key": run_key, "grading": grading}
    rows = await (await connection.execute(_resembling(grading > 0), given)).fetchall()
    return {(arm, eval_id, repetition): _past(row) for arm, eval_id, repetition, *row in rows}


async def unfinished_run(connection: Connection, project: str, digest: str) -> UnfinishedRun | None:
    """The latest run of exactly these definitions that was not completed, None when there is none."""
    row = await (await connection.execute(_UNFINISHED, (project, digest))).fetchone()
    if row is None:
        return None
    identifier, created_at, total, settled = row
    return UnfinishedRun(id=identifier, created_at=created_at, settled=settled, total=total)


def _past(row: Sequence[Any]) -> PastResult:
    run, ordinal, how, verdict, kind, code, state, earned, from_run, from_attempt, from_grading = row
    return PastResult(
        run=run,
        ordinal=ordinal,
        how=Settlement(how),
        verdict=None if verdict is None else Verdict(verdict),
        kind=None if kind is None else FailureKind(kind),
        code=code,
        score_state=None if state is None else ScoreState(state),
        earned=earned,
        executed_by=from_run,
        attempt=from_attempt,
        grading=from_grading,
    )
