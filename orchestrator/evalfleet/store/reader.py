"""The reading side of the record store: what lists, reports, views and watchers see."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import Any, TypeVar

from evalfleet.errors import ConfigurationError
from evalfleet.model.comparison import SideCase
from evalfleet.model.events import Event
from evalfleet.model.grading import Grading
from evalfleet.model.report import AttemptDetail, AttemptView, CaseView, RunAggregate, RunInfo, RunProgress
from evalfleet.model.verdict import CaseStatus, RunStatus
from evalfleet.ports import ArtifactStore
from evalfleet.store import read_sql
from evalfleet.store.aggregate import arm_counts
from evalfleet.store.connection import Connection, connect
from evalfleet.store.evidence import EvidenceReader
from evalfleet.store.lifeline import Lifeline
from evalfleet.store.records import Origin, RecordReader
from evalfleet.store.spans import BATCHES, COUNTS, SpanCounts, counts_of, unpacked
from evalfleet.store.views import attempt_view, case_view, grading_view, run_info, side_case

T = TypeVar("T")

_PATIENCE = 10.0
_ENDED = (RunStatus.COMPLETED, RunStatus.CANCELLED, RunStatus.LIMITED)
_PROGRESS_FIELDS = frozenset(field.name for field in fields(RunProgress))


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFilter:
    """Which cases of a run to list; None lets everything through. `prefix` is one of eval ids, taken literally."""

    statuses: tuple[CaseStatus, ...] | None = None
    arm: str | None = None
    prefix: str | None = None
    tag: str | None = None


EVERY_CASE = CaseFilter()


@dataclass(frozen=True, slots=True)
class RunName:
    """What reading a part of a run needs of it."""

    id: str
    grading: int


_R = TypeVar("_R", RunInfo, RunName)


class Reader:
    """Reads runs over one connection of its own; close it. `artifacts` is needed for very large evidence.

    Methods take a run's id or any unambiguous prefix of it, and say what its current grading says unless another is
    asked for by its number. They raise ConfigurationError when there is no such run or grading, StoreError when the
    store can't be used.
    """

    def __init__(self, url: str, artifacts: ArtifactStore | None = None) -> None:
        self._url = url
        self._lifeline = Lifeline(url, _prepare, _PATIENCE)
        self._evidence = EvidenceReader(artifacts)

    async def close(self) -> None:
        await self._lifeline.close()

    # --- runs -------------------------------------------------------------------------------------------------

    async def runs(self, limit: int = 50, before: str | None = None, *, tries: bool = False) -> list[RunInfo]:
        """The newest runs, or those older than the run `before`; runs of kind try only with `tries`."""
        given = {"limit": limit, "before": before, "all": tries}
        return [run_info(row) for row in await self._rows(read_sql.RUNS, given)]

    async def find_run(self, prefix: str, grading: int | None = None) -> RunInfo:
        """The run whose id begins with `prefix`. An ambiguous prefix is refused with the candidates."""
        return (await self._find(prefix, grading))[1]

    async def gradings(self, run: str) -> list[Grading]:
        """Each time that the run's attempts were judged again, in order."""
        key, _ = await self._named(run)
        return [grading_view(row) for row in await self._rows(read_sql.GRADINGS, (key,))]

    async def aggregate(self, run: str, grading: int | None = None) -> RunAggregate:
        """The run with its arms' counts, all from one snapshot."""
        key, info = await self._find(run, grading)

        async def work(connection: Connection) -> RunAggregate:
            arms = await arm_counts(connection, key, info.grading)
            told = await (await connection.execute(read_sql.PROGRESS.encode(), (key,))).fetchone()
            return RunAggregate(
                run=info, arms=arms, budget={} if told is None else json.loads(told[1]).get("budget", {})
            )

        return await self._lifeline.run(work)

    async def progress(self, run: str) -> RunProgress | None:
        """The last live counters that the run's coordinator wrote, None before its first."""
        key, _ = await self._named(run)
        for at, body in await self._rows(read_sql.PROGRESS.encode(), (key,)):
            told = {name: value for name, value in json.loads(body).items() if name in _PROGRESS_FIELDS}
            return RunProgress(**{**told, "at": at})
        return None

    async def watch(self, run: str, every: float = 5.0) -> AsyncGenerator[tuple[RunInfo, RunProgress | None]]:
        """The run and its counters now, at each change, and at least every `every` seconds, until it has ended."""
        key, _ = await self._named(run)
        async with await connect(self._url, autocommit=True) as listening:
            await listening.execute("LISTEN evalfleet_run")
            while True:
                info = run_info((await self._rows(read_sql.RUN_BY_KEY, (key,)))[0])
                yield info, await self.progress(info.id)
                if info.status in _ENDED:
                    return
                async with aclosing(listening.notifies(timeout=every)) as notices:
                    async for told in notices:
                        if told.payload == info.id:
                            break

    # --- cases and attempts -----------------------------------------------------------------------------------

    async def cases(
        self,
        run: str,
        which: CaseFilter = EVERY_CASE,
        after: int = -1,
        limit: int = 100,
        grading: int | None = None,
    ) -> list[CaseView]:
        """Cases in planned order with an ordinal above `after`, at most `limit`.

        A case that was reopened after it failed is shown with that first verdict, as every headline counts it.
        """
        key, info = await self._named(run, grading)
        given = {
            "run_key": key,
            "grading": info.grading,
            "after": after,
            "limit": limit,
            "arm": which.arm,
            "prefix": None if which.prefix is None else _literal(which.prefix),
            "tag": which.tag,
            "statuses": None if which.statuses is None else [status.value for status in which.statuses],
        }
        reopened = bool((await self._rows(read_sql.REOPENED.encode(), (key,)))[0][0])
        return [case_view(row) for row in await self._rows(read_sql.cases(reopened, info.grading > 0), given)]

    async def arms(self, run: str) -> list[str]:
        """The names of the run's arms, in experiment order."""
        key, _ = await self._named(run)
        return [name for _, name, *_ in await self._rows(read_sql.ARMS.encode(), (key,))]

    async def side(self, run: str, arm: str, grading: int | None = None) -> list[SideCase]:
        """All cases of an arm in planned order, with what a comparison needs of each and no more."""
        key, info = await self._named(run, grading)
        reopened = bool((await self._rows(read_sql.REOPENED.encode(), (key,)))[0][0])
        given = {"run_key": key, "grading": info.grading, "arm": arm}
        rows = await self._rows(read_sql.side(reopened, info.grading > 0), given)
        return sorted((side_case(info.id, row) for row in rows), key=lambda case: case.ordinal)

    async def attempts(self, run: str, case: int, grading: int | None = None) -> list[AttemptView]:
        """The attempts of a case by number; none for a carried case, whose evidence its `carried_from` names."""
        key, info = await self._named(run, grading)
        given = {"run_key": key, "ordinal": case, "grading": info.grading}
        return [attempt_view(row) for row in await self._rows(read_sql.attempts(info.grading > 0), given)]

    async def attempt_detail(self, run: str, attempt: int, grading: int | None = None) -> AttemptDetail:
        """An attempt with all its evidence in memory, exact; read very long ones with `events` instead."""
        key, info = await self._named(run, grading)
        given = {"run_key": key, "attempt": attempt, "grading": info.grading}
        rows = await self._rows(read_sql.one_attempt(info.grading > 0), given)
        if not rows:
            raise ConfigurationError(f"run {info.id} has no attempt {attempt}")
        pages = await self._pages(key, attempt, 0, _LAST)
        return await self._evidence.detail(info.id, rows[0], [body for _, _, body in pages])

    async def records(
        self, run: str, cases: Sequence[CaseView], grading: int | None = None
    ) -> AsyncGenerator[tuple[CaseView, AttemptDetail | None]]:
        """These cases of a run, in planned order, each with the attempt that settles it, else its last.

        A carried case comes with the attempt that it was carried from, a case without attempts with None. All their
        evidence is exact and in memory, case by case: fetched for many at once, but not more than some 8 MiB.
        """
        key, info = await self._named(run, grading)
        keys = {info.id: key}
        origins: list[Origin] = []
        for case in cases:
            if case.carried_from is not None and not case.attempts:
                origin, attempt = case.carried_from
                if origin not in keys:
                    keys[origin] = (await self._named(origin))[0]
                origins.append(Origin(keys[origin], origin, attempt, case.carried_grading))
        reading = RecordReader(self._rows, self._evidence)
        own = reading.of_cases(key, info.id, [case.ordinal for case in cases if case.attempts], info.grading)
        carried = reading.by_number(origins)
        for case in cases:
            yield case, await anext(own if case.attempts else carried) if case.has_evidence else None

    async def events(self, run: str, attempt: int, first: int, last: int) -> list[tuple[int, Event]]:
        """Events `first` to `last` of an attempt with their numbers, counted from 0 over all its turns.

        Reads only the pages of that range.
        """
        key, info = await self._named(run)
        pages = await self._pages(key, attempt, first, last)
        found: list[tuple[int, Event]] = []
        for start, _, body in pages:
            found += enumerate(await self._evidence.page_events(info.id, body), start)
        if not pages:
            for (record,) in await self._rows(read_sql.RECORD.encode(), (key, attempt)):
                found += enumerate([] if record is None else await self._evidence.inline_events(info.id, record))
        return [(number, event) for number, event in found if first <= number <= last]

    async def spans(self, run: str, attempt: int) -> list[tuple[int, bytes, int]]:
        """The bodies of spans that came for an attempt, in that order: encoding, body and number of spans each."""
        key, _ = await self._named(run)
        rows = await self._rows(BATCHES.encode(), (key, attempt))
        return [(encoding, unpacked(body), spans) for encoding, body, spans in rows]

    async def span_counts(self, run: str) -> SpanCounts:
        """What became of the spans that came for a run."""
        key, _ = await self._named(run)
        return counts_of(await self._rows(COUNTS.encode(), (key,)))

    # --- rows -------------------------------------------------------------------------------------------------

    async def _find(self, prefix: str, grading: int | None = None) -> tuple[int, RunInfo]:
        key, info = _chosen(prefix, [(int(row[0]), run_info(row[1:])) for row in await self._beginning(prefix)])
        return key, info if grading is None else replace(info, grading=await self._known(key, info, grading))

    async def _named(self, prefix: str, grading: int | None = None) -> tuple[int, RunName]:
        """As `_find`, for those who need no more of the run than what it is called."""
        rows = await self._beginning(prefix, read_sql.KEYS_BY_PREFIX)
        key, name = _chosen(prefix, [(int(row[0]), RunName(*row[1:])) for row in rows])
        return key, name if grading is None else replace(name, grading=await self._known(key, name, grading))

    async def _beginning(self, prefix: str, statement: bytes = read_sql.RUNS_BY_PREFIX) -> Sequence[tuple[Any, ...]]:
        """The first runs whose id begins with `prefix`, at least one."""
        rows = await self._rows(statement, {"prefix": _literal(prefix), "exact": prefix})
        if not rows or not prefix:
            raise ConfigurationError(f"there is no run {prefix!r}{await self._nearest(prefix)}")
        return rows

    async def _known(self, key: int, run: RunInfo | RunName, grading: int) -> int:
        """The grading, when the run has it."""
        if grading not in (0, run.grading):
            known = [row[0] for row in await self._rows(read_sql.GRADINGS, (key,))]
            if grading not in known:
                raise ConfigurationError(f"run {run.id} has no grading {grading}, only 0 to {max(known, default=0)}")
        return grading

    async def _nearest(self, prefix: str) -> str:
        """What to try instead of an id that no run has."""
        newest = await self._rows(read_sql.NEWEST_IDS, ())
        beginnings = {run[: len(prefix)]: run for (run,) in newest}
        close = get_close_matches(prefix, beginnings, n=1) if prefix else []
        return f": did you mean {beginnings[close[0]]}?" if close else "; `orchestrate runs` lists them"

    async def _pages(self, key: int, attempt: int, first: int, last: int) -> Sequence[tuple[Any, ...]]:
        given = {"run_key": key, "attempt": attempt, "first": first, "last": last}
        return await self._rows(read_sql.PAGES.encode(), given)

    async def _rows(self, statement: bytes, given: Any) -> Sequence[tuple[Any, ...]]:
        async def work(connection: Connection) -> Sequence[tuple[Any, ...]]:
            cursor = connection.cursor(binary=True)
            return await (await cursor.execute(statement, given)).fetchall()

        return await self._lifeline.run(work)


_LAST = (1 << 63) - 1


async def _prepare(connection: Connection) -> None:
    await connection.execute(read_sql.PLANS)


def _chosen(prefix: str, found: Sequence[tuple[int, _R]]) -> tuple[int, _R]:
    """The run that is meant: the one that is called so, else the only one that begins so."""
    if len(found) > 1 and found[0][1].id != prefix:
        ids = ", ".join(run.id for _, run in found[:6])
        raise ConfigurationError(f"{prefix!r} begins several runs: {ids}{' and more' if len(found) > 6 else ''}")
    return found[0]


def _literal(prefix: str) -> str:
    """A LIKE pattern that matches what begins with exactly this text."""
    escaped = prefix.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"{escaped}%"
