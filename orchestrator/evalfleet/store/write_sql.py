"""The statements of the coordinator's transactions. PURE text.

The statements are written so that Postgres finds the right plan without statistics, since a run's tables grow from
empty to a million rows within minutes: single rows are looked up by scalar subqueries, which no plan turns into a
join over a whole run.
"""

from __future__ import annotations

from evalfleet.store.copying import FIRST_OWN_ATTEMPT
from evalfleet.store.judged_sql import KNOWN_COST, UNKNOWN_COST, settlements
from evalfleet.store.rows import ASSERTION_FIELDS, ATTEMPT_FIELDS, JUDGE_CALL_FIELDS, PAGE_FIELDS, TOOL_CALL_FIELDS


def _sql(text: str) -> bytes:
    """A statement as psycopg takes one that was put together here, never from values."""
    return text.encode()


#: How ordinals map to blocks of `case_blocks`: 1,024 each.
BLOCK_BITS = 10

# a coordinator that is frozen in a commit holds the lock of its run no longer than it holds the run itself
SESSION = _sql("""
SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan; SET work_mem = '32MB';
SET idle_in_transaction_session_timeout = '15s'
""")

STAGED = {
    "attempts": ATTEMPT_FIELDS,
    "assertions": ASSERTION_FIELDS,
    "tool_calls": TOOL_CALL_FIELDS,
    "event_pages": PAGE_FIELDS,
    "judge_calls": JUDGE_CALL_FIELDS,
}


def _names(fields: tuple[str, ...], prefix: str = "") -> str:
    return ", ".join(f"{prefix}{name}" for name in fields)


# not ON COMMIT DELETE ROWS: emptying a table's files takes longer than all else that a small commit does
STAGING = _sql(
    "; ".join(
        f"CREATE TEMP TABLE stage_{table} AS SELECT {_names(fields)} FROM {table} WITH NO DATA"
        for table, fields in STAGED.items()
    )
)

#: Gives back the room of what commits staged and deleted again.
SWEEP = _sql(f"VACUUM {', '.join(f'pg_temp.stage_{table}' for table in STAGED)}")


def copy_into(table: str) -> bytes:
    return _sql(f"COPY pg_temp.stage_{table} FROM STDIN (FORMAT BINARY)")


# a coordinator that is back claims what it already holds: that adds no mark, and the one of this number is there;
# for one that follows, failures of before do not count towards the limit
CLAIM = _sql("""
WITH claimed AS (
    UPDATE runs
    SET epoch = epoch + 1, holder = %(me)s, holder_host = %(host)s, holder_pid = %(pid)s, beat = clock_timestamp(),
        status = 'running', started_at = coalesce(started_at, clock_timestamp()), finished_at = NULL,
        stop_reason = NULL, marks = marks + (holder IS DISTINCT FROM %(me)s)::integer,
        failures = CASE WHEN marks > 0 AND holder IS DISTINCT FROM %(me)s THEN 0 ELSE failures END,
        cancel_requested_at = CASE WHEN %(takeover)s THEN NULL ELSE cancel_requested_at END
    WHERE id = %(run)s AND deleted_at IS NULL
      AND (status IN ('queued', 'running') OR %(takeover)s OR %(steal)s)
      AND (holder IS NULL OR holder = %(me)s OR %(steal)s
           OR (%(takeover)s AND beat < clock_timestamp() - interval '15 s'))
    RETURNING run_key, epoch, commit_seq, marks
), marked AS (
    INSERT INTO run_marks (run_key, mark, commit_seq, type)
    SELECT run_key, marks, commit_seq, CASE marks WHEN 1 THEN 'run.started' ELSE 'run.resumed' END::run_mark
    FROM claimed
    ON CONFLICT (run_key, mark) DO NOTHING
)
SELECT run_key, epoch FROM claimed
""")

HELD_BY = _sql("""
SELECT status, holder, holder_host, holder_pid, extract(epoch FROM clock_timestamp() - beat)::float8, deleted_at
FROM runs WHERE id = %s
""")

CLAIMED = _sql("""
SELECT commit_seq, grading, total, failures, spent_usd, judge_usd, unknown_judge_cost,
       total - (SELECT coalesce(sum(unsettled), 0) FROM case_blocks b WHERE b.run_key = r.run_key)::bigint,
       extract(epoch FROM clock_timestamp() - started_at)::float8
FROM runs r WHERE run_key = %s
""")

CLAIMED_TALLIES = _sql(f"""
SELECT coalesce(verdict::text, how::text), count(*) FROM {settlements(graded=True)} s
WHERE run_key = %(run_key)s AND superseded_at IS NULL GROUP BY 1
""")

#: The cases of a repetition that have passed in any.
SOLVED = _sql(f"""
SELECT DISTINCT s.ordinal %% %(cycle)s::integer
FROM {settlements(graded=True)} s JOIN cases c USING (run_key, ordinal)
WHERE s.run_key = %(run_key)s AND s.superseded_at IS NULL AND s.verdict = 'passed' AND c.style = 'pass'
""")

#: How the last attempts ended, for a coordinator that follows on another: enough for the windows of many arms.
LAST_ATTEMPTS = _sql(f"""
SELECT arm, kind::text, code FROM attempts
WHERE run_key = %s AND attempt >= {FIRST_OWN_ATTEMPT} AND outcome IN ('completed', 'errored')
ORDER BY attempt DESC LIMIT 1000
""")

OPEN_INTENTS = _sql("""
SELECT attempt, ordinal, worker, kind, extract(epoch FROM created_at)::float8,
       (SELECT r.turns IS NULL FROM recordings r WHERE r.run_key = i.run_key AND r.ordinal = i.ordinal) IS TRUE,
       reserved_nanos, reserved_tokens,
       (SELECT c.arm FROM cases c WHERE c.run_key = i.run_key AND c.ordinal = i.ordinal)
FROM intents i WHERE run_key = %s AND closed_at IS NULL AND epoch < %s ORDER BY attempt
""")

FENCE = _sql("""
UPDATE runs SET commit_seq = commit_seq + 1, beat = clock_timestamp()
WHERE run_key = %s AND epoch = %s RETURNING commit_seq
""")

STANDING = _sql("SELECT epoch, commit_seq FROM runs WHERE run_key = %s AND id = %s")

#: After a failover that lost our last commits: claim above everything that either side knows.
RECLAIM = _sql("""
UPDATE runs
SET epoch = greatest(epoch, %(own)s) + 1, holder = %(me)s, holder_host = %(host)s, holder_pid = %(pid)s,
    beat = clock_timestamp(), status = 'running'
WHERE run_key = %(run_key)s AND epoch = %(stored)s AND deleted_at IS NULL
RETURNING epoch
""")

_PREVIOUS_NUMBER = """
coalesce((SELECT max(a.number) FROM attempts a WHERE a.run_key = %(run_key)s AND a.ordinal = s.ordinal), 0)
"""

# no arm, so no row, for what belongs to another run or to no case
_ARM = "(SELECT c.arm FROM cases c WHERE c.run_key = %(run_key)s AND c.ordinal = s.ordinal {of_this_run})"

_BLOCKS = f"""
UPDATE case_blocks b SET unsettled = b.unsettled - d.settled
FROM (SELECT ordinal >> {BLOCK_BITS} AS block, count(*) AS settled FROM settled GROUP BY 1) d
WHERE b.run_key = %(run_key)s AND b.block = d.block
"""

# An attempt that came to settle its case and found it settled, or another before it in this batch, is stored as
# superseded. Nobody else settles meanwhile: who writes to a run holds the lock that the fence took.
_WRITE_ATTEMPTS = f"""
WITH fresh AS (
    SELECT s.*, {_ARM.format(of_this_run="AND s.run_key = c.run_key")} AS arm,
           {_PREVIOUS_NUMBER} + row_number() OVER (PARTITION BY s.ordinal ORDER BY s.attempt) AS number,
           row_number() OVER (PARTITION BY s.ordinal, s.settles ORDER BY s.attempt) = 1
           AND (SELECT d.ordinal FROM settlements d
                WHERE d.run_key = %(run_key)s AND d.ordinal = s.ordinal AND d.superseded_at IS NULL) IS NULL AS free
    FROM pg_temp.stage_attempts s
), inserted AS (
    INSERT INTO attempts ({_names(ATTEMPT_FIELDS)}, commit_seq, arm, number)
    SELECT {
    _names(ATTEMPT_FIELDS, "f.")
    .replace("f.outcome", "CASE WHEN f.settles AND NOT f.free THEN 'superseded' ELSE f.outcome END")
    .replace("f.settles,", "f.settles AND f.free,")
}, %(commit_seq)s, f.arm, f.number
    FROM fresh f
    ON CONFLICT (run_key, attempt) DO NOTHING
    RETURNING attempt, ordinal, verdict, kind, code, settles, cost_usd, estimated_usd, input_tokens, output_tokens
), settled AS (
    INSERT INTO settlements (run_key, ordinal, how, attempt, verdict, kind, code)
    SELECT %(run_key)s, ordinal, 'attempt', attempt, verdict, kind, code FROM inserted WHERE settles
    RETURNING ordinal, attempt, verdict
), blocks AS ({_BLOCKS}), counted AS (
    UPDATE runs r
    SET attempts = r.attempts + n.attempts, tokens = least(r.tokens + n.tokens, 9223372036854775807),
        failures = r.failures + (SELECT count(*) FROM settled WHERE verdict = 'errored'),
        spent_usd = r.spent_usd + n.spent_usd, unknown_cost = r.unknown_cost + n.unknown_cost,
        (judge_usd, unknown_judge_cost) = (
            SELECT r.judge_usd + {KNOWN_COST}, r.unknown_judge_cost + {UNKNOWN_COST}
            FROM pg_temp.stage_judge_calls j WHERE j.attempt IN (SELECT attempt FROM inserted)
        )
    FROM (
        SELECT count(*) AS attempts,
               coalesce(sum(input_tokens::numeric + output_tokens), 0) AS tokens,
               coalesce(sum(coalesce(cost_usd, estimated_usd)), 0) AS spent_usd,
               count(*) FILTER (WHERE cost_usd IS NULL AND estimated_usd IS NULL) AS unknown_cost
        FROM inserted
    ) n
    WHERE r.run_key = %(run_key)s
)%(children)s
SELECT attempt, settles FROM inserted
"""

#: Moves staged attempts, and the children of those that were new, to their tables, and what is staged away. One
#: statement for every batch: it is planned once, and an empty staging table costs next to nothing.
WRITE_ATTEMPTS = _sql(
    _WRITE_ATTEMPTS.replace(
        "%(children)s",
        "".join(
            f", {table}_written AS (INSERT INTO {table} ({_names(fields)}) SELECT {_names(fields, 's.')} "
            f"FROM pg_temp.stage_{table} s WHERE s.attempt IN (SELECT attempt FROM inserted))"
            for table, fields in STAGED.items()
            if table != "attempts"
        )
        + "".join(f", {table}_taken AS (DELETE FROM pg_temp.stage_{table})" for table in STAGED),
    )
)


WRITE_LOST = _sql(f"""
WITH given AS (
    SELECT * FROM unnest(
        %(attempts)s::bigint[], %(ordinals)s::integer[], %(workers)s::text[], %(kinds)s::failure_kind[],
        %(codes)s::text[], %(started)s::float8[], %(blamed)s::boolean[], %(complete)s::boolean[]
    ) AS s (attempt, ordinal, worker, kind, code, started, blamed, complete)
), inserted AS (
    INSERT INTO attempts (attempt, run_key, ordinal, arm, number, started_at, duration, commit_seq, outcome, kind, code,
                          worker, blamed, pages_complete)
    SELECT attempt, %(run_key)s, ordinal, {_ARM.format(of_this_run="")},
           {_PREVIOUS_NUMBER} + row_number() OVER (PARTITION BY s.ordinal ORDER BY s.attempt),
           to_timestamp(started), greatest(0, extract(epoch FROM clock_timestamp()) - started), %(commit_seq)s,
           'interrupted', kind, code, worker, blamed, complete
    FROM given s
    ON CONFLICT (run_key, attempt) DO NOTHING
    RETURNING attempt
), counted AS (
    UPDATE runs r SET attempts = r.attempts + n.lost, unknown_cost = r.unknown_cost + n.lost
    FROM (SELECT count(*) AS lost FROM inserted) n WHERE r.run_key = %(run_key)s
)
SELECT attempt FROM inserted
""")

# a case given up after interrupted attempts is settled by the last of them, whose row says why
WRITE_SETTLED = _sql(f"""
WITH settled AS (
    INSERT INTO settlements (run_key, ordinal, commit_seq, how, verdict, kind, code, attempt)
    SELECT %(run_key)s, ordinal, %(commit_seq)s, how, verdict,
           coalesce(kind, (SELECT a.kind FROM attempts a WHERE a.run_key = %(run_key)s AND a.attempt = g.attempt)),
           coalesce(code, (SELECT a.code FROM attempts a WHERE a.run_key = %(run_key)s AND a.attempt = g.attempt)),
           attempt
    FROM unnest(
        %(ordinals)s::integer[], %(hows)s::settlement[], %(verdicts)s::verdict[], %(kinds)s::failure_kind[],
        %(codes)s::text[], %(attempts)s::bigint[]
    ) AS g (ordinal, how, verdict, kind, code, attempt)
    ON CONFLICT (run_key, ordinal) WHERE superseded_at IS NULL DO NOTHING
    RETURNING ordinal, attempt, verdict
), blocks AS ({_BLOCKS}), deciding AS (
    UPDATE attempts a SET settles = true FROM settled d WHERE a.run_key = %(run_key)s AND a.attempt = d.attempt
), counted AS (
    UPDATE runs r SET failures = r.failures + n.failures
    FROM (SELECT count(*) AS failures FROM settled WHERE verdict = 'errored') n
    WHERE r.run_key = %(run_key)s AND n.failures > 0
)
SELECT ordinal FROM settled
""")

#: The first whole recording of a case stays: it is what the next attempt judges. A beginning gives way to a longer one.
RECORD = _sql("""
INSERT INTO recordings AS r (run_key, attempt, ordinal, body, turns)
SELECT %(run_key)s, attempt, ordinal, body, turns
FROM unnest(%(attempts)s::bigint[], %(ordinals)s::integer[], %(bodies)s::bytea[], %(turns)s::integer[])
     AS g (attempt, ordinal, body, turns)
ON CONFLICT (run_key, ordinal) DO UPDATE SET attempt = excluded.attempt, body = excluded.body, turns = excluded.turns
WHERE r.turns IS NOT NULL AND (excluded.turns IS NULL OR excluded.turns > r.turns)
""")

FORGET_RECORDINGS = _sql("DELETE FROM recordings WHERE run_key = %s AND ordinal = ANY(%s::integer[])")

#: What a commit did whose reply was lost, told by its number.
WRITTEN = _sql("""
SELECT attempt, settles FROM attempts
WHERE run_key = %(run_key)s AND attempt = ANY(%(attempts)s::bigint[]) AND commit_seq = %(commit_seq)s
""")

SETTLED_WITHOUT = _sql("""
SELECT s.ordinal
FROM unnest(%(ordinals)s::integer[], %(attempts)s::bigint[]) AS g (ordinal, attempt)
JOIN settlements s ON s.run_key = %(run_key)s AND s.ordinal = g.ordinal AND s.attempt IS NOT DISTINCT FROM g.attempt
WHERE s.superseded_at IS NULL
""")

# blocks first, so that a million settled cases cost one look at a thousand small rows
PAGE = _sql(f"""
WITH blocks AS (
    SELECT block FROM (
        SELECT block, unsettled, sum(unsettled) OVER (ORDER BY block) AS upto
        FROM case_blocks
        WHERE run_key = %(run_key)s AND unsettled > 0 AND block >= (%(after)s::integer + 1) >> {BLOCK_BITS}
    ) b
    WHERE b.upto - b.unsettled < %(limit)s::bigint + {1 << BLOCK_BITS}
), reopened AS (
    SELECT coalesce(max(commit_seq), 0) AS commit_seq FROM reopenings WHERE run_key = %(run_key)s
)
SELECT c.ordinal, c.arm, c.eval_id, c.definition, c.style::text, c.repetition, c.content, c.fingerprint, c.row,
       c.variants, c.tags, c.external, n.attempts, n.crashes, n.lost, n.last_attempt,
       (SELECT r.turns IS NULL FROM recordings r WHERE r.run_key = %(run_key)s AND r.ordinal = c.ordinal),
       CASE WHEN c.external THEN coalesce((
           SELECT s.how = 'attempt' FROM settlements s
           WHERE s.run_key = %(run_key)s AND s.ordinal = c.ordinal AND s.superseded_at IS NOT NULL
           ORDER BY s.reopening DESC LIMIT 1
       ), false) ELSE false END
FROM (
    SELECT c.*
    FROM blocks b
    CROSS JOIN LATERAL (
        SELECT c.* FROM cases c
        WHERE c.run_key = %(run_key)s AND c.ordinal > %(after)s
          AND c.ordinal >= b.block << {BLOCK_BITS} AND c.ordinal < (b.block + 1) << {BLOCK_BITS}
          AND (SELECT s.ordinal FROM settlements s
               WHERE s.run_key = c.run_key AND s.ordinal = c.ordinal AND s.superseded_at IS NULL) IS NULL
        OFFSET 0  -- keeps the planner from turning the join around, which would read every case
    ) c
    ORDER BY c.ordinal LIMIT %(limit)s
) c
LEFT JOIN LATERAL (
    SELECT count(*) FILTER (WHERE a.outcome = 'errored' AND NOT a.excused) AS attempts,
           count(*) FILTER (WHERE a.blamed OR a.outcome = 'errored' AND a.code = 'WORKER_CRASHED') AS crashes,
           count(*) FILTER (WHERE a.outcome = 'interrupted' AND NOT a.blamed) AS lost,
           max(a.attempt) FILTER (WHERE a.outcome IN ('errored', 'interrupted')) AS last_attempt
    FROM (
        SELECT * FROM attempts a WHERE a.run_key = c.run_key AND a.ordinal = c.ordinal
        ORDER BY a.number OFFSET 0  -- the order makes the planner take the index by case
    ) a
    WHERE a.commit_seq > (SELECT commit_seq FROM reopened)
) n ON true
ORDER BY c.ordinal
""")

BEAT = _sql("""
WITH held AS (
    UPDATE runs SET beat = clock_timestamp() WHERE run_key = %(run_key)s AND epoch = %(epoch)s RETURNING run_key
), shown AS (
    INSERT INTO run_progress (run_key, at, body) SELECT run_key, clock_timestamp(), %(body)s FROM held
    ON CONFLICT (run_key) DO UPDATE SET at = excluded.at, body = excluded.body
)
SELECT pg_notify('evalfleet_run', %(run)s) FROM held
""")

CANCEL_REQUESTED = _sql("""
SELECT cancel_requested_at IS NOT NULL OR deleted_at IS NOT NULL FROM runs WHERE run_key = %s
""")

# a finish that is repeated, since its reply was lost, adds no second mark; one whose suites are yet to be judged
# adds none, which comes with their results
FINISH = _sql("""
WITH finished AS (
    UPDATE runs
    SET status = %(status)s::run_status, stop_reason = %(reason)s, finished_at = clock_timestamp(), holder = NULL,
        marks = marks + (finished_at IS NULL AND NOT EXISTS (
            SELECT FROM suites s WHERE s.run_key = runs.run_key AND s.criteria > 0
        ))::integer
    WHERE run_key = %(run_key)s AND epoch = %(epoch)s
    RETURNING run_key, commit_seq, marks, status, id
), marked AS (
    INSERT INTO run_marks (run_key, mark, commit_seq, type, status)
    SELECT run_key, marks, commit_seq, 'run.completed', status FROM finished
    ON CONFLICT (run_key, mark) DO NOTHING
)
SELECT pg_notify('evalfleet_run', id) FROM finished
""")
