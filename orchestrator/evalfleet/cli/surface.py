"""What the commands need of the Python API, as Protocols: `evalfleet.api` fits, and so does a fake in tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from evalfleet.api.listeners import NOBODY, Listeners
from evalfleet.api.options import (
    CaseFilter,
    DeleteOptions,
    PackRun,
    PlanOptions,
    ReapOptions,
    RescoreOptions,
    ResumeOptions,
    SideChoice,
    SubmitOptions,
)
from evalfleet.api.preview import Preview
from evalfleet.model.grading import Rescored
from evalfleet.model.report import AttemptDetail, AttemptView, CaseView, RunInfo, RunProgress
from evalfleet.model.run_events import BEGINNING, EventCursor, RunEvent
from evalfleet.model.sandbox import SandboxView
from evalfleet.reports.comparison import Comparison
from evalfleet.reports.model import ReportModel
from evalfleet.reports.waterfall import Waterfall

if TYPE_CHECKING:  # what sweeps or reaps needs the database's driver, which no command should wait for
    from evalfleet.api.capacity import CapacityUse
    from evalfleet.api.imported import ImportedRun
    from evalfleet.api.packs import ArmRates, LintedPack, Reapplied
    from evalfleet.api.reaping import SandboxListing
    from evalfleet.store.spans import SpanCounts
    from evalfleet.store.sweep import Swept


class RunHandle(Protocol):
    """One run, to be read; used as an asynchronous context manager that releases the record store."""

    @property
    def id(self) -> str: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def info(self) -> RunInfo: ...

    async def report(self) -> ReportModel:
        """The run's report with its first cases that did not pass."""
        ...

    def document(self, arm: str | None = None) -> AsyncIterator[str]:
        """The report document of an arm in pieces of JSON; without one of all arms, by name when there are several."""
        ...

    async def progress(self) -> RunProgress | None:
        """The live counters, None when the run has not started to count."""
        ...

    def cases(self, which: CaseFilter) -> AsyncIterator[CaseView]:
        """Cases in planned order, streamed."""
        ...

    def records(self, which: CaseFilter) -> AsyncIterator[tuple[CaseView, AttemptDetail | None]]:
        """The same, each with the attempt that settles it, else the last; None for a case without one."""
        ...

    async def attempts(self, case: int) -> Sequence[AttemptView]: ...

    async def attempt(self, case: int, number: int | None = None) -> AttemptDetail:
        """An attempt with its evidence; without a number the one that settles, else the last."""
        ...

    async def waterfall(self, case: int, number: int | None = None) -> Waterfall:
        """The spans that the agent of an attempt sent."""
        ...

    async def span_counts(self) -> SpanCounts:
        """What became of all spans that agents of the run sent."""
        ...


class Api(Protocol):
    """The functions of `evalfleet.api` that commands call."""

    async def plan(self, experiment: Path, prefixes: Sequence[str], options: PlanOptions) -> Preview: ...

    async def submit(
        self,
        experiment: Path,
        prefixes: Sequence[str],
        options: SubmitOptions,
        listeners: Listeners = NOBODY,
    ) -> RunHandle: ...

    async def try_(
        self,
        experiment: Path,
        prefixes: Sequence[str],
        options: SubmitOptions,
        listeners: Listeners = NOBODY,
    ) -> RunHandle: ...

    async def resume(self, run: str, options: ResumeOptions, listeners: Listeners = NOBODY) -> RunHandle: ...

    async def cancel(self, run: str) -> tuple[str, bool]:
        """Ask the run to stop; its full id, and whether it was still going."""
        ...

    async def delete(self, run: str, options: DeleteOptions) -> str: ...

    async def export(self, run: str, target: Path | None = None) -> tuple[str, Path]:
        """Write the run into one file; its full id and the file."""
        ...

    async def import_(self, file: Path) -> str:
        """Read an exported run; its id."""
        ...

    async def collect_garbage(self, *, tries_older_than: float, dry_run: bool) -> tuple[Sequence[str], Swept]:
        """Delete runs of `orchestrate try` older than so many days, and what no row names; their ids, and that."""
        ...

    async def capacity(self) -> Sequence[CapacityUse]:
        """The accounts whose rate is governed and used by the runs under way."""
        ...

    async def sandboxes(self) -> SandboxListing:
        """The sandboxes of every backend that is installed."""
        ...

    async def reap_sandboxes(self, options: ReapOptions) -> Sequence[SandboxView]:
        """Remove the sandboxes that are nobody's any more, and return them."""
        ...

    async def sandbox_shell(self, target: str) -> tuple[str, ...]:
        """The command that opens a shell in a sandbox."""
        ...

    async def stop_sandbox(self, target: str) -> SandboxView:
        """Remove one sandbox, and return it."""
        ...

    def lint_packs(self, project: Path) -> Sequence[LintedPack]:
        """The Task packs of a project, each with what is wrong with it."""
        ...

    async def run_packs(self, project: Path, asked: PackRun, listeners: Listeners = ...) -> RunHandle:
        """Run the assignments of a project's packs without an experiment file."""
        ...

    async def rate_packs(self, run: str) -> Sequence[ArmRates]:
        """How often the arms of a run got its packs wrong, and in which way."""
        ...

    def reapply_run(self, run: str, prefix: str | None = None) -> AsyncIterator[Reapplied]:
        """Repeat what the run's attempts of Task packs wrote."""
        ...

    async def rescore(self, run: str, options: RescoreOptions) -> tuple[RunHandle, Rescored]:
        """Judge the run's attempts again without its agents; the run, and what came of it."""
        ...

    async def open_run(self, prefix: str, grading: int | None = None) -> RunHandle:
        """A run, as its current grading judged it, or another one."""
        ...

    async def compare(self, first: SideChoice, second: SideChoice | None = None) -> Sequence[Comparison]:
        """Hold the second side against the first, or all arms of one run against each other."""
        ...

    async def read_report(self, file: Path) -> ImportedRun:
        """The run in a report document."""
        ...

    async def runs(self, *, every_kind: bool = False, limit: int | None = None) -> Sequence[RunInfo]:
        """Runs, newest first; runs of `orchestrate try` only with `every_kind`."""
        ...

    def events(self, run: str, *, after: str | EventCursor = BEGINNING) -> AsyncIterator[RunEvent]:
        """The run's events, from the first or the one after a cursor, until the run is no longer running."""
        ...

    def watch(self, run: str) -> AsyncIterator[RunProgress]:
        """The live counters, until the run is no longer running."""
        ...
