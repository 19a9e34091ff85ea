"""One run as the Python API hands it out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Self

from evalfleet.api.documents import documents
from evalfleet.api.holders import seen_from_here
from evalfleet.api.options import CaseFilter
from evalfleet.api.session import Session
from evalfleet.errors import ConfigurationError
from evalfleet.model.grading import Grading
from evalfleet.model.report import AttemptDetail, AttemptView, CaseView, RunAggregate, RunInfo, RunProgress
from evalfleet.model.verdict import CaseStatus
from evalfleet.plugins import waterfalls
from evalfleet.reports.accept import Accepted, accept_rule, decide_acceptance
from evalfleet.reports.model import ReportModel, build_report
from evalfleet.store import reader
from evalfleet.store.spans import SpanCounts
from evalfleet.store.suites import suite_results

if TYPE_CHECKING:
    from evalfleet.reports.waterfall import Waterfall

_PAGE = 500


class RunHandle:
    """One run, to be read. Use it as an asynchronous context manager: it keeps the record store open.

    It says what the run's current grading says, or the `grading` with that number.
    """

    def __init__(self, session: Session, run: str, grading: int | None = None) -> None:
        self._session = session
        self._run = run
        self._grading = grading

    @property
    def id(self) -> str:
        return self._run

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Release the record store; the embedded server stops with its last client."""
        await self._session.close()

    async def info(self) -> RunInfo:
        return seen_from_here(await self._session.reader.find_run(self._run, self._grading))

    async def aggregate(self) -> RunAggregate:
        aggregate = await self._session.reader.aggregate(self._run, self._grading)
        asked = aggregate.run.lock.get("suite_criteria")
        results = await suite_results(self._session.url, self._run) if asked else {}
        return replace(aggregate, run=seen_from_here(aggregate.run), suite_results=results)

    async def gradings(self) -> Sequence[Grading]:
        """Each time that the run's attempts were judged again, in order; without 0, what they were sealed with."""
        return await self._session.reader.gradings(self._run)

    async def progress(self) -> RunProgress | None:
        return await self._session.reader.progress(self._run)

    async def accepted(self) -> Accepted:
        """The experiment's acceptance rule applied to what is settled."""
        aggregate = await self.aggregate()
        return decide_acceptance(aggregate, accept_rule(aggregate.run.experiment))

    async def report(self, *, notable: int = 30) -> ReportModel:
        """The run's report with up to `notable` of its cases that did not pass."""
        return build_report(await self.aggregate(), tuple([case async for case in self.cases(_notable(notable))]))

    async def document(self, arm: str | None = None) -> AsyncIterator[str]:
        """The report document of an arm in pieces of JSON; without one of all arms, by name when there are several."""

        def records(name: str) -> AsyncIterator[tuple[CaseView, AttemptDetail | None]]:
            return self.records(CaseFilter(arm=name))

        async for piece in documents(self._session, await self.info(), records, arm):
            yield piece

    async def cases(self, which: CaseFilter | None = None) -> AsyncIterator[CaseView]:
        """Cases in planned order, read page by page."""
        async for page in self._pages(which):
            for case in page:
                yield case

    async def records(self, which: CaseFilter | None = None) -> AsyncIterator[tuple[CaseView, AttemptDetail | None]]:
        """Cases in planned order, each with the attempt that `attempt` gives, or None: the whole run, read in bulk."""
        async for page in self._pages(which):
            async for record in self._session.reader.records(self._run, page, self._grading):
                yield record

    async def _pages(self, which: CaseFilter | None) -> AsyncIterator[Sequence[CaseView]]:
        wanted = which or CaseFilter()
        chosen = reader.CaseFilter(
            statuses=wanted.statuses or None, arm=wanted.arm, prefix=wanted.prefix, tag=wanted.tag
        )
        after = -1 if wanted.ordinal is None else wanted.ordinal - 1
        left = 1 if wanted.ordinal is not None else wanted.limit
        while left is None or left > 0:
            size = _PAGE if left is None else min(_PAGE, left)
            page = await self._session.reader.cases(self._run, chosen, after, size, self._grading)
            yield [case for case in page if wanted.ordinal in (None, case.ordinal)]
            if len(page) < size:
                return
            after = page[-1].ordinal
            left = None if left is None else left - len(page)

    async def attempts(self, case: int) -> Sequence[AttemptView]:
        """The attempts of a case, by number."""
        return await self._session.reader.attempts(self._run, case, self._grading)

    async def attempt(self, case: int, number: int | None = None) -> AttemptDetail:
        """An attempt with its evidence; without a number the one that settles the case, else its last.

        A carried case shows the attempt that it was carried from. Raises ConfigurationError when there is none.
        """
        run, attempt, grading = await self._which(case, number)
        return await self._session.reader.attempt_detail(run, attempt, grading)

    async def waterfall(self, case: int, number: int | None = None) -> Waterfall:
        """The spans that the agent of an attempt sent, chosen as by `attempt`; without rows when there are none."""
        run, attempt, _ = await self._which(case, number)
        bodies = await self._session.reader.spans(run, attempt)
        return await asyncio.to_thread(lambda: waterfalls().waterfall_of(bodies))

    async def span_counts(self) -> SpanCounts:
        """What became of all spans that agents of the run sent."""
        return await self._session.reader.span_counts(self._run)

    async def _which(self, case: int, number: int | None) -> tuple[str, int, int | None]:
        """The run, the attempt and the grading that a case is shown by."""
        attempts = await self._session.reader.attempts(self._run, case, self._grading)
        chosen = [view for view in attempts if (view.number == number if number is not None else view.settles)]
        if not chosen and number is None:
            chosen = list(attempts[-1:])
        if chosen:
            return self._run, chosen[0].attempt, self._grading
        async for view in self.cases(replace(CaseFilter(), ordinal=case)):
            if view.carried_from is not None and number is None:
                return *view.carried_from, view.carried_grading
        which = "no attempt" if number is None else f"no attempt {number}"
        raise ConfigurationError(f"case {case} of run {self._run} has {which}")


def _notable(limit: int) -> CaseFilter:
    return CaseFilter(statuses=(CaseStatus.FAILED, CaseStatus.ERRORED, CaseStatus.BLOCKED), limit=limit)
