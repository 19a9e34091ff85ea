"""The statements about what attempts may spend and have spent. PURE text.

Intents hold it: `reserved` while they are open, `spent` and `possible` once they are closed.
"""

from __future__ import annotations

from evalfleet.store.copying import FIRST_OWN_ATTEMPT

#: A later intent of an attempt raises what is reserved; one that is closed stays as it is.
OPEN_INTENT = b"""
INSERT INTO intents AS i (attempt, epoch, run_key, ordinal, kind, worker, reserved_nanos, reserved_tokens)
SELECT attempt, %(epoch)s, %(run_key)s, ordinal, kind, worker, nanos, tokens
FROM unnest(%(attempts)s::bigint[], %(ordinals)s::integer[], %(kinds)s::intent_kind[], %(workers)s::text[],
            %(nanos)s::bigint[], %(tokens)s::bigint[])
     AS g (attempt, ordinal, kind, worker, nanos, tokens)
ON CONFLICT (run_key, attempt) DO UPDATE
SET reserved_nanos = greatest(i.reserved_nanos, excluded.reserved_nanos),
    reserved_tokens = greatest(i.reserved_tokens, excluded.reserved_tokens)
WHERE i.closed_at IS NULL
"""

#: A lost attempt may have spent all that it had.
CLOSE_LOST = b"""
UPDATE intents
SET closed_at = clock_timestamp(), spent_nanos = 0, spent_tokens = 0,
    possible_nanos = reserved_nanos, possible_tokens = reserved_tokens
WHERE run_key = %s AND attempt = ANY(%s::bigint[]) AND closed_at IS NULL
"""

CLOSE_CHARGED = b"""
UPDATE intents i
SET closed_at = clock_timestamp(), spent_nanos = g.spent_nanos, spent_tokens = g.spent_tokens,
    possible_nanos = g.possible_nanos, possible_tokens = g.possible_tokens
FROM unnest(%(attempts)s::bigint[], %(spent_nanos)s::bigint[], %(spent_tokens)s::bigint[],
            %(possible_nanos)s::bigint[], %(possible_tokens)s::bigint[])
     AS g (attempt, spent_nanos, spent_tokens, possible_nanos, possible_tokens)
WHERE i.run_key = %(run_key)s AND i.attempt = g.attempt AND i.closed_at IS NULL
"""

CLOSE_INTENT = b"""
UPDATE intents SET closed_at = clock_timestamp()
WHERE run_key = %s AND attempt = ANY(%s::bigint[]) AND closed_at IS NULL
"""

# attempts from before the run had a hard budget have no figures in their intent: those of their rows count
SPENDING = f"""
SELECT n.name, coalesce(sum(spent_nanos), 0)::bigint, coalesce(sum(spent_tokens), 0)::bigint,
       coalesce(sum(possible_nanos), 0)::bigint, coalesce(sum(possible_tokens), 0)::bigint,
       coalesce(sum(reserved_nanos), 0)::bigint, coalesce(sum(reserved_tokens), 0)::bigint
FROM (
    SELECT c.arm, i.spent_nanos, i.spent_tokens, i.possible_nanos, i.possible_tokens,
           CASE WHEN i.closed_at IS NULL THEN i.reserved_nanos END AS reserved_nanos,
           CASE WHEN i.closed_at IS NULL THEN i.reserved_tokens END AS reserved_tokens
    FROM intents i JOIN cases c ON c.run_key = i.run_key AND c.ordinal = i.ordinal
    WHERE i.run_key = %(run_key)s AND (i.closed_at IS NULL OR i.spent_nanos IS NOT NULL)
    UNION ALL
    SELECT a.arm,
           ceil((coalesce(a.cost_usd, a.estimated_usd, 0) + coalesce((
               SELECT sum(j.cost_usd) FROM judge_calls j WHERE j.run_key = a.run_key AND j.attempt = a.attempt
           ), 0)) * 1e9)::bigint,
           coalesce(a.input_tokens::bigint + a.output_tokens, 0), 0, 0, 0, 0
    FROM attempts a
    WHERE a.run_key = %(run_key)s AND a.attempt >= {FIRST_OWN_ATTEMPT} AND NOT EXISTS (
        SELECT FROM intents i
        WHERE i.run_key = a.run_key AND i.attempt = a.attempt AND (i.closed_at IS NULL OR i.spent_nanos IS NOT NULL)
    )
) s JOIN arms n ON n.run_key = %(run_key)s AND n.arm = s.arm
GROUP BY n.name
""".encode()
