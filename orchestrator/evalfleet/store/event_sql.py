"""The statements that run events are read by. PURE text.

`%(first)s` and `%(last)s` are the first and the last commit of a page.
"""

from __future__ import annotations

from evalfleet.store.copying import FIRST_OWN_ATTEMPT

# a page is looked up row by row, whatever the statistics say of a run that was just written
PLANS = """
SET jit = off; SET max_parallel_workers_per_gather = 0; SET enable_seqscan = off; SET enable_hashjoin = off;
SET enable_mergejoin = off; SET enable_material = off
"""

HEAD = b"SELECT run_key, commit_seq, marks FROM runs WHERE id = %s AND deleted_at IS NULL"

#: The commit that ends a page.
BOUND = b"""
SELECT commit_seq FROM attempts
WHERE run_key = %(run_key)s AND commit_seq BETWEEN %(first)s AND %(last)s
ORDER BY commit_seq OFFSET %(page)s LIMIT 1
"""

MARKS = b"""
SELECT commit_seq, mark, type::text, extract(epoch FROM at)::float8, status::text
FROM run_marks WHERE run_key = %(run_key)s AND commit_seq BETWEEN %(first)s AND %(last)s
"""

_CASE = "c.ordinal, c.eval_id, m.name, c.repetition"
_NAMED = """
JOIN cases c ON c.run_key = {t}.run_key AND c.ordinal = {t}.ordinal
JOIN arms m ON m.run_key = c.run_key AND m.arm = c.arm
"""

# Those of the case of the attempt `a`: one that counts, and reopened ones, each by an index of its own.
_SETTLEMENTS = """
SELECT * FROM settlements WHERE run_key = a.run_key AND ordinal = a.ordinal AND superseded_at IS NULL
UNION ALL
SELECT * FROM settlements WHERE run_key = a.run_key AND ordinal = a.ordinal AND superseded_at IS NOT NULL
"""

# A settlement that its attempt brought along has no commit of its own. An attempt is late when a settlement stood
# before it: one that was made earlier, and not reopened until then.
ATTEMPTS = f"""
SELECT a.commit_seq, a.attempt, a.number, a.outcome::text, a.turns, extract(epoch FROM a.started_at)::float8,
       a.duration, s.ordinal IS NULL AND EXISTS (
           SELECT FROM ({_SETTLEMENTS}) d
           LEFT JOIN attempts b ON b.run_key = d.run_key AND b.attempt = d.attempt
           LEFT JOIN reopenings r ON r.run_key = d.run_key AND r.reopening = d.reopening
           WHERE (coalesce(d.commit_seq, b.commit_seq) < a.commit_seq
                  OR d.commit_seq IS NULL AND b.commit_seq = a.commit_seq AND d.attempt < a.attempt)
             AND (d.reopening IS NULL OR r.commit_seq >= a.commit_seq)
       ),
       s.ordinal IS NOT NULL, s.verdict::text, s.kind::text, s.code, {_CASE}
FROM attempts a
LEFT JOIN LATERAL (
    SELECT * FROM ({_SETTLEMENTS}) d WHERE d.attempt = a.attempt AND d.commit_seq IS NULL
) s ON true
{_NAMED.format(t="a")}
WHERE a.run_key = %(run_key)s AND a.commit_seq BETWEEN %(first)s AND %(last)s AND a.attempt >= {FIRST_OWN_ATTEMPT}
""".encode()

APART = f"""
SELECT s.commit_seq, a.number, coalesce(s.verdict::text, s.how::text), s.kind::text, s.code, {_CASE}
FROM settlements s
LEFT JOIN attempts a ON a.run_key = s.run_key AND a.attempt = s.attempt
{_NAMED.format(t="s")}
WHERE s.run_key = %(run_key)s AND s.commit_seq BETWEEN %(first)s AND %(last)s
""".encode()
