"""What the record store says of a drilled run."""

from __future__ import annotations

from dataclasses import dataclass

from evalfleet.model.ids import COUNTER_BITS
from evalfleet.store.connection import connect

_SETTLED = """
SELECT r.status::text, r.total, r.epoch, r.attempts,
       (SELECT count(*) FROM settlements s WHERE s.run_key = r.run_key AND s.superseded_at IS NULL),
       (SELECT count(DISTINCT ordinal) FROM settlements s WHERE s.run_key = r.run_key AND s.superseded_at IS NULL),
       (SELECT count(*) FROM settlements s WHERE s.run_key = r.run_key AND s.verdict = 'passed'),
       (SELECT count(*) FROM attempts a WHERE a.run_key = r.run_key),
       (SELECT count(*) FROM attempts a WHERE a.run_key = r.run_key AND a.settles),
       (SELECT count(DISTINCT ordinal) FROM attempts a WHERE a.run_key = r.run_key AND a.settles),
       (SELECT coalesce(sum(b.unsettled), 0)::bigint FROM case_blocks b WHERE b.run_key = r.run_key),
       (SELECT count(*) FROM intents i WHERE i.run_key = r.run_key AND i.closed_at IS NULL)
FROM runs r WHERE r.id = %s
"""

_FIRST_BEYOND = """
SELECT extract(epoch FROM min(a.started_at))::float8 FROM attempts a JOIN runs r USING (run_key)
WHERE r.id = %s AND a.attempt >> %s > %s
"""

_INTERRUPTED = """
SELECT a.code, count(*) FROM attempts a JOIN runs r USING (run_key)
WHERE r.id = %s AND a.outcome = 'interrupted' GROUP BY 1 ORDER BY 1
"""


@dataclass(frozen=True, slots=True)
class Figures:
    """Counts of one run. `counted` and `unsettled` are the store's own counters, to be held against the rows;
    `interrupted` counts attempts that ended without a seal by why.
    """

    status: str
    total: int
    epoch: int
    counted: int
    settlements: int
    settled: int
    passed: int
    attempts: int
    settling: int
    cases_with_a_settling_attempt: int
    unsettled: int
    open_intents: int
    interrupted: dict[str, int]

    @property
    def lost(self) -> int:
        """Cases that are settled by no attempt."""
        return self.total - self.settled

    @property
    def doubled(self) -> int:
        """Settlements and settling attempts beyond one a case."""
        return (self.settlements - self.settled) + (self.settling - self.cases_with_a_settling_attempt)

    def problems(self) -> list[str]:
        """What is wrong with a run all of whose cases must have passed once."""
        expected = {
            "status": (self.status, "completed"),
            "settlements": (self.settlements, self.total),
            "settled cases": (self.settled, self.total),
            "passed": (self.passed, self.total),
            "settling attempts": (self.settling, self.total),
            "cases with a settling attempt": (self.cases_with_a_settling_attempt, self.total),
            "attempts counted": (self.counted, self.attempts),
            "unsettled cases counted": (self.unsettled, 0),
            "open intents": (self.open_intents, 0),
        }
        return [f"{name}: {found} instead of {due}" for name, (found, due) in expected.items() if found != due]


async def read_figures(url: str, run: str) -> Figures:
    """The counts of one run."""
    async with await connect(url) as connection:
        row = await (await connection.execute(_SETTLED, (run,))).fetchone()
        interrupted = await (await connection.execute(_INTERRUPTED, (run,))).fetchall()
    assert row is not None, f"the store knows no run {run}"
    return Figures(*row, dict(interrupted))


async def first_start_beyond(url: str, run: str, epoch: int) -> float | None:
    """When the first attempt began that was granted under a later epoch, in seconds since the epoch of Unix."""
    async with await connect(url) as connection:
        row = await (await connection.execute(_FIRST_BEYOND, (run, COUNTER_BITS, epoch))).fetchone()
    return None if row is None else row[0]
