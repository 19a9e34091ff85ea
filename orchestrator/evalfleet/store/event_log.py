"""The run events of one run as whoever asks reads them: a page of commits at a time, from any cursor."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from evalfleet.errors import FailureKind, StoreError
from evalfleet.model.run_events import EventCursor, RunEvent, RunEventType
from evalfleet.model.verdict import CaseStatus, Outcome, RunStatus
from evalfleet.store import event_sql
from evalfleet.store.connection import Connection
from evalfleet.store.lifeline import Lifeline
from evalfleet.store.projection import ApartFact, AttemptFact, CaseName, Decided, Fact, MarkFact, Place, project
from evalfleet.store.suites import suite_documents

#: Attempts of a page, up to the end of the commit that the last of them is of.
PAGE = 1000


class EventLog:
    """Reads the events of the run with this id over a connection of its own, on which it listens; close it.

    An event is read only once the commit that makes it a fact is done. `patience` is in seconds: for how long a lost
    store is waited for, until StoreError.
    """

    def __init__(self, url: str, run_id: str, *, patience: float = 10.0, page: int = PAGE) -> None:
        self._url = url
        self._run_id = run_id
        self._page = page
        self._lifeline = Lifeline(url, _prepare, patience)
        self._place: Place | None = None

    async def aclose(self) -> None:
        await self._lifeline.close()

    async def news(self, after: EventCursor) -> AsyncGenerator[Sequence[RunEvent]]:
        """All events so far that come after the cursor, in order, by pages none of which is empty."""
        place = await self._known_place()
        while True:
            facts, upto, head = await self._facts(after)
            events = tuple(project(facts, place, after))
            if events:
                yield events
                after = events[-1].cursor
            if upto >= head:
                return
            after = EventCursor(after.sequence, upto + 1, 0)

    async def wait(self, seconds: float) -> None:
        """Return when there may be news, after `seconds` at the latest."""

        async def work(connection: Connection) -> None:
            async with aclosing(connection.notifies(timeout=seconds)) as notices:
                async for told in notices:
                    if told.payload == self._run_id:
                        return

        await self._lifeline.run(work)

    async def _known_place(self) -> Place:
        """What is frozen with the plan, read once."""
        if self._place is None:
            self._place = Place(self._run_id, _steps(await suite_documents(self._url, self._run_id)))
        return self._place

    async def _facts(self, after: EventCursor) -> tuple[list[Fact], int, int]:
        """What the commits from that of the cursor on wrote; up to which of them, and the last one there is.

        The head is read first: what stands up to it neither changes nor grows any more, but for marks at the head.
        """

        async def work(connection: Connection) -> tuple[list[Fact], int, int]:
            cursor = connection.cursor(binary=True)
            row = await (await cursor.execute(event_sql.HEAD, (self._run_id,))).fetchone()
            if row is None:
                raise StoreError(f"run {self._run_id} is no longer in the record store")
            run_key, head, marks = row
            if not marks:
                return [], head, head
            given = {"run_key": run_key, "first": after.commit_seq, "last": head, "page": self._page}
            bound = await (await cursor.execute(event_sql.BOUND, given)).fetchone()
            given["last"] = upto = head if bound is None else bound[0]
            facts: list[Fact] = []
            for statement, fact in _READING:
                facts += map(fact, await (await cursor.execute(statement, given)).fetchall())
            return facts, upto, head

        return await self._lifeline.run(work)


async def _prepare(connection: Connection) -> None:
    await connection.execute(event_sql.PLANS)
    await connection.execute("LISTEN evalfleet_run")


def _steps(documents: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """The ids of the steps of each scenario, by the id of its eval."""
    return {
        f"{suite}/{scenario['id']}": tuple(step["id"] for step in scenario["steps"])
        for suite, document in documents.items()
        for scenario in _objects(document.get("scenarios"))
    }


def _objects(value: Iterable[Mapping[str, Any]] | None) -> Iterable[Mapping[str, Any]]:
    return () if value is None else value


def _attempt(row: Sequence[Any]) -> AttemptFact:
    commit_seq, attempt, number, outcome, turns, started_at, duration, late, settled, verdict, kind, code, *case = row
    return AttemptFact(
        commit_seq=commit_seq,
        id=attempt,
        case=CaseName(*case),
        number=number,
        outcome=Outcome(outcome),
        turns=turns,
        started_at=started_at,
        duration=duration,
        settled=_decided(verdict, kind, code) if settled else None,
        late=late,
    )


def _apart(row: Sequence[Any]) -> ApartFact:
    commit_seq, number, status, kind, code, *case = row
    return ApartFact(commit_seq=commit_seq, case=CaseName(*case), settled=_decided(status, kind, code), number=number)


def _mark(row: Sequence[Any]) -> MarkFact:
    commit_seq, number, kind, at, status = row
    ended = None if status is None else RunStatus(status)
    return MarkFact(commit_seq=commit_seq, number=number, type=RunEventType(kind), at=at, status=ended)


def _decided(status: str, kind: str | None, code: str | None) -> Decided:
    return Decided(CaseStatus(status), None if kind is None else FailureKind(kind), code)


_READING = ((event_sql.ATTEMPTS, _attempt), (event_sql.APART, _apart), (event_sql.MARKS, _mark))
