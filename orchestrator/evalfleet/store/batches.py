"""One write transaction of a coordinator, from a batch of values to what it did."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evalfleet.errors import Fenced
from evalfleet.model.record import (
    AttemptWrite,
    Charge,
    CommitBatch,
    Committed,
    Intent,
    LostAttempt,
    Recording,
    SettleWithout,
)
from evalfleet.store import spending_sql, write_sql
from evalfleet.store.binary import HEADER, TRAILER
from evalfleet.store.connection import Connection
from evalfleet.store.rows import finished


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """What a commit must find in the store: the run under our epoch, after our last commit."""

    run_key: int
    epoch: int
    commit_seq: int


async def apply(
    connection: Connection, fence: Fence, batch: CommitBatch, failpoint: Callable[[str], None]
) -> Committed:
    """Write the batch in one transaction. Raises Fenced when the epoch is no longer ours.

    Counters, settlements and the result come from rows that were new, so that a repeated batch does nothing.
    """
    inserted: set[int] = set()
    settled: set[int] = set()
    settled_cases: set[int] = set()
    async with connection.transaction():
        row = await (await connection.execute(write_sql.FENCE, (fence.run_key, fence.epoch))).fetchone()
        if row is None:
            raise Fenced
        place = {"run_key": fence.run_key, "epoch": fence.epoch, "commit_seq": row[0]}
        failpoint("before_copy")
        if batch.lost:
            inserted |= await _numbers(connection, write_sql.WRITE_LOST, place | _lost(batch.lost))
        if batch.attempts:
            for attempt, settles in await _write_attempts(connection, batch.attempts, place):
                inserted.add(attempt)
                if settles:
                    settled.add(attempt)
        if batch.settled:
            settled_cases = await _numbers(connection, write_sql.WRITE_SETTLED, place | _settled(batch.settled))
        if batch.intents:
            await connection.execute(spending_sql.OPEN_INTENT, place | _intents(batch.intents))
        await _close_intents(connection, fence.run_key, batch)
        if batch.recordings:
            await connection.execute(write_sql.RECORD, place | _recordings(batch.recordings))
        if batch.spent_recordings:
            given = (fence.run_key, [*batch.spent_recordings])
            await connection.execute(write_sql.FORGET_RECORDINGS, given)
        failpoint("after_copy")
    return Committed(row[0], fence.epoch, frozenset(inserted), frozenset(settled), frozenset(settled_cases))


async def _close_intents(connection: Connection, run_key: int, batch: CommitBatch) -> None:
    """The loss of an attempt comes before what a late seal of it says."""
    if batch.lost:
        lost = [lost.attempt for lost in batch.lost]
        await connection.execute(spending_sql.CLOSE_LOST, (run_key, lost))
    if batch.charges:
        await connection.execute(spending_sql.CLOSE_CHARGED, {"run_key": run_key, **_charges(batch.charges)})
    if batch.closed_intents:
        await connection.execute(spending_sql.CLOSE_INTENT, (run_key, [*batch.closed_intents]))


async def rehearse(connection: Connection) -> None:
    """Have the statements of a commit planned, on no rows, so that the first commit does not wait for it."""
    nowhere = {"run_key": -1, "epoch": -1, "commit_seq": -1}
    async with connection.transaction(), connection.cursor(binary=True) as cursor:
        await cursor.execute(write_sql.FENCE, (nowhere["run_key"], nowhere["epoch"]))
        for table in write_sql.STAGED:
            async with cursor.copy(write_sql.copy_into(table)) as copy:
                await copy.write(HEADER + TRAILER)
        await cursor.execute(write_sql.WRITE_ATTEMPTS, nowhere)


async def recall(connection: Connection, fence: Fence, batch: CommitBatch) -> Committed:
    """What the commit numbered `fence.commit_seq` did with this batch, when its reply never arrived."""
    given = [write.sealed.attempt for write in batch.attempts] + [lost.attempt for lost in batch.lost]
    place = {"run_key": fence.run_key, "commit_seq": fence.commit_seq}
    cursor = await connection.execute(write_sql.WRITTEN, place | {"attempts": given})
    rows = await cursor.fetchall()
    settled = await _numbers(connection, write_sql.SETTLED_WITHOUT, place | _settled(batch.settled))
    return Committed(
        fence.commit_seq,
        fence.epoch,
        frozenset(attempt for attempt, _ in rows),
        frozenset(attempt for attempt, settles in rows if settles),
        frozenset(settled),
    )


def halves(batch: CommitBatch) -> list[CommitBatch]:
    """Smaller batches that together are this one, empty when it can't be split: finds the row that is refused."""
    rest = replace(batch, attempts=())
    middle = len(batch.attempts) // 2
    parts = [CommitBatch(attempts=part) for part in (batch.attempts[:middle], batch.attempts[middle:]) if part]
    if rest != CommitBatch():
        return [*parts, rest] if parts else []
    return parts if len(parts) > 1 else []


def merged(parts: Sequence[Committed]) -> Committed:
    """What several commits did together."""
    return Committed(
        parts[-1].commit_seq,
        parts[-1].epoch,
        frozenset[int]().union(*(part.inserted for part in parts)),
        frozenset[int]().union(*(part.settled for part in parts)),
        frozenset[int]().union(*(part.settled_cases for part in parts)),
        frozenset[int]().union(*(part.rejected for part in parts)),
    )


async def _write_attempts(
    connection: Connection, writes: Sequence[AttemptWrite], place: dict[str, Any]
) -> list[tuple[Any, ...]]:
    rows = [write.sealed.rows for write in writes]
    staged = {
        "attempts": [finished(w.sealed.rows, w.settles, w.worker, excused=w.excused) for w in writes],
        "assertions": [row.assertions for row in rows],
        "tool_calls": [row.tool_calls for row in rows],
        "event_pages": [row.pages for row in rows],
        "judge_calls": [row.judge_calls for row in rows],
    }
    async with connection.cursor(binary=True) as cursor:
        for table, parts in staged.items():
            if any(parts):
                async with cursor.copy(write_sql.copy_into(table)) as copy:
                    await copy.write(b"".join((HEADER, *parts, TRAILER)))
        await cursor.execute(write_sql.WRITE_ATTEMPTS, place)
        return await cursor.fetchall()


async def _numbers(connection: Connection, statement: bytes, given: dict[str, Any]) -> set[int]:
    cursor = await connection.execute(statement, given, prepare=False)  # rare, and best planned for what is there
    return {row[0] for row in await cursor.fetchall()}


def _lost(lost: Iterable[LostAttempt]) -> dict[str, Any]:
    return _columns(
        {
            "attempts": lambda one: one.attempt,
            "ordinals": lambda one: one.case,
            "workers": lambda one: one.worker,
            "kinds": lambda one: one.kind.value,
            "codes": lambda one: one.code,
            "started": lambda one: one.started_at,
            "blamed": lambda one: one.blamed,
            "complete": lambda one: one.pages_complete,
        },
        lost,
    )


def _settled(settled: Iterable[SettleWithout]) -> dict[str, Any]:
    return _columns(
        {
            "ordinals": lambda one: one.case,
            "hows": lambda one: one.how.value,
            "verdicts": lambda one: None if one.verdict is None else one.verdict.value,
            "kinds": lambda one: None if one.kind is None else one.kind.value,
            "codes": lambda one: one.code,
            "attempts": lambda one: one.attempt,
        },
        settled,
    )


def _intents(intents: Iterable[Intent]) -> dict[str, Any]:
    return _columns(
        {
            "attempts": lambda one: one.attempt,
            "ordinals": lambda one: one.case,
            "kinds": lambda one: one.kind.value,
            "workers": lambda one: one.worker,
            "nanos": lambda one: one.reserved.nanos,
            "tokens": lambda one: one.reserved.tokens,
        },
        intents,
    )


def _charges(charges: Iterable[Charge]) -> dict[str, Any]:
    return _columns(
        {
            "attempts": lambda one: one.attempt,
            "spent_nanos": lambda one: one.spending.spent.nanos,
            "spent_tokens": lambda one: one.spending.spent.tokens,
            "possible_nanos": lambda one: one.spending.possible.nanos,
            "possible_tokens": lambda one: one.spending.possible.tokens,
        },
        charges,
    )


def _recordings(recordings: Iterable[Recording]) -> dict[str, Any]:
    return _columns(
        {
            "attempts": lambda one: one.attempt,
            "ordinals": lambda one: one.case,
            "bodies": lambda one: one.body,
            "turns": lambda one: one.turns,
        },
        recordings,
    )


def _columns(of: dict[str, Callable[[Any], Any]], values: Iterable[Any]) -> dict[str, Any]:
    """Values as one list per column, which `unnest` turns into rows."""
    kept = list(values)
    return {name: [read(value) for value in kept] for name, read in of.items()}
