"""The report documents of a run, read from the record store case by case."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from evalfleet.api.session import Session
from evalfleet.errors import ConfigurationError
from evalfleet.model.report import AttemptDetail, CaseView, RunInfo
from evalfleet.reports.document import Reported, render_document, render_documents
from evalfleet.store.suites import suite_documents, suite_results

#: The cases of an arm, each with the attempt that its status comes from.
Records = Callable[[str], AsyncIterator[tuple[CaseView, AttemptDetail | None]]]


async def documents(session: Session, run: RunInfo, records: Records, arm: str | None) -> AsyncIterator[str]:
    """The document of one arm in pieces, or of all arms of a run that has several, by name.

    Raises ConfigurationError when the run has no such arm.
    """
    arms = await session.reader.arms(run.id)
    if arm is not None and arm not in arms:
        raise ConfigurationError(f"run {run.id} has no arm {arm!r}, only {', '.join(arms)}")
    suites = await suite_documents(session.url, run.id)
    results = await suite_results(session.url, run.id)

    def of(name: str) -> AsyncIterator[str]:
        own = {suite: found for (suite, each), found in results.items() if each == name}
        return render_document(Reported(run=run, arm=name, suites=suites, results=own), records(name))

    chosen = arm if arm is not None or len(arms) != 1 else arms[0]
    pieces = render_documents(run, arms, of) if chosen is None else of(chosen)
    async for piece in pieces:
        yield piece
