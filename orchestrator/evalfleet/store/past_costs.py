"""What attempts of an arm have cost so far, for the estimate of a plan."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from evalfleet.store.connection import Connection

#: Attempts that a mean is taken over: more would make it no better and the question slow.
_SAMPLE = 10_000
#: Runs that are looked through, newest first, for one that knows the arm's cost.
_RUNS = 50

_MEAN = f"""
SELECT r.id, m.mean, m.attempts
FROM (
    SELECT r.run_key, r.id, a.arm
    FROM runs r JOIN arms a ON a.run_key = r.run_key
    WHERE r.project = %(project)s AND r.kind = 'sweep' AND r.deleted_at IS NULL
      AND a.name = %(arm)s AND (a.settings::json ->> 'model') IS NOT DISTINCT FROM %(model)s
    ORDER BY r.run_key DESC LIMIT {_RUNS}
) r
CROSS JOIN LATERAL (
    SELECT avg(t.usd) AS mean, count(t.usd) AS attempts
    FROM (
        SELECT coalesce(cost_usd, estimated_usd) AS usd FROM attempts
        WHERE run_key = r.run_key AND arm = r.arm AND settles LIMIT {_SAMPLE}
    ) t
) m
WHERE m.attempts > 0
ORDER BY r.run_key DESC LIMIT 1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastCost:
    """The mean US dollars of one settled attempt of an arm, over so many of them in a run."""

    run: str
    mean: float
    attempts: int


async def past_costs(
    connection: Connection, project: str, arms: Iterable[tuple[str, str | None]]
) -> dict[str, PastCost]:
    """The mean cost by arm, from the latest run that knows it, for arms given by name and model."""
    found: dict[str, PastCost] = {}
    for arm, model in arms:
        given = {"project": project, "arm": arm, "model": model}
        row = await (await connection.execute(_MEAN.encode(), given)).fetchone()
        if row is not None:
            found[arm] = PastCost(run=row[0], mean=float(row[1]), attempts=int(row[2]))
    return found
