"""Reads a run back from the record store: what was claimed to be done has to stand there, exactly."""

from __future__ import annotations

import random
from dataclasses import dataclass

import psycopg

from bench.products import row_text
from evalfleet.model.assertion import Result
from evalfleet.model.events import Message, Role
from evalfleet.model.report import AttemptDetail
from evalfleet.model.turn import TurnStatus
from evalfleet.model.verdict import Verdict
from evalfleet.store.reader import Reader

SAMPLE = 100

_COUNTS = """
SELECT count(*), coalesce(sum(turns), 0), coalesce(sum(events), 0), coalesce(sum(a.assertions), 0),
       count(*) FILTER (WHERE settles AND verdict = 'passed'),
       (SELECT count(*) FROM assertions s WHERE s.run_key = r.run_key AND s.holds),
       count(DISTINCT ordinal) FILTER (WHERE settles)
FROM runs r LEFT JOIN attempts a ON a.run_key = r.run_key WHERE r.id = %s GROUP BY r.run_key
"""

_ATTEMPTS = """
SELECT a.attempt, c.eval_id FROM runs r JOIN attempts a USING (run_key) JOIN cases c USING (run_key, ordinal)
WHERE r.id = %s AND settles AND ordinal = ANY(%s)
"""


class NotInStore(AssertionError):
    """The store does not hold what the run did."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What stands in the store for a run. `passed` and `settled` count cases, `rows` assertion rows that hold."""

    attempts: int
    turns: int
    events: int
    assertions: int
    passed: int
    rows: int
    settled: int


def counts(url: str, run: str) -> Counts:
    with psycopg.connect(url) as connection:
        row = connection.execute(_COUNTS, (run,)).fetchone()
    if row is None:
        raise NotInStore(f"there is no run {run}")
    return Counts(*map(int, row))


async def check_run(url: str, run: str, n: int, *, exact: bool = True) -> Counts:
    """The run's counts, once n cases are settled and passed, and a random sample decodes to what the agent did.

    With `exact` each case has one attempt. Raises NotInStore.
    """
    found = counts(url, run)
    least = Counts(n, n, 2 * n, n, n, n, n)
    for name in Counts.__slots__:
        has, must = getattr(found, name), getattr(least, name)
        if has < must or (exact and has != must and name != "events"):
            raise NotInStore(f"run {run} holds {has} {name}, not {must}")
    with psycopg.connect(url) as connection:
        chosen = random.sample(range(n), min(SAMPLE, n))
        attempts = connection.execute(_ATTEMPTS, (run, chosen)).fetchall()
    if len(attempts) != len(chosen):
        raise NotInStore(f"run {run} holds {len(attempts)} of {len(chosen)} sampled cases")
    reader = Reader(url)
    try:
        for attempt, eval_id in attempts:
            _same(await reader.attempt_detail(run, attempt), row_text(int(eval_id.rpartition("/")[2])))
    finally:
        await reader.close()
    return found


def _same(detail: AttemptDetail, text: str) -> None:
    """Exactly one turn with the row's text and its echo, and one assertion that saw both."""
    (turn,) = detail.turns
    (row,) = detail.assertions
    wrong = [
        name
        for name, right in {
            "verdict": detail.view.verdict is Verdict.PASSED,
            "input": turn.input.text == text,
            "status": turn.status is TurnStatus.COMPLETED,
            "events": turn.events == (Message(Role.USER, text), Message(Role.ASSISTANT, text)),
            "assertion": row.name in ("check", "suite") and (row.outcome.result, row.holds) == (Result.MATCHED, True),
            "criterion": text in str(row.criterion),
            "actual": row.outcome.actual == text,
        }.items()
        if not right
    ]
    if wrong:
        raise NotInStore(f"attempt {detail.view.attempt} decodes with another {' and '.join(wrong)} than it had")
