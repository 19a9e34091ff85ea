"""The statements by which recorded attempts are read and judged again. PURE text.

Single rows are looked up one by one, so that no plan depends on statistics of a run that was just written.
"""

from __future__ import annotations

from collections.abc import Sequence

from evalfleet.store.judged_sql import JUDGED, KNOWN_COST, UNKNOWN_COST
from evalfleet.store.read_sql import STALE_SECONDS
from evalfleet.store.rows import ASSERTION_FIELDS, ATTEMPT_FIELDS, JUDGE_CALL_FIELDS

#: What a pass judges depends on this, so it may not have changed when the pass ends.
STANDING = f"""
SELECT run_key, epoch, commit_seq, grading, (SELECT count(*) FROM reopenings o WHERE o.run_key = r.run_key),
       CASE WHEN status = 'running' AND beat > clock_timestamp() - interval '{STALE_SECONDS} s' THEN holder END,
       holder_host, holder_pid
FROM runs r WHERE id = %(run)s AND deleted_at IS NULL
"""

#: Verdicts that a judge, a grader or evidence kept from forming, though the agent had done its part.
_UNAVAILABLE = """
coalesce(j.verdict, a.verdict) = 'errored'
AND (CASE WHEN j.attempt IS NULL THEN a.kind ELSE j.kind END IN ('judge', 'grader')
     OR CASE WHEN j.attempt IS NULL THEN a.code ELSE j.code END IN ('ASSERTION_UNAVAILABLE', 'ASSERTION_ERRORED'))
"""


def recorded(*, superseded: bool, only_unavailable: bool) -> bytes:
    """Attempts that settle cases above an ordinal, or did before those were reopened, with case, record and pages.

    As many as stand in `limit` bytes and the next, of `count` cases. Interrupted ones have no record and are left out.
    """
    return f"""
    SELECT ordinal, (SELECT r.name FROM arms r WHERE r.run_key = %(run_key)s AND r.arm = p.arm), eval_id, definition,
           style::text, repetition, content, fingerprint, row, variants, tags, external,
           attempt, outcome::text, verdict::text, kind::text, code, message, score_state::text, earned, skip_reason,
           started_at, duration, turns, events, assertions, judged, record,
           CASE WHEN paged > 0 THEN ARRAY(
               SELECT e.body FROM event_pages e
               WHERE e.run_key = %(run_key)s AND e.attempt = p.attempt ORDER BY e.page
           ) END
    FROM (
        SELECT *, sum(paged + octet_length(record)) OVER (
            ORDER BY ordinal, attempt ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS before
        FROM (
            SELECT c.ordinal, c.arm, c.eval_id, c.definition, c.style, c.repetition, c.content, c.fingerprint, c.row,
                   c.variants, c.tags, c.external, a.attempt, a.outcome, a.verdict, a.kind, a.code, a.message,
                   a.score_state, a.earned, a.skip_reason, extract(epoch FROM a.started_at)::float8 AS started_at,
                   a.duration, a.turns, a.events, a.assertions, a.record,
                   coalesce(j.verdict, a.verdict)::text AS judged,
                   (SELECT coalesce(sum(octet_length(e.body)), 0) FROM event_pages e
                    WHERE e.run_key = a.run_key AND e.attempt = a.attempt) AS paged
            FROM settlements s
            CROSS JOIN LATERAL (
                SELECT * FROM attempts a WHERE a.run_key = s.run_key AND a.attempt = s.attempt LIMIT 1
            ) a
            LEFT JOIN LATERAL (
                SELECT * FROM judgements j
                WHERE j.run_key = s.run_key AND j.grading = %(grading)s AND j.attempt = s.attempt LIMIT 1
            ) j ON true
            CROSS JOIN LATERAL (
                SELECT * FROM cases c WHERE c.run_key = s.run_key AND c.ordinal = s.ordinal LIMIT 1
            ) c
            WHERE s.run_key = %(run_key)s AND s.ordinal >= %(after)s AND (s.ordinal, s.attempt) > (%(after)s, %(last)s)
              AND s.superseded_at IS {"NOT NULL" if superseded else "NULL"} AND a.record IS NOT NULL
              AND ({_UNAVAILABLE if only_unavailable else "true"})
            ORDER BY s.ordinal, s.attempt LIMIT %(count)s
        ) found
    ) p
    WHERE coalesce(before, 0) < %(limit)s
    ORDER BY ordinal, attempt
    """.encode()


#: What a pass gathers before anybody sees it, by the table whose columns it has.
STAGED = {"attempts": ATTEMPT_FIELDS, "assertions": ASSERTION_FIELDS, "judge_calls": JUDGE_CALL_FIELDS}


def _names(fields: Sequence[str], prefix: str = "") -> str:
    return ", ".join(f"{prefix}{name}" for name in fields)


SESSION = (
    "SET enable_seqscan = off; SET enable_sort = off; SET plan_cache_mode = force_generic_plan; "
    "CREATE TEMP TABLE staged_bases (attempt bigint PRIMARY KEY, basis basis NOT NULL, reason text); "
    + "; ".join(
        f"CREATE TEMP TABLE staged_{table} AS SELECT {_names(fields)} FROM {table} WITH NO DATA"
        for table, fields in STAGED.items()
    )
).encode()

STAGE_BASES = """
INSERT INTO pg_temp.staged_bases
SELECT * FROM unnest(%(attempts)s::bigint[], %(bases)s::basis[], %(reasons)s::text[])
"""


def copy_into(table: str) -> bytes:
    return f"COPY pg_temp.staged_{table} FROM STDIN (FORMAT BINARY)".encode()


#: Holds the run still to the end of the transaction, unless anything that was judged has changed.
LOCK = """
SELECT run_key FROM runs r
WHERE run_key = %(run_key)s AND epoch = %(epoch)s AND commit_seq = %(commit_seq)s AND grading = %(grading)s
  AND deleted_at IS NULL
  AND (SELECT count(*) FROM reopenings o WHERE o.run_key = r.run_key) = %(reopenings)s
FOR UPDATE
"""

NEXT = """
INSERT INTO gradings (run_key, grading, evaluation, who, why, sources)
SELECT %(run_key)s, coalesce(max(grading), 0) + 1, %(evaluation)s, %(who)s, %(why)s, %(sources)s
FROM gradings WHERE run_key = %(run_key)s
RETURNING grading
"""


def _stood(name: str) -> str:
    """A column of the judgement that stood: by the grading before, else by the settlement and its attempt."""
    sealed = "s" if name in ("verdict", "kind", "code") else "a"
    return f"CASE WHEN p.attempt IS NULL THEN {sealed}.{name} ELSE p.{name} END"


#: Every attempt that settles a case, or did: what was staged of it, else what stood.
WRITE = tuple(
    statement.encode()
    for statement in (
        f"""
        INSERT INTO judgements (run_key, grading, attempt, source, basis, {_names(JUDGED)}, record)
        SELECT %(run_key)s, %(number)s, a.attempt, %(number)s, b.basis, {_names(JUDGED)}, a.record
        FROM pg_temp.staged_attempts a JOIN pg_temp.staged_bases b USING (attempt)
        """,
        f"""
        INSERT INTO judgements (run_key, grading, attempt, source, basis, reason, {_names(JUDGED)})
        SELECT s.run_key, %(number)s, s.attempt, coalesce(p.source, 0), 'kept', b.reason,
               {", ".join(map(_stood, JUDGED))}
        FROM settlements s
        CROSS JOIN LATERAL (
            SELECT * FROM attempts a WHERE a.run_key = s.run_key AND a.attempt = s.attempt LIMIT 1
        ) a
        LEFT JOIN LATERAL (
            SELECT * FROM judgements p
            WHERE p.run_key = s.run_key AND p.grading = %(grading)s AND p.attempt = s.attempt LIMIT 1
        ) p ON true
        LEFT JOIN LATERAL (SELECT * FROM pg_temp.staged_bases b WHERE b.attempt = s.attempt LIMIT 1) b ON true
        WHERE s.run_key = %(run_key)s AND s.attempt IS NOT NULL AND coalesce(b.basis, 'kept') = 'kept'
        """,
        *(
            f"""
            INSERT INTO {table} ({_names(STAGED[table])}, grading)
            SELECT {_names(STAGED[table])}, %(number)s FROM pg_temp.staged_{table}
            """
            for table in ("assertions", "judge_calls")
        ),
        f"""
        UPDATE runs r
        SET grading = %(number)s, failures = (
            SELECT count(*) FROM settlements s
            LEFT JOIN judgements j ON j.run_key = s.run_key AND j.grading = %(number)s AND j.attempt = s.attempt
            WHERE s.run_key = %(run_key)s AND s.superseded_at IS NULL AND coalesce(j.verdict, s.verdict) = 'errored'
        ), (judge_usd, unknown_judge_cost) = (
            SELECT r.judge_usd + {KNOWN_COST}, r.unknown_judge_cost + {UNKNOWN_COST} FROM pg_temp.staged_judge_calls j
        )
        WHERE r.run_key = %(run_key)s
        """,
    )
)
