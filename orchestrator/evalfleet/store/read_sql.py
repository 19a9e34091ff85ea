"""The statements of the reader. PURE text.

Those about verdicts come in two forms: `graded` ones read what the grading `%(grading)s` says.
"""

from __future__ import annotations

from functools import cache

from evalfleet.store.copying import FIRST_OWN_ATTEMPT
from evalfleet.store.judged_sql import KNOWN_COST, UNKNOWN_COST
from evalfleet.store.judged_sql import attempts as _attempts
from evalfleet.store.judged_sql import settlements as _settlements

#: A running run whose coordinator was silent for this long reads as interrupted; a resume may take it over.
STALE_SECONDS = 15

#: How the reader's statements are to be planned, whatever the statistics say: they know nothing yet of a run that was
#: just written, and a planner that expects one row of it sorts the run to group it and passes over it once a case.
PLANS = "SET jit = off; SET enable_sort = off; SET enable_nestloop = off"

RUN = f"""
id, kind::text, name, project, status::text, total, extract(epoch FROM created_at)::float8,
extract(epoch FROM started_at)::float8, extract(epoch FROM finished_at)::float8, extract(epoch FROM beat)::float8,
holder, holder_host, holder_pid, stop_reason, derived_from, digest, experiment, lock,
status = 'running' AND (holder IS NULL OR coalesce(beat < clock_timestamp() - interval '{STALE_SECONDS} s', true)),
grading
"""

RUNS = f"""
SELECT {RUN} FROM runs
WHERE deleted_at IS NULL AND (kind = 'sweep' OR %(all)s)
  AND run_key < coalesce((SELECT run_key FROM runs WHERE id = %(before)s), 2147483647)
ORDER BY run_key DESC LIMIT %(limit)s
""".encode()

RUNS_BY_PREFIX = f"""
SELECT run_key, {RUN} FROM runs WHERE deleted_at IS NULL AND id LIKE %(prefix)s
ORDER BY (id = %(exact)s) DESC, id LIMIT 7
""".encode()

#: As `RUNS_BY_PREFIX`, without what a run was planned from: that may be megabytes, and every page of cases asks.
KEYS_BY_PREFIX = b"""
SELECT run_key, id, grading FROM runs WHERE deleted_at IS NULL AND id LIKE %(prefix)s
ORDER BY (id = %(exact)s) DESC, id LIMIT 7
"""

NEWEST_IDS = b"SELECT id FROM runs WHERE deleted_at IS NULL ORDER BY run_key DESC LIMIT 1000"

RUN_BY_KEY = f"SELECT {RUN} FROM runs WHERE run_key = %s".encode()

GRADINGS = b"""
SELECT grading, extract(epoch FROM at)::float8, who, why, evaluation, sources
FROM gradings WHERE run_key = %s ORDER BY grading
"""

PROGRESS = "SELECT extract(epoch FROM at)::float8, body FROM run_progress WHERE run_key = %s"

# --- aggregate ------------------------------------------------------------------------------------------------

ARMS = "SELECT arm, name, style::text, cases, repeated FROM arms WHERE run_key = %s ORDER BY arm"


@cache
def classes(graded: bool) -> bytes:
    """All attempts by arm and by what decides a class, each with the percentiles of its arm's durations.

    A few dozen rows whatever the run, from one pass. Grouped by the enums, not by their texts, whose number no planner
    can guess.
    """
    return f"""
    WITH classes AS MATERIALIZED (
        SELECT arm, settles, outcome, verdict, kind, score_state,
               count(*) AS attempts,
               coalesce(sum(input_tokens), 0) AS input_tokens,
               coalesce(sum(output_tokens), 0) AS output_tokens,
               count(*) FILTER (WHERE input_tokens IS NULL OR output_tokens IS NULL OR unknown_calls > 0)
                   AS unknown_usage,
           count(*) FILTER (WHERE contradicted) AS contradicted,
               coalesce(sum(coalesce(cost_usd, estimated_usd)), 0)::float8 AS cost_usd,
               count(*) FILTER (WHERE cost_usd IS NULL AND estimated_usd IS NULL) AS unknown_cost,
               coalesce(sum(earned), 0)::float8 AS earned,
               array_agg(duration) FILTER (WHERE settles) AS durations
        FROM {_attempts(graded)} a WHERE run_key = %(run_key)s AND attempt >= {FIRST_OWN_ATTEMPT}
        GROUP BY arm, settles, outcome, verdict, kind, score_state
    ), seconds AS MATERIALIZED (
        SELECT a.arm, (
            SELECT percentile_disc(ARRAY[0.5, 0.95, 1.0]) WITHIN GROUP (ORDER BY d.duration)
            FROM (SELECT unnest(c.durations) AS duration FROM classes c WHERE c.arm = a.arm) d
        ) AS percentiles
        FROM arms a WHERE a.run_key = %(run_key)s
    )
    SELECT arm, settles, outcome::text, verdict::text, kind::text, score_state::text, attempts, input_tokens,
           output_tokens, unknown_usage, contradicted, cost_usd, unknown_cost, earned, percentiles
    FROM classes JOIN seconds USING (arm)
    """.encode()


#: The judge calls by arm: those of sealing, and those that the grading made itself. No row where no judge was asked.
JUDGE_CALLS = f"""
SELECT a.arm, j.grading > 0, count(*), count(*) FILTER (WHERE j.cached), count(*) FILTER (WHERE j.code IS NOT NULL),
       coalesce(sum(j.input_tokens), 0)::bigint, coalesce(sum(j.output_tokens), 0)::bigint,
       count(*) FILTER (WHERE NOT j.cached AND (j.input_tokens IS NULL OR j.output_tokens IS NULL)),
       {KNOWN_COST}, {UNKNOWN_COST}
FROM judge_calls j JOIN attempts a ON a.run_key = j.run_key AND a.attempt = j.attempt
WHERE j.run_key = %(run_key)s AND j.grading IN (0, %(grading)s) AND j.attempt >= {FIRST_OWN_ATTEMPT}
GROUP BY 1, 2
"""

ASKED_JUDGES = "SELECT EXISTS (SELECT FROM judge_calls WHERE run_key = %s)"

WITHOUT_ATTEMPT = """
SELECT arm, how::text, verdict::text, kind::text, score_state::text, count(*), coalesce(sum(earned), 0)::float8
FROM (
    SELECT (SELECT c.arm FROM cases c WHERE c.run_key = s.run_key AND c.ordinal = s.ordinal) AS arm, s.*
    FROM settlements s WHERE s.run_key = %(run_key)s AND s.attempt IS NULL AND s.superseded_at IS NULL
) s
GROUP BY arm, how, verdict, kind, score_state
"""

#: Unsettled cases whose last attempt was cancelled, by arm.
CANCELLED = """
SELECT arm, count(*) FROM (
    SELECT DISTINCT ON (ordinal) arm, outcome, ordinal
    FROM attempts WHERE run_key = %(run_key)s
    ORDER BY ordinal, number DESC
) last
WHERE outcome = 'cancelled' AND NOT EXISTS (
    SELECT FROM settlements s
    WHERE s.run_key = %(run_key)s AND s.ordinal = last.ordinal AND s.superseded_at IS NULL
)
GROUP BY 1
"""


def _headline(graded: bool) -> str:
    """The settlement that a headline counts: the first failure of a case that was reopened since, else what stands."""
    table = _settlements(graded, few=True)
    return f"""
    LEFT JOIN LATERAL (
        SELECT * FROM (
            SELECT * FROM {table} s
            WHERE s.run_key = c.run_key AND s.ordinal = c.ordinal AND s.superseded_at IS NOT NULL
              AND s.verdict = 'failed'
            UNION ALL
            SELECT * FROM {table} s
            WHERE s.run_key = c.run_key AND s.ordinal = c.ordinal AND s.superseded_at IS NULL
        ) s ORDER BY s.superseded_at NULLS LAST LIMIT 1
    ) s ON true
    """


def _standing(graded: bool) -> str:
    """For whole runs; where few cases are asked for, a lookup by key."""
    return f"""
    LEFT JOIN {_settlements(graded)} s
    ON s.run_key = c.run_key AND s.ordinal = c.ordinal AND s.superseded_at IS NULL
    """


def _looked_up(table: str, name: str, keys: str) -> str:
    """At most one row by its keys. LIMIT keeps this from becoming a join over the whole run."""
    return f"LEFT JOIN LATERAL (SELECT * FROM {table} {name} WHERE {keys} LIMIT 1) {name} ON true"


def _standing_of_case(graded: bool) -> str:
    keys = "s.run_key = c.run_key AND s.ordinal = c.ordinal AND s.superseded_at IS NULL"
    return _looked_up(_settlements(graded, few=True), "s", keys)


def _attempt_of(name: str, of: str, graded: bool) -> str:
    """The attempt `name` that the settlement `of` names."""
    keys = f"{name}.run_key = {of}.run_key AND {name}.attempt = {of}.attempt"
    return _looked_up(_attempts(graded, few=True), name, keys)


@cache
def retried(graded: bool) -> bytes:
    """Cases reopened after they failed, with what stands of them now and what their first failure was worth."""
    return f"""
    SELECT c.arm, s.how::text, s.verdict::text, s.kind::text,
           a.score_state::text, a.earned, p.score_state::text, p.earned, s.ordinal IS NOT NULL,
           (SELECT o.outcome::text FROM attempts o
            WHERE o.run_key = c.run_key AND o.ordinal = c.ordinal ORDER BY o.number DESC LIMIT 1)
    FROM (
        SELECT DISTINCT ON (ordinal) run_key, ordinal, attempt FROM {_settlements(graded, few=True)} s
        WHERE run_key = %(run_key)s AND superseded_at IS NOT NULL AND verdict = 'failed'
        ORDER BY ordinal, superseded_at
    ) f
    {_looked_up("cases", "c", "c.run_key = f.run_key AND c.ordinal = f.ordinal")}
    {_attempt_of("p", "f", graded)}
    {_standing_of_case(graded)}
    {_attempt_of("a", "s", graded)}
    """.encode()


REOPENED = "SELECT EXISTS (SELECT FROM reopenings WHERE run_key = %s)"


@cache
def by_eval(reopened: bool, graded: bool) -> bytes:
    """Evals by how many of their repetitions count, were answered and passed: a handful of rows an arm."""
    return f"""
    SELECT arm, counted, answered, passed, count(*) FROM (
        SELECT c.arm,
               count(*) FILTER (WHERE s.verdict IS DISTINCT FROM 'skipped'
                                  AND (s.how IS NULL OR s.how NOT IN ('skipped', 'not_needed'))) AS counted,
               count(*) FILTER (WHERE s.verdict IN ('passed', 'failed')
                                   OR s.verdict = 'errored' AND s.kind IN ('agent', 'deadline')) AS answered,
               count(*) FILTER (WHERE s.verdict = 'passed') AS passed
        FROM cases c {_headline(graded) if reopened else _standing(graded)}
        WHERE c.run_key = %(run_key)s GROUP BY c.arm, c.eval_id, c.variants
    ) e GROUP BY 1, 2, 3, 4
    """.encode()


# --- cases and attempts ---------------------------------------------------------------------------------------

_STATUS = f"""
CASE WHEN s.how IN ('attempt', 'carried') THEN s.verdict::text
     WHEN s.how IS NOT NULL THEN s.how::text
     WHEN EXISTS (SELECT FROM intents i
                  WHERE i.run_key = c.run_key AND i.ordinal = c.ordinal AND i.closed_at IS NULL
                    AND i.epoch = (SELECT r.epoch FROM runs r WHERE r.run_key = %(run_key)s AND r.status = 'running'
                                   AND r.beat > clock_timestamp() - interval '{STALE_SECONDS} s'))
     THEN 'running'
     WHEN (SELECT a.outcome FROM attempts a WHERE a.run_key = c.run_key AND a.ordinal = c.ordinal
           ORDER BY a.number DESC LIMIT 1) = 'cancelled' THEN 'cancelled'
     ELSE 'pending' END
"""

USAGE = """
a.input_tokens, a.output_tokens, a.cache_read_tokens, a.cache_write_tokens, a.reasoning_tokens, a.requests,
a.cost_usd, a.unknown_calls
"""


@cache
def cases(reopened: bool, graded: bool) -> bytes:
    """A page of cases by ordinal, filtered; NULL filters let everything through.

    Only a filter by status looks at more settlements than the page has cases.
    """
    return f"""
    SELECT c.ordinal, (SELECT r.name FROM arms r WHERE r.run_key = c.run_key AND r.arm = c.arm), c.eval_id,
           c.style::text, c.repetition, {_STATUS} AS status, s.how::text,
           s.verdict::text, s.kind::text, s.code, a.message, coalesce(a.score_state, s.score_state)::text,
           coalesce(a.earned, s.earned), s.attempt,
           (SELECT count(*) FROM attempts n
            WHERE n.run_key = c.run_key AND n.ordinal = c.ordinal AND n.attempt >= {FIRST_OWN_ATTEMPT}),
           a.duration, a.reply, c.tags, c.variants, s.from_run, s.from_attempt, s.from_grading, a.estimated_usd, {USAGE}
    FROM (
        SELECT * FROM cases
        WHERE run_key = %(run_key)s AND ordinal > %(after)s
          AND (%(arm)s::text IS NULL
               OR arm = (SELECT r.arm FROM arms r WHERE r.run_key = %(run_key)s AND r.name = %(arm)s))
          AND (%(prefix)s::text IS NULL OR eval_id LIKE %(prefix)s)
          AND (%(tag)s::text IS NULL OR %(tag)s = ANY(tags))
        ORDER BY ordinal LIMIT CASE WHEN %(statuses)s::text[] IS NULL THEN %(limit)s END
    ) c
    {_headline(graded) if reopened else _standing_of_case(graded)}
    {_attempt_of("a", "s", graded)}
    WHERE %(statuses)s::text[] IS NULL OR {_STATUS} = ANY(%(statuses)s)
    ORDER BY c.ordinal LIMIT %(limit)s
    """.encode()


@cache
def side(reopened: bool, graded: bool) -> bytes:
    """Every case of one arm as a comparison reads it, in no order.

    A copied attempt has lost the run that it comes from; who made it and when tells it from every other.
    """
    own = "CASE WHEN s.attempt IS NULL THEN s.{0} ELSE a.{0} END"
    return f"""
    SELECT c.ordinal, c.eval_id, c.definition, sha256(c.row), c.variants, c.repetition, c.style::text,
           s.how::text, s.verdict::text, s.kind::text, {own.format("score_state")}::text, {own.format("earned")},
           s.attempt, s.from_run, s.from_attempt,
           CASE WHEN a.attempt < {FIRST_OWN_ATTEMPT}
                THEN concat_ws('|', a.worker, extract(epoch FROM a.started_at), a.duration) END
    FROM cases c {_headline(graded) if reopened else _standing(graded)}
    LEFT JOIN {_attempts(graded)} a
    ON a.run_key = c.run_key AND a.attempt = coalesce(
        s.attempt, CASE WHEN s.from_attempt < {FIRST_OWN_ATTEMPT} THEN s.from_attempt END
    )
    WHERE c.run_key = %(run_key)s
      AND c.arm = (SELECT r.arm FROM arms r WHERE r.run_key = %(run_key)s AND r.name = %(arm)s)
    """.encode()


ATTEMPT = f"""
a.attempt, a.ordinal, a.number, a.outcome::text, a.settles, a.worker, extract(epoch FROM a.started_at)::float8,
a.duration, a.verdict::text, a.kind::text, a.code, a.message, a.reply, a.sanitised, a.estimated_usd, {USAGE}
"""

#: What a grading says of an attempt beside its columns, and the attempt's own record.
_RECORD_OF = {False: "NULL, NULL, NULL::bytea, a.record", True: "a.basis::text, a.reason, a.judged_record, a.record"}


@cache
def attempts(graded: bool) -> bytes:
    return f"""
    SELECT {ATTEMPT} FROM {_attempts(graded, few=True)} a
    WHERE a.run_key = %(run_key)s AND a.ordinal = %(ordinal)s ORDER BY a.number
    """.encode()


@cache
def one_attempt(graded: bool) -> bytes:
    return f"""
    SELECT {ATTEMPT}, {_RECORD_OF[graded]} FROM {_attempts(graded, few=True)} a
    WHERE a.run_key = %(run_key)s AND a.attempt = %(attempt)s
    """.encode()


RECORD = "SELECT record FROM attempts WHERE run_key = %s AND attempt = %s"

PAGES = """
SELECT first, last, body FROM event_pages
WHERE run_key = %(run_key)s AND attempt = %(attempt)s AND last >= %(first)s AND first <= %(last)s ORDER BY page
"""


def _records(attempts: str, graded: bool) -> bytes:
    """As many of these attempts as stand in `limit` bytes and the next, by `place`, each with its record and pages."""
    return f"""
    SELECT {ATTEMPT}, {_RECORD_OF[graded]}, CASE WHEN a.paged > 0 THEN ARRAY(
               SELECT p.body FROM event_pages p WHERE p.run_key = a.run_key AND p.attempt = a.attempt ORDER BY p.page
           ) END
    FROM (
        SELECT a.*, p.paged,
               sum(p.paged + coalesce(octet_length(a.record), 0)) OVER (
                   ORDER BY a.place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
               ) AS before
        FROM ({attempts}) a
        CROSS JOIN LATERAL (
            SELECT coalesce(sum(octet_length(p.body)), 0) AS paged FROM event_pages p
            WHERE p.run_key = a.run_key AND p.attempt = a.attempt
        ) p
    ) a
    WHERE coalesce(before, 0) < %(limit)s
    ORDER BY place
    """.encode()


@cache
def records_of_cases(graded: bool) -> bytes:
    """By case: the attempt that settles it, else its last."""
    return _records(
        f"""
        SELECT DISTINCT ON (ordinal) ordinal AS place, a.*
        FROM {_attempts(graded, few=True)} a WHERE run_key = %(run_key)s AND ordinal = ANY(%(ordinals)s::integer[])
        ORDER BY ordinal, settles DESC, number DESC
        """,
        graded,
    )


@cache
def records_by_number(graded: bool) -> bytes:
    """By number, whosever they are, each by a grading of its own; NULL for one that is not there."""
    table = _attempts(graded, few=True).replace("%(grading)s", "w.grading")
    return _records(
        f"""
        SELECT w.place, a.*
        FROM unnest(%(run_keys)s::integer[], %(attempts)s::bigint[], %(gradings)s::smallint[]) WITH ORDINALITY
             AS w (run_key, attempt, grading, place)
        {_looked_up(table, "a", "a.run_key = w.run_key AND a.attempt = w.attempt")}
        """,
        graded,
    )
