"""Attempts and settlements as a later grading judged them, written to stand where their tables do. PURE text.

What a grading did not judge, since it came after it, stays as it was sealed. Grading 0 is the tables themselves: who
reads it pays nothing for the others.
"""

from __future__ import annotations

#: What a judgement says, in the columns that an attempt has for it, too.
JUDGED = ("verdict", "kind", "code", "message", "score_state", "earned", "skip_reason", "number_marks", "sanitised")

#: What judge calls `j` cost: the sum that is known, and the number of calls without a figure. Cached ones cost nothing.
KNOWN_COST = "coalesce(sum(j.cost_usd), 0)::float8"
UNKNOWN_COST = "count(*) FILTER (WHERE NOT j.cached AND j.cost_usd IS NULL)"

#: The verdict of a settlement `s` by the grading `%(grading)s`.
CURRENT_VERDICT = """
CASE WHEN %(grading)s = 0 THEN s.verdict ELSE coalesce((
    SELECT j.verdict FROM judgements j
    WHERE j.run_key = s.run_key AND j.grading = %(grading)s AND j.attempt = s.attempt
), s.verdict) END
"""

#: The judged columns of the two tables, and the others that the reader's statements use.
_OF_ATTEMPTS = ("verdict", "kind", "code", "message", "score_state", "earned")
_ATTEMPT_FACTS = (
    "attempt", "run_key", "ordinal", "number", "arm", "outcome", "settles", "worker", "started_at", "duration", "reply",
    "estimated_usd", "cost_usd", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens",
    "reasoning_tokens", "requests", "unknown_calls", "commit_seq", "record", "contradicted",
)  # fmt: skip
_OF_SETTLEMENTS = ("verdict", "kind", "code", "score_state", "earned")
_SETTLEMENT_FACTS = (
    "run_key", "ordinal", "attempt", "how", "from_run", "from_attempt", "from_grading", "superseded_at", "reopening",
)  # fmt: skip

_JOIN = "LEFT JOIN judgements j ON j.run_key = {t}.run_key AND j.grading = %(grading)s AND j.attempt = {t}.attempt"
#: LIMIT keeps the few rows of a page from becoming a join over the whole run.
_LOOKUP = """
LEFT JOIN LATERAL (
    SELECT * FROM judgements j
    WHERE j.run_key = {t}.run_key AND j.grading = %(grading)s AND j.attempt = {t}.attempt LIMIT 1
) j ON true
"""


def attempts(graded: bool, *, few: bool = False) -> str:
    """The table of attempts, by the grading `%(grading)s` when one is asked for; `few` when they are looked up.

    `basis`, `reason` and `judged_record` are only there for a grading.
    """
    if not graded:
        return "attempts"
    shown = """
    t.sanitised OR coalesce(j.sanitised, false) AS sanitised, j.basis, j.reason, (
        SELECT o.record FROM judgements o
        WHERE o.run_key = t.run_key AND o.grading = j.source AND o.attempt = t.attempt
    ) AS judged_record
    """
    return _judged("attempts", _ATTEMPT_FACTS, _OF_ATTEMPTS, (shown,), few=few)


def settlements(graded: bool, *, few: bool = False) -> str:
    """The table of settlements, by the grading `%(grading)s` when one is asked for; `few` when they are looked up."""
    return _judged("settlements", _SETTLEMENT_FACTS, _OF_SETTLEMENTS, (), few=few) if graded else "settlements"


def _judged(table: str, facts: tuple[str, ...], judged: tuple[str, ...], more: tuple[str, ...], *, few: bool) -> str:
    columns = [
        *(f"t.{name}" for name in facts),
        *(f"CASE WHEN j.attempt IS NULL THEN t.{name} ELSE j.{name} END AS {name}" for name in judged),
        *more,
    ]
    join = (_LOOKUP if few else _JOIN).format(t="t")
    return f"(SELECT {', '.join(columns)} FROM {table} t {join})"
