"""What cases of an arm have cost so far, for the estimate of a plan."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from evalfleet.store.connection import Connection

#: Attempts that a mean is taken over: more would make it no better and the question slow.
_SAMPLE = 10_000
#: Runs that are looked through, newest first, for one that knows the arm's cost.
_RUNS = 50

# a case costs what all of its attempts did; one with an attempt of unknown cost is no case of a known one
_OF_CASES = f"""
SELECT r.id, m.mean, m.deviation, m.cases, m.judge
FROM (
    SELECT r.run_key, r.id, a.arm
    FROM runs r JOIN arms a ON a.run_key = r.run_key
    WHERE r.project = %(project)s AND r.kind = 'sweep' AND r.deleted_at IS NULL
      AND a.name = %(arm)s AND (a.settings::json ->> 'model') IS NOT DISTINCT FROM %(model)s
    ORDER BY r.run_key DESC LIMIT {_RUNS}
) r
CROSS JOIN LATERAL (
    SELECT avg(c.usd) AS mean, stddev_samp(c.usd) AS deviation, count(*) AS cases, avg(c.judge) AS judge
    FROM (
        SELECT sum(t.usd) AS usd, sum(t.judge) AS judge
        FROM (
            SELECT a.ordinal, a.settles, coalesce(a.cost_usd, a.estimated_usd) AS usd, coalesce((
                SELECT sum(j.cost_usd) FROM judge_calls j
                WHERE j.run_key = a.run_key AND j.attempt = a.attempt AND j.grading = 0 AND NOT j.cached
            ), 0) AS judge
            FROM attempts a WHERE a.run_key = r.run_key AND a.arm = r.arm AND a.attempt >= 0 LIMIT {_SAMPLE}
        ) t
        GROUP BY t.ordinal HAVING bool_or(t.settles) AND count(*) = count(t.usd)
    ) c
) m
WHERE m.cases > 0
ORDER BY r.run_key DESC LIMIT 1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastCost:
    """US dollars of one settled case of an arm, all its attempts together, over so many cases of a run.

    `deviation` is None of a single case. `judge_mean` is what judging a case cost, apart.
    """

    run: str
    mean: float
    deviation: float | None
    cases: int
    judge_mean: float = 0.0


async def past_costs(
    connection: Connection, project: str, arms: Iterable[tuple[str, str | None]]
) -> dict[str, PastCost]:
    """What cases cost by arm, from the latest run that knows it, for arms given by name and model."""
    found: dict[str, PastCost] = {}
    for arm, model in arms:
        given = {"project": project, "arm": arm, "model": model}
        row = await (await connection.execute(_OF_CASES.encode(), given)).fetchone()
        if row is not None:
            run, mean, deviation, cases, judge = row
            spread = None if deviation is None else float(deviation)
            found[arm] = PastCost(
                run=run, mean=float(mean), deviation=spread, cases=int(cases), judge_mean=float(judge)
            )
    return found
