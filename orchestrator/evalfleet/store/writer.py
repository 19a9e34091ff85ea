"""The coordinator's side of the record store: claim, fenced commits, pages of pending cases, heartbeat."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from evalfleet.errors import ConfigurationError, FailureKind, Fenced, RunHeld, StoreError
from evalfleet.model.money import Money, Spending
from evalfleet.model.record import Claim, CommitBatch, Committed, EndedAttempt, IntentKind, OpenIntent, PendingCase
from evalfleet.ports import Holder
from evalfleet.store import write_sql
from evalfleet.store.batches import Fence, apply, halves, merged, recall, rehearse
from evalfleet.store.case_row import WIDTH, read_case
from evalfleet.store.connection import Connection
from evalfleet.store.lifeline import REFUSED, Lifeline
from evalfleet.store.replay import KEEP_BYTES, Kept
from evalfleet.store.spending import run_spending

#: Seconds for which a lost store is waited for before the coordinator gives up.
PATIENCE = 600.0
_OPEN_PATIENCE = 10.0
#: Bytes that commits may stage until the room is given back: small commits look through it, each.
_SWEEP_BYTES = 256 << 10


class PostgresRecorder:
    """The record store of one run, over one connection that is opened again when lost.

    `failpoint` is called with the places `before_copy`, `after_copy`, `after_commit` and `during_claim`. Batches of up
    to `replay_limit` bytes are kept, for a failover that loses them.
    """

    def __init__(
        self,
        url: str,
        run_id: str,
        failpoint: Callable[[str], None],
        *,
        patience: float = PATIENCE,
        replay_limit: int = KEEP_BYTES,
    ) -> None:
        self._run_id = run_id
        self._failpoint = failpoint
        self._lifeline = Lifeline(url, _prepare, patience)
        self._kept = Kept(replay_limit)
        self._holder = Holder(id="", host="", pid=0)
        self._fence = Fence(run_key=0, epoch=0, commit_seq=0)
        self._seen: Connection | None = None
        self._unswept = 0
        self._grading = 0
        self._arms: dict[int, str] = {}

    @property
    def epoch(self) -> int:
        """The epoch under which this recorder writes; a failover that lost commits raises it."""
        return self._fence.epoch

    async def open(self) -> None:
        """Connect. Raises StoreError when the store can't be reached within ten seconds."""
        await self._lifeline.run(_nothing, patience=_OPEN_PATIENCE)

    async def close(self) -> None:
        await self._lifeline.close()

    async def claim(self, holder: Holder, *, takeover: bool, steal: bool = False) -> Claim:
        """See `Recorder.claim`. Also raises ConfigurationError when there is no such run."""
        self._holder = holder

        async def work(connection: Connection) -> Claim:
            return await self._claim(connection, takeover, steal)

        return await self._lifeline.run(work)

    async def commit(self, batch: CommitBatch) -> Committed:
        """See `Recorder.commit`. Waits out a lost connection; a batch whose reply was lost is not written again.

        An attempt that Postgres refuses is returned in `rejected`, and the rest of its batch is written.
        """
        try:
            return await self._commit(batch)
        except REFUSED as error:
            parts = halves(batch)
            if parts:
                return merged([await self.commit(part) for part in parts])
            if len(batch.attempts) == 1:
                refused = frozenset({batch.attempts[0].sealed.attempt})
                return Committed(self._fence.commit_seq, self._fence.epoch, rejected=refused)
            raise StoreError(f"the record store refuses a batch: {error}") from error

    async def page(self, after: int, limit: int) -> Sequence[PendingCase]:
        """See `Recorder.page`; `after` is -1 for the first page."""

        async def work(connection: Connection) -> Sequence[PendingCase]:
            cursor = connection.cursor(binary=True)
            given = {"run_key": self._fence.run_key, "after": after, "limit": limit}
            await cursor.execute(write_sql.PAGE, given, prepare=False)  # planned for the size of the moment
            return [_pending(row, self._arms) for row in await cursor.fetchall()]

        return await self._lifeline.run(work)

    async def spending(self) -> Mapping[str, Spending]:
        """See `Recorder.spending`."""

        async def work(connection: Connection) -> Mapping[str, Spending]:
            found = await run_spending(connection, self._fence.run_key)
            return {arm: one.spending for arm, one in found.items()}

        return await self._lifeline.run(work)

    async def solved(self, cycle: int) -> Sequence[int]:
        """See `Recorder.solved`."""

        async def work(connection: Connection) -> Sequence[int]:
            given = {"run_key": self._fence.run_key, "grading": self._grading, "cycle": cycle}
            cursor = await connection.execute(write_sql.SOLVED, given, prepare=False)
            return [place for (place,) in await cursor.fetchall()]

        return await self._lifeline.run(work)

    async def beat(self, progress: Mapping[str, Any]) -> bool:
        """See `Recorder.beat`; readers that listen are told."""
        body = json.dumps(dict(progress))

        async def work(connection: Connection) -> bool:
            fence = self._fence
            given = {"run_key": fence.run_key, "epoch": fence.epoch, "body": body, "run": self._run_id}
            return await (await connection.execute(write_sql.BEAT, given)).fetchone() is not None

        return await self._lifeline.run(work)

    async def cancel_requested(self) -> bool:
        """See `Recorder.cancel_requested`; a deleted run is a cancelled one."""

        async def work(connection: Connection) -> bool:
            row = await (await connection.execute(write_sql.CANCEL_REQUESTED, (self._fence.run_key,))).fetchone()
            return row is None or bool(row[0])

        return await self._lifeline.run(work)

    async def finish(self, status: str, reason: str | None) -> None:
        """See `Recorder.finish`."""

        async def work(connection: Connection) -> None:
            fence = self._fence
            given = {"run_key": fence.run_key, "epoch": fence.epoch, "status": status, "reason": reason}
            if await (await connection.execute(write_sql.FINISH, given)).fetchone() is None:
                raise Fenced

        await self._lifeline.run(work)

    # --- claim ------------------------------------------------------------------------------------------------

    async def _claim(self, connection: Connection, takeover: bool, steal: bool) -> Claim:
        me = self._holder
        given = {"run": self._run_id, "me": me.id, "host": me.host, "pid": me.pid}
        async with connection.transaction():
            cursor = await connection.execute(write_sql.CLAIM, {**given, "takeover": takeover, "steal": steal})
            row = await cursor.fetchone()
            if row is None:
                raise await _refusal(connection, self._run_id)
            self._failpoint("during_claim")
        run_key, epoch = row
        # settlements are counted in a transaction that began after the claim: no old commit can follow it
        async with connection.transaction():
            counted = await (await connection.execute(write_sql.CLAIMED, (run_key,))).fetchone()
            if counted is None:
                raise StoreError(f"run {self._run_id} vanished while it was claimed")
            commit_seq, grading, total, failures, spent, judge_usd, unknown_judge_cost, settled, age = counted
            place = {"run_key": run_key, "grading": grading}
            cursor = await connection.execute(write_sql.CLAIMED_TALLIES, place)
            tallies = {str(what): int(cases) for what, cases in await cursor.fetchall()}
            cursor = await connection.execute(write_sql.OPEN_INTENTS, (run_key, epoch))
            open_intents = await cursor.fetchall()
            cursor = await connection.execute("SELECT arm, name FROM arms WHERE run_key = %s", (run_key,))
            self._arms = {int(arm): str(name) for arm, name in await cursor.fetchall()}
            cursor = await connection.execute(write_sql.LAST_ATTEMPTS, (run_key,))
            recent = [
                EndedAttempt(self._arms[arm], None if kind is None else FailureKind(kind), code)
                for arm, kind, code in await cursor.fetchall()
            ]
        self._fence = Fence(run_key=run_key, epoch=epoch, commit_seq=commit_seq)
        self._grading = grading
        self._kept.clear()
        self._seen = connection
        return Claim(
            run_key=run_key,
            epoch=epoch,
            commit_seq=commit_seq,
            total=total,
            settled=settled,
            failures=failures,
            spent_usd=spent,
            judge_usd=judge_usd,
            unknown_judge_cost=unknown_judge_cost,
            open_intents=tuple(_open_intent(row, self._arms) for row in open_intents),
            tallies=tallies,
            recent=tuple(reversed(recent)),
            age=age,
        )

    # --- commit -----------------------------------------------------------------------------------------------

    async def _commit(self, batch: CommitBatch) -> Committed:
        tried: list[int] = []

        async def work(connection: Connection) -> Committed:
            if connection is not self._seen:
                await self._reconcile(connection, tried)
            # our own number was reached although no reply came: that commit is in the store, whole
            if tried and self._fence.commit_seq == tried[-1]:
                done = await recall(connection, self._fence, batch)
            else:
                tried.append(self._fence.commit_seq + 1)
                done = await apply(connection, self._fence, batch, self._failpoint)
            self._fence = replace(self._fence, commit_seq=done.commit_seq)
            self._kept.add(self._lifeline.now(), done.commit_seq, batch)
            self._failpoint("after_commit")
            await self._sweep(connection, batch)
            return done

        return await self._lifeline.run(work)

    async def _sweep(self, connection: Connection, batch: CommitBatch) -> None:
        self._unswept += sum(write.sealed.rows.size for write in batch.attempts)
        if self._unswept >= _SWEEP_BYTES:
            self._unswept = 0
            await connection.execute(write_sql.SWEEP, prepare=False)

    async def _reconcile(self, connection: Connection, tried: Sequence[int]) -> None:
        """After a reconnect: is this the store we wrote to, at our number? Replays what a failover lost."""
        fence = self._fence
        row = await (await connection.execute(write_sql.STANDING, (fence.run_key, self._run_id))).fetchone()
        if row is None:
            raise StoreError(f"the record store no longer knows run {self._run_id}")
        epoch, commit_seq = row
        if epoch > fence.epoch:
            raise Fenced
        if epoch < fence.epoch or commit_seq < fence.commit_seq:
            lost = self._kept.after(commit_seq, fence.commit_seq)
            fence = Fence(run_key=fence.run_key, epoch=await self._reclaim(connection, epoch), commit_seq=commit_seq)
            for batch in lost:
                fence = await self._replay(connection, fence, batch)
            self._fence = fence
        elif tried and commit_seq == tried[-1]:
            self._fence = replace(fence, commit_seq=commit_seq)
        self._seen = connection

    async def _replay(self, connection: Connection, fence: Fence, batch: CommitBatch) -> Fence:
        try:
            done = await apply(connection, fence, batch, _ignore)
        except REFUSED as error:
            raise StoreError(f"the record store refuses to take back a commit that it lost: {error}") from error
        return replace(fence, commit_seq=done.commit_seq)

    async def _reclaim(self, connection: Connection, stored: int) -> int:
        me = self._holder
        given = {"own": self._fence.epoch, "stored": stored, "run_key": self._fence.run_key}
        holder = {"me": me.id, "host": me.host, "pid": me.pid}
        row = await (await connection.execute(write_sql.RECLAIM, {**given, **holder})).fetchone()
        if row is None:
            raise Fenced
        return int(row[0])


async def _prepare(connection: Connection) -> None:
    connection.prepare_threshold = 0
    await connection.execute(write_sql.SESSION, prepare=False)
    await connection.execute(write_sql.STAGING, prepare=False)
    await rehearse(connection)


async def _nothing(_: Connection) -> None:
    return None


def _ignore(_: str) -> None:
    return None


async def _refusal(connection: Connection, run_id: str) -> Exception:
    """Why a claim found no row, with what to do about it."""
    row = await (await connection.execute(write_sql.HELD_BY, (run_id,))).fetchone()
    if row is None or row[5] is not None:
        return ConfigurationError(f"there is no run {run_id}")
    status, holder, host, pid, age, _ = row
    if holder is None:
        return RunHeld(f"run {run_id} is {status}; `orchestrate resume {run_id}` continues it")
    since = "never beat" if age is None else f"last beat {age:.0f} s ago"
    return RunHeld(
        f"run {run_id} is held by process {pid} on {host} ({since}); a run can be resumed 15 s after its "
        f"coordinator fell silent, or at once with --steal"
    )


def _open_intent(row: Sequence[Any], arms: Mapping[int, str]) -> OpenIntent:
    attempt, case, worker, kind, created_at, recorded, nanos, tokens, arm = row
    reserved = Money(nanos, tokens)
    return OpenIntent(attempt, case, worker, IntentKind(kind), created_at, recorded, reserved, arms.get(arm, ""))


def _pending(row: Sequence[Any], arms: Mapping[int, str]) -> PendingCase:
    attempts, crashes, lost, last_attempt, whole, unreconciled = row[WIDTH:]
    return PendingCase(
        read_case(row, arms[row[1]]),
        attempts,
        crashes,
        lost,
        last_attempt,
        recorded=whole is True,
        begun=whole is False,
        unreconciled=unreconciled,
    )
