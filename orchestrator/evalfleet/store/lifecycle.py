"""What people do to a run after it was planned: ask it to stop, reopen cases, delete it."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping, Sequence

from evalfleet.errors import ConfigurationError, RunHeld
from evalfleet.model.verdict import CaseStatus
from evalfleet.ports import ArtifactStore
from evalfleet.store import copying
from evalfleet.store.connection import Connection, connect
from evalfleet.store.judged_sql import CURRENT_VERDICT
from evalfleet.store.read_sql import STALE_SECONDS
from evalfleet.store.write_sql import BLOCK_BITS

_BATCH = 10_000

_EDIT = b"""
INSERT INTO edits (run_key, field, before, after, author, reason)
SELECT run_key, %(name)s, %(before)s, %(after)s, %(who)s, %(why)s FROM runs WHERE id = %(run)s
"""

_EDITED = b"""
SELECT DISTINCT ON (field) field, after FROM edits e JOIN runs r USING (run_key)
WHERE r.id = %s AND after IS NOT NULL ORDER BY field, edit_key DESC
"""

#: Which settlements `resume --retry` may reopen.
RETRYABLE = (CaseStatus.ERRORED, CaseStatus.FAILED, CaseStatus.BLOCKED)

_LOCKED = f"""
SELECT run_key, commit_seq, grading, holder IS NOT NULL AND beat > clock_timestamp() - interval '{STALE_SECONDS} s'
FROM runs WHERE id = %s AND deleted_at IS NULL FOR UPDATE
""".encode()

_REOPEN = f"""
WITH reopening AS (
    INSERT INTO reopenings (run_key, reopening, commit_seq, cases, who, why, retry)
    SELECT %(run_key)s, coalesce(max(reopening), 0) + 1, %(commit_seq)s, 0, %(who)s, %(why)s, %(retry)s
    FROM reopenings WHERE run_key = %(run_key)s
    RETURNING reopening
), reopened AS (
    UPDATE settlements s SET superseded_at = clock_timestamp(), reopening = (SELECT reopening FROM reopening)
    WHERE run_key = %(run_key)s AND superseded_at IS NULL AND how <> 'carried'
      AND ({CURRENT_VERDICT}::text = ANY(%(retry_list)s) OR how::text = ANY(%(retry_list)s))
    RETURNING ordinal, attempt
), attempts AS (
    UPDATE attempts a SET settles = false FROM reopened o WHERE a.run_key = %(run_key)s AND a.attempt = o.attempt
), blocks AS (
    UPDATE case_blocks b SET unsettled = b.unsettled + n.cases
    FROM (SELECT ordinal >> {BLOCK_BITS} AS block, count(*) AS cases FROM reopened GROUP BY 1) n
    WHERE b.run_key = %(run_key)s AND b.block = n.block
)
SELECT count(*), (SELECT reopening FROM reopening) FROM reopened
""".encode()

_REOPENED = """
UPDATE runs SET status = 'queued', finished_at = NULL, stop_reason = NULL, failures = 0 WHERE run_key = %s
"""

_CANCEL = """
UPDATE runs SET cancel_requested_at = coalesce(cancel_requested_at, clock_timestamp())
WHERE id = %s AND deleted_at IS NULL AND status IN ('queued', 'running')
RETURNING pg_notify('evalfleet_run', id)
"""

_RELEASE = "UPDATE runs SET holder = NULL WHERE id = %s AND holder = %s"

# a coordinator that still runs is fenced by the epoch, and stops
_MARK_DELETED = """
UPDATE runs SET deleted_at = coalesce(deleted_at, clock_timestamp()), epoch = epoch + 1
WHERE id = %s RETURNING run_key
"""

_DEPENDANTS = """
SELECT DISTINCT r.id FROM settlements s JOIN runs r ON r.run_key = s.run_key
WHERE s.from_run = %s AND r.id <> s.from_run AND r.deleted_at IS NULL ORDER BY 1
"""

_OLD_TRIES = f"""
SELECT id FROM runs
WHERE kind = 'try' AND created_at < clock_timestamp() - make_interval(secs => 86400 * %s)
  AND (holder IS NULL OR beat IS NULL OR beat < clock_timestamp() - interval '{STALE_SECONDS} s')
ORDER BY run_key
""".encode()

_GROWN = (
    "span_batches",
    "judge_calls",
    "judgements",
    "event_pages",
    "tool_calls",
    "assertions",
    "attempts",
    "settlements",
    "intents",
    "recordings",
    "cases",
)


def current_user() -> str:
    """Who runs this process, for the record."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


async def request_cancel(url: str, run: str) -> bool:
    """Ask the run's coordinator to stop; False when the run has ended already."""
    async with await connect(url, autocommit=True) as connection:
        return await (await connection.execute(_CANCEL, (run,))).fetchone() is not None


async def release(url: str, run: str, holder: str) -> bool:
    """End the hold of a coordinator that is known to be dead; False when it holds the run no longer."""
    async with await connect(url, autocommit=True) as connection:
        return (await connection.execute(_RELEASE, (run, holder))).rowcount == 1


async def reopen(url: str, run: str, retry: Sequence[CaseStatus], *, who: str, why: str) -> int:
    """Make cases that settled as one of `retry` unsettled again, and return how many.

    Nothing is deleted: their settlements are kept as superseded by this reopening. Raises RunHeld while a
    coordinator works on the run, ConfigurationError for a status that can't be retried or an unknown run.
    """
    refused = [status.value for status in retry if status not in RETRYABLE]
    if refused:
        raise ConfigurationError(f"{', '.join(refused)} cases can't be retried, only errored, failed and blocked ones")
    async with await connect(url) as connection, connection.transaction():
        row = await (await connection.execute(_LOCKED, (run,))).fetchone()
        if row is None:
            raise ConfigurationError(f"there is no run {run}")
        run_key, commit_seq, grading, held = row
        if held:
            raise RunHeld(f"run {run} is being worked on; cancel it or wait for its end before reopening cases")
        names = [status.value for status in retry]
        given = {"run_key": run_key, "commit_seq": commit_seq, "who": who, "why": why, "retry": ",".join(names)}
        given["grading"] = grading
        done = await (await connection.execute(_REOPEN, {**given, "retry_list": names})).fetchone()
        cases, reopening = done or (0, None)
        if not cases:
            await connection.execute(
                "DELETE FROM reopenings WHERE run_key = %s AND reopening = %s", (run_key, reopening)
            )
            return 0
        await connection.execute(
            "UPDATE reopenings SET cases = %s WHERE run_key = %s AND reopening = %s", (cases, run_key, reopening)
        )
        await connection.execute(_REOPENED, (run_key,))
        return int(cases)


async def note_edits(url: str, run: str, edits: Mapping[str, tuple[str | None, str]], *, who: str, why: str) -> None:
    """Write down what a person changed of a run after it was planned: by field, what was said before and is now."""
    async with await connect(url) as connection, connection.transaction():
        for name, (before, after) in edits.items():
            given = {"run": run, "name": name, "before": before, "after": after, "who": who, "why": why}
            await connection.execute(_EDIT, given)


async def edited(url: str, run: str) -> dict[str, str]:
    """What was last said of each field that a person changed of a run after it was planned."""
    async with await connect(url, autocommit=True) as connection:
        rows = await (await connection.execute(_EDITED, (run,))).fetchall()
        return {str(name): str(after) for name, after in rows}


async def delete_run(
    url: str, run: str, artifacts: ArtifactStore, *, with_dependants: bool = False, copy_evidence: bool = False
) -> list[str]:
    """Delete a run, its rows in batches and then its artifacts; returns the ids of all deleted runs.

    Runs that carry results from it make this refuse with ConfigurationError, unless they are deleted too or
    the evidence that they carry is copied into them first. Can be repeated after it was interrupted.
    """
    async with await connect(url, autocommit=True) as connection:
        dependants = await _dependants(connection, run)
        if copy_evidence and not with_dependants:
            await copying.copy_evidence(connection, run, artifacts)
        elif dependants and not with_dependants:
            raise ConfigurationError(
                f"run {run} is carried by {', '.join(dependants)}; delete those with it (--with-dependants) or copy "
                "what they carry (--copy-evidence)"
            )
        doomed = [*dependants, run] if with_dependants else [run]
        for one in doomed:
            await _delete(connection, one, artifacts)
        return doomed


async def delete_old_tries(url: str, artifacts: ArtifactStore, days: float = 7, *, dry_run: bool = False) -> list[str]:
    """Delete the runs of `try` that are older than `days` and not being worked on; returns their ids."""
    async with await connect(url, autocommit=True) as connection:
        rows = await (await connection.execute(_OLD_TRIES, (days,))).fetchall()
        for (run,) in () if dry_run else rows:
            await _delete(connection, run, artifacts)
        return [run for (run,) in rows]


async def _dependants(connection: Connection, run: str) -> list[str]:
    """All runs that carry from this one, or from one of those; who carries from others comes first."""
    found: list[str] = []
    waiting = [run]
    while waiting:
        for (other,) in await (await connection.execute(_DEPENDANTS, (waiting.pop(),))).fetchall():
            if other not in found and other != run:
                found.append(other)
                waiting.append(other)
    return found[::-1]


async def _delete(connection: Connection, run: str, artifacts: ArtifactStore) -> None:
    row = await (await connection.execute(_MARK_DELETED, (run,))).fetchone()
    if row is None:
        raise ConfigurationError(f"there is no run {run}")
    for table in _GROWN:
        statement = (
            f"DELETE FROM {table} WHERE ctid = ANY(ARRAY(SELECT ctid FROM {table} WHERE run_key = %s LIMIT {_BATCH}))"
        ).encode()
        while (await connection.execute(statement, (row[0],))).rowcount:
            pass
    await artifacts.delete_run(run)
    # those of sandboxes that may still be there stay, so that somebody finds them
    await connection.execute("DELETE FROM sandboxes WHERE run = %s AND ended_at IS NOT NULL", (run,))
    await connection.execute("DELETE FROM runs WHERE run_key = %s", (row[0],))
