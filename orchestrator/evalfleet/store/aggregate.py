"""A run's cases counted by arm and by what became of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from evalfleet.errors import AGENT_OWN_KINDS
from evalfleet.model.report import ArmCounts, JudgeCounts
from evalfleet.model.verdict import Style
from evalfleet.store import read_sql
from evalfleet.store.connection import Connection

_OWN = frozenset(kind.value for kind in AGENT_OWN_KINDS)


@dataclass(slots=True)
class _Tally:
    """One arm while it is counted. `classes` are the exclusive classes of ArmCounts by name.

    `judge` says whether its calls were made by a later grading.
    """

    planned: int = 0
    classes: Counter[str] = field(default_factory=Counter[str])
    kinds: Counter[str] = field(default_factory=Counter[str])
    carried: int = 0
    retried: int = 0
    attempts: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    unknown_usage: int = 0
    contradicted: int = 0
    cost_usd: float = 0.0
    unknown_cost: int = 0
    earned_sum: float = 0.0
    score_complete: int = 0
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    by_eval: dict[tuple[int, int, int], int] = field(default_factory=dict[tuple[int, int, int], int])
    judge: dict[bool, JudgeCounts] = field(default_factory=dict[bool, JudgeCounts])

    def score(self, state: str | None, earned: float | None, sign: int = 1, times: int = 1) -> None:
        if state == "complete":
            self.earned_sum += sign * (earned or 0.0)
            self.score_complete += sign * times


async def arm_counts(connection: Connection, run_key: int, grading: int = 0) -> tuple[ArmCounts, ...]:
    """The counts of every arm in experiment order by what a grading says, read in one snapshot."""
    given = {"run_key": run_key, "grading": grading}
    tallies: defaultdict[int, _Tally] = defaultdict(_Tally)
    async with connection.transaction():
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        arms = await _rows(connection, read_sql.ARMS.encode(), (run_key,))
        for arm, _, _, cases, _ in arms:
            tallies[arm].planned = cases
        await _count_attempts(connection, tallies, given)
        for arm, how, verdict, kind, state, cases, earned in await _rows(
            connection, read_sql.WITHOUT_ATTEMPT.encode(), given
        ):
            tallies[arm].classes[_class(how, verdict, kind)] += cases
            tallies[arm].carried += cases if how == "carried" else 0
            tallies[arm].score(state, earned, times=cases)
        reopened = await _flag(connection, read_sql.REOPENED, run_key)
        if await _flag(connection, read_sql.ASKED_JUDGES, run_key):
            for arm, again, *counts in await _rows(connection, read_sql.JUDGE_CALLS.encode(), given):
                tallies[arm].judge[again] = _judge_counts(counts)
        if reopened:
            await _keep_first_verdicts(connection, tallies, given)
        if any(repeated for *_, repeated in arms):
            await _group_evals(connection, tallies, given, reopened)
        else:
            _each_its_own_eval(tallies)
    return tuple(_counts(name, Style(style or Style.PASS), tallies[arm]) for arm, name, style, _, _ in arms)


async def _count_attempts(connection: Connection, tallies: dict[int, _Tally], given: dict[str, int]) -> None:
    cancelled = False
    for row in await _rows(connection, read_sql.classes(given["grading"] > 0), given):
        arm, settles, outcome, verdict, kind, state, attempts = row[:7]
        tokens_in, tokens_out, unknown_usage, contradicted, cost, unknown_cost, earned, percentiles = row[7:]
        tally = tallies[arm]
        if percentiles is not None:
            tally.seconds = dict(zip(("p50", "p95", "max"), percentiles, strict=True))
        tally.attempts += attempts
        tally.input_tokens += int(tokens_in)
        tally.output_tokens += int(tokens_out)
        tally.unknown_usage += unknown_usage
        tally.contradicted += contradicted
        tally.cost_usd += cost
        tally.unknown_cost += unknown_cost
        if kind is not None:
            tally.kinds[kind] += attempts
        if settles:
            tally.classes[_class("attempt", verdict, kind)] += attempts
            tally.score(state, earned, times=attempts)
        cancelled = cancelled or outcome == "cancelled"
    if cancelled:
        for arm, cases in await _rows(connection, read_sql.CANCELLED.encode(), given):
            tallies[arm].classes["cancelled"] += cases


async def _keep_first_verdicts(connection: Connection, tallies: dict[int, _Tally], given: dict[str, int]) -> None:
    """Count a case that was reopened after a failure as failed, whatever came of it since."""
    for row in await _rows(connection, read_sql.retried(given["grading"] > 0), given):
        arm, how, verdict, kind, state, earned, first_state, first_earned, settled, last = row
        tally = tallies[arm]
        if settled:
            tally.classes[_class(how, verdict, kind)] -= 1
            tally.score(state, earned, sign=-1)
        elif last == "cancelled":
            tally.classes["cancelled"] -= 1
        tally.classes["failed"] += 1
        tally.score(first_state, first_earned)
        tally.retried += 1


async def _group_evals(
    connection: Connection, tallies: dict[int, _Tally], given: dict[str, int], reopened: bool
) -> None:
    for arm, *key, evals in await _rows(connection, read_sql.by_eval(reopened, given["grading"] > 0), given):
        tallies[arm].by_eval[key[0], key[1], key[2]] = evals


def _each_its_own_eval(tallies: dict[int, _Tally]) -> None:
    """Without repetitions and variants no pass over the cases is needed."""
    for tally in tallies.values():
        classes = tally.classes
        uncounted = classes["skipped"] + classes["not_needed"]
        answered = classes["passed"] + classes["failed"] + classes["errored_own"]
        grouped = {
            (1, 1, 1): classes["passed"],
            (1, 1, 0): answered - classes["passed"],
            (1, 0, 0): tally.planned - uncounted - answered,
            (0, 0, 0): uncounted,
        }
        tally.by_eval = {key: evals for key, evals in grouped.items() if evals}


def _class(how: str, verdict: str | None, kind: str | None) -> str:
    """The exclusive class of a settled case. An attempt without a verdict settles only a case that was given up."""
    if how not in ("attempt", "carried"):
        return how
    if verdict not in ("errored", None):
        return verdict
    return "errored_own" if kind in _OWN else "errored_other"


def _counts(name: str, style: Style, tally: _Tally) -> ArmCounts:
    classes = {name: count for name, count in tally.classes.items() if count}
    return ArmCounts(
        arm=name,
        style=style,
        planned=tally.planned,
        pending=tally.planned - sum(classes.values()),
        carried=tally.carried,
        retried_verdict=tally.retried,
        by_eval=tally.by_eval,
        attempts=tally.attempts,
        failures_by_kind=dict(tally.kinds),
        input_tokens=tally.input_tokens,
        output_tokens=tally.output_tokens,
        unknown_usage=tally.unknown_usage,
        contradicted=tally.contradicted,
        cost_usd=tally.cost_usd,
        unknown_cost=tally.unknown_cost,
        earned_sum=tally.earned_sum,
        score_complete=tally.score_complete,
        seconds=tally.seconds,
        judge=tally.judge.get(False),
        judge_again=tally.judge.get(True),
        **classes,
    )


def _judge_counts(columns: Sequence[Any]) -> JudgeCounts:
    calls, cached, failed, tokens_in, tokens_out, unknown_usage, cost, unknown_cost = columns
    return JudgeCounts(
        calls=calls,
        cached=cached,
        failed=failed,
        input_tokens=tokens_in,
        output_tokens=tokens_out,
        unknown_usage=unknown_usage,
        cost_usd=cost,
        unknown_cost=unknown_cost,
    )


async def _rows(connection: Connection, statement: bytes, given: Any) -> Sequence[tuple[Any, ...]]:
    return await (await connection.execute(statement, given)).fetchall()


async def _flag(connection: Connection, statement: str, run_key: int) -> bool:
    rows = await _rows(connection, statement.encode(), (run_key,))
    return bool(rows[0][0])
