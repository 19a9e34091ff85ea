"""The functions of the Python API over runs that exist: read, stop, delete and carry them elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path

from evalfleet.api.handle import RunHandle
from evalfleet.api.holders import seen_from_here
from evalfleet.api.options import DeleteOptions
from evalfleet.api.session import Session
from evalfleet.clock import SystemClock
from evalfleet.model.report import RunInfo, RunProgress
from evalfleet.model.run_events import BEGINNING, EventCursor, RunEvent
from evalfleet.model.verdict import RunStatus
from evalfleet.store import lifecycle, transfer
from evalfleet.store.event_log import EventLog
from evalfleet.store.suites import is_being_judged
from evalfleet.store.sweep import Swept, sweep

_LOOK_SECONDS = 5.0


async def open_run(prefix: str, grading: int | None = None) -> RunHandle:
    """A run by its id or an unambiguous prefix of it, as its current grading or another one judged it.

    Raises ConfigurationError when there is none.
    """
    session = await Session.open()
    try:
        info = await session.reader.find_run(prefix, grading)
    except BaseException:
        await session.close()
        raise
    return RunHandle(session, info.id, grading)


async def runs(*, every_kind: bool = False, limit: int | None = None) -> Sequence[RunInfo]:
    """Runs, newest first; those of `try` only with `every_kind`."""
    session = await Session.open()
    try:
        return [seen_from_here(info) for info in await session.reader.runs(limit or 50, tries=every_kind)]
    finally:
        await session.close()


async def watch(run: str) -> AsyncIterator[RunProgress]:
    """The live counters of a run, until it is no longer running."""
    session = await Session.open()
    try:
        async for info, progress in session.reader.watch(run):
            if progress is not None:
                yield progress
            if seen_from_here(info).interrupted:
                return
    finally:
        await session.close()


async def events(run: str, *, after: str | EventCursor = BEGINNING) -> AsyncIterator[RunEvent]:
    """The run's events in order, from the first or the one after a cursor, until it is no longer running.

    Raises ConfigurationError when there is no such run, or for what is no cursor.
    """
    cursor = after if isinstance(after, EventCursor) else EventCursor.parsed(after)
    session = await Session.open()
    try:
        run = (await session.reader.find_run(run)).id
        async with aclosing(EventLog(session.url, run)) as log:
            while True:
                # read first: what ended by now has told all of its events
                info = await session.reader.find_run(run)
                ended = info.status not in (RunStatus.QUEUED, RunStatus.RUNNING)
                over = info.interrupted or (ended and not await is_being_judged(session.url, run))
                async with aclosing(log.news(cursor)) as pages:
                    async for page in pages:
                        for event in page:
                            yield event
                        cursor = page[-1].cursor
                if over:
                    return
                await log.wait(_LOOK_SECONDS)
    finally:
        await session.close()


async def cancel(run: str) -> tuple[str, bool]:
    """Ask a run to stop; what is in flight is cancelled, what is settled stays.

    Its full id, and whether it was still going.
    """
    session = await Session.open()
    try:
        info = await session.reader.find_run(run)
        return info.id, await lifecycle.request_cancel(session.url, info.id)
    finally:
        await session.close()


async def delete(run: str, options: DeleteOptions | None = None) -> str:
    """Delete a run with all its evidence. Raises ConfigurationError while other runs carry results from it."""
    chosen = options or DeleteOptions()
    session = await Session.open()
    try:
        info = await session.reader.find_run(run)
        await lifecycle.delete_run(
            session.url,
            info.id,
            session.artifacts,
            with_dependants=chosen.with_dependants,
            copy_evidence=chosen.copy_evidence,
        )
        return info.id
    finally:
        await session.close()


async def export(run: str, target: Path | None = None) -> tuple[str, Path]:
    """Write a run with all its evidence into one file, by default `<run id>.evalfleet`; its full id and the file.

    Raises ConfigurationError when there is no such run or the file can't be written.
    """
    session = await Session.open()
    try:
        info = await session.reader.find_run(run)
        path = target or Path(f"{info.id}.evalfleet")
        await transfer.export_run(session.url, info.id, path, session.artifacts)
        return info.id, path
    finally:
        await session.close()


async def import_(file: Path) -> str:
    """Read an exported run into this record store; its id. Raises ConfigurationError for a file that is no good."""
    session = await Session.open()
    try:
        return await transfer.import_run(session.url, file, session.artifacts)
    finally:
        await session.close()


async def collect_garbage(*, tries_older_than: float, dry_run: bool = False) -> tuple[Sequence[str], Swept]:
    """Delete the runs of `try` that are older than so many days, and what no row names in the artifact store.

    Returns the ids of those runs, and what was swept. With `dry_run` nothing is deleted.
    """
    session = await Session.open()
    try:
        tries = await lifecycle.delete_old_tries(session.url, session.artifacts, tries_older_than, dry_run=dry_run)
        return tries, await sweep(session.url, session.artifacts, SystemClock().wall(), dry_run=dry_run)
    finally:
        await session.close()
