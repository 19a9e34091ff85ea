"""An API over runs that a test wrote down; commands can't tell it from the real one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from evalfleet.api.imported import ImportedRun, read_report
from evalfleet.api.listeners import NOBODY, Listeners
from evalfleet.api.options import (
    CaseFilter,
    DeleteOptions,
    PlanOptions,
    ReapOptions,
    RescoreOptions,
    ResumeOptions,
    SideChoice,
    SubmitOptions,
)
from evalfleet.api.preview import Preview
from evalfleet.api.reaping import SandboxListing
from evalfleet.cli.surface import Api, RunHandle
from evalfleet.errors import ConfigurationError
from evalfleet.model.assertion import AssertionPolicy, AssertionResult, AssertionRow, Result
from evalfleet.model.coverage import COMPLETE_COVERAGE
from evalfleet.model.events import Message, Role
from evalfleet.model.grading import Basis, Rescored
from evalfleet.model.report import (
    ArmCounts,
    AttemptDetail,
    AttemptView,
    CaseView,
    RunAggregate,
    RunInfo,
    RunProgress,
)
from evalfleet.model.run_events import BEGINNING, EventCursor, RunEvent
from evalfleet.model.sandbox import SandboxView
from evalfleet.model.turn import TurnInput, TurnRecord, TurnStatus
from evalfleet.model.verdict import CaseStatus, Outcome, RunKind, RunStatus, Style, Verdict
from evalfleet.planning.discover import discover, find_project
from evalfleet.planning.experiment_file import load_experiment
from evalfleet.planning.plan import PlanTools, make_plan
from evalfleet.planning.reuse import NoHistory
from evalfleet.planning.select import Narrowing
from evalfleet.plugins import adapter_factories
from evalfleet.processes import SystemSpawner
from evalfleet.reports.classes import class_of
from evalfleet.reports.comparison import Comparison
from evalfleet.reports.document import Reported, render_document, render_documents
from evalfleet.reports.model import ReportModel, build_report
from evalfleet.store.past_costs import PastCost
from evalfleet.store.planned import UnfinishedRun
from evalfleet.store.sweep import Swept


@dataclass
class FakeRun:
    """One run; its handle, too. `closed` counts how often a handle was released."""

    cases_: list[CaseView]
    details: Mapping[int, AttemptDetail] = field(default_factory=dict[int, AttemptDetail])
    run: RunInfo = field(
        default_factory=lambda: RunInfo(
            id="7f3k2m0q1x",
            kind=RunKind.SWEEP,
            name="sweep",
            project="p",
            status=RunStatus.COMPLETED,
            total=0,
            created_at=1_750_000_000.0,
            started_at=1_750_000_000.0,
            finished_at=1_750_000_010.0,
        )
    )
    live: RunProgress | None = None
    opened: int = 0
    closed: int = 0

    @property
    def id(self) -> str:
        return self.run.id

    async def __aenter__(self) -> Self:
        self.opened += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closed += 1

    async def info(self) -> RunInfo:
        return replace(self.run, total=len(self.cases_))

    async def aggregate(self) -> RunAggregate:
        arms: dict[str, dict[str, Any]] = {}
        for case in self.cases_:
            counts = arms.setdefault(case.arm, {})
            counts[class_of(case).value] = counts.get(class_of(case).value, 0) + 1
        return RunAggregate(
            run=await self.info(),
            arms=tuple(
                ArmCounts(arm=arm, style=Style.PASS, planned=sum(counts.values()), **counts)
                for arm, counts in arms.items()
            ),
        )

    async def report(self) -> ReportModel:
        notable = CaseFilter(statuses=(CaseStatus.FAILED, CaseStatus.ERRORED, CaseStatus.BLOCKED))
        return build_report(await self.aggregate(), tuple([case async for case in self.cases(notable)]))

    async def document(self, arm: str | None = None) -> AsyncIterator[str]:
        def of(name: str) -> AsyncIterator[str]:
            reported = Reported(run=self.run, arm=name, suites={}, results={})
            return render_document(reported, self.records(CaseFilter(arm=name)))

        arms = list(dict.fromkeys(case.arm for case in self.cases_))
        chosen = arm if arm is not None or len(arms) != 1 else arms[0]
        async for piece in render_documents(self.run, arms, of) if chosen is None else of(chosen):
            yield piece

    async def progress(self) -> RunProgress | None:
        return self.live

    async def cases(self, which: CaseFilter) -> AsyncIterator[CaseView]:
        found = 0
        for case in self.cases_:
            wanted = (
                which.ordinal in (None, case.ordinal)
                and which.arm in (None, case.arm)
                and case.eval_id.startswith(which.prefix or "")
                and (which.tag is None or which.tag in case.tags)
                and (not which.statuses or case.status in which.statuses)
            )
            if wanted and (which.limit is None or found < which.limit):
                found += 1
                yield case

    async def records(self, which: CaseFilter) -> AsyncIterator[tuple[CaseView, AttemptDetail | None]]:
        async for case in self.cases(which):
            yield case, self.details.get(case.ordinal)

    async def attempts(self, case: int) -> Sequence[AttemptView]:
        return [self.details[case].view] if self.cases_[case].attempts else []

    async def attempt(self, case: int, number: int | None = None) -> AttemptDetail:
        return self.details[case]


@dataclass
class FakeApi:
    """Records what it was asked; `fail` is raised by every function that acts."""

    known: list[FakeRun] = field(default_factory=list[FakeRun])
    calls: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])
    fail: BaseException | None = None
    reported: Sequence[RunProgress] = ()
    events_told: Sequence[RunEvent] = ()
    interrupted: bool = False
    unfinished: UnfinishedRun | None = None
    went_on: bool | None = None
    compared: Sequence[Comparison] = ()
    costs: Mapping[str, PastCost] = field(default_factory=dict[str, PastCost])
    listing: SandboxListing = field(default_factory=lambda: SandboxListing(views=(), faults={}, foreign=0))
    rescored: Rescored = field(
        default_factory=lambda: Rescored(
            run="",
            grading=2,
            bases={Basis.REPLAYED: 480, Basis.KEPT: 20},
            changes={(Verdict.PASSED, Verdict.ERRORED): 3, (Verdict.PASSED, Verdict.FAILED): 12},
            diverged=3,
        )
    )

    def act(self, *call: Any) -> None:
        self.calls.append(call)
        if self.fail is not None:
            raise self.fail

    async def plan(self, experiment: Path, prefixes: Sequence[str], options: PlanOptions) -> Preview:
        """Plans for real, with the installed adapters and without any history."""
        self.act("plan", experiment.name, tuple(prefixes), options)
        factories = adapter_factories()
        loaded = load_experiment(experiment, options.overrides, factories)
        tools = PlanTools(factories=factories, spawner=SystemSpawner(), env={})
        narrowing = Narrowing(prefixes=tuple(prefixes), arms=options.arms)
        plan = await make_plan(
            loaded, discover(find_project(experiment)), tools, narrowing, allow_empty=options.allow_empty
        )
        return Preview(plan=plan, history=NoHistory(), costs=self.costs)

    async def submit(
        self,
        experiment: Path,
        prefixes: Sequence[str],
        options: SubmitOptions,
        listeners: Listeners = NOBODY,
    ) -> RunHandle:
        self.act("submit", experiment.name, tuple(prefixes), options)
        if self.unfinished is not None and listeners.unfinished is not None:
            self.went_on = listeners.unfinished(self.unfinished)
        if listeners.created is not None:
            listeners.created(self.known[0].id)
        if self.interrupted:
            raise asyncio.CancelledError
        for progress in self.reported:
            if listeners.progress is not None:
                listeners.progress(progress)
        if listeners.observer is not None:
            listeners.observer.tell(self.events_told)
        return self.known[0]

    async def try_(
        self,
        experiment: Path,
        prefixes: Sequence[str],
        options: SubmitOptions,
        listeners: Listeners = NOBODY,
    ) -> RunHandle:
        self.act("try", experiment.name, tuple(prefixes), options)
        return self.known[0]

    async def resume(self, run: str, options: ResumeOptions, listeners: Listeners = NOBODY) -> RunHandle:
        self.act("resume", run, options)
        return await self.open_run(run)

    async def cancel(self, run: str) -> tuple[str, bool]:
        self.act("cancel", run)
        info = await (await self.open_run(run)).info()
        return info.id, info.status is RunStatus.RUNNING

    async def delete(self, run: str, options: DeleteOptions) -> str:
        self.act("delete", run, options)
        return (await self.open_run(run)).id

    async def export(self, run: str, target: Path | None = None) -> tuple[str, Path]:
        self.act("export", run, target)
        path = target or Path(f"{run}.evalfleet")
        path.write_bytes(b"12345")
        return (await self.open_run(run)).id, path

    async def import_(self, file: Path) -> str:
        self.act("import", file.name)
        return self.known[0].id

    async def collect_garbage(self, *, tries_older_than: float, dry_run: bool) -> tuple[Sequence[str], Swept]:
        self.act("gc", tries_older_than, dry_run)
        return [run.id for run in self.known], Swept(objects={"8r": 2, "9r": 1}, size=2048, unknown=("0ther",))

    async def sandboxes(self) -> SandboxListing:
        self.act("sandboxes")
        return self.listing

    async def reap_sandboxes(self, options: ReapOptions) -> Sequence[SandboxView]:
        self.act("reap", options)
        return self.listing.views

    async def sandbox_shell(self, target: str) -> tuple[str, ...]:
        self.act("shell", target)
        return ("true",)

    async def stop_sandbox(self, target: str) -> SandboxView:
        self.act("stop", target)
        return self.listing.views[0]

    async def read_report(self, file: Path) -> ImportedRun:
        return await read_report(file)

    async def rescore(self, run: str, options: RescoreOptions) -> tuple[RunHandle, Rescored]:
        self.act("rescore", run, options)
        return await self.open_run(run), replace(self.rescored, run=(await self.open_run(run)).id)

    async def open_run(self, prefix: str, grading: int | None = None) -> RunHandle:
        found = [run for run in self.known if run.id.startswith(prefix)]
        if len(found) != 1:
            raise ConfigurationError(f"{len(found)} runs begin with {prefix!r} (orchestrate runs lists them)")
        found[0].run = replace(found[0].run, grading=grading or 0)
        return found[0]

    async def compare(self, first: SideChoice, second: SideChoice | None = None) -> Sequence[Comparison]:
        self.act("compare", first, second)
        return self.compared

    async def runs(self, *, every_kind: bool = False, limit: int | None = None) -> Sequence[RunInfo]:
        runs = [await run.info() for run in self.known]
        return [run for run in runs if every_kind or run.kind is RunKind.SWEEP][:limit]

    async def events(self, run: str, *, after: str | EventCursor = BEGINNING) -> AsyncIterator[RunEvent]:
        self.act("events", str(after))
        for event in self.events_told:
            yield event

    async def watch(self, run: str) -> AsyncIterator[RunProgress]:
        await self.open_run(run)
        for progress in self.reported:
            yield progress


def as_api(fake: FakeApi) -> Api:
    """Checked by pyright: the fake has the surface of the API."""
    return fake


def case(ordinal: int, status: CaseStatus = CaseStatus.PASSED, **fields: Any) -> CaseView:
    values: dict[str, Any] = {
        "arm": "small",
        "eval_id": f"sql/{ordinal:04}",
        "style": Style.PASS,
        "repetition": 0,
        "attempts": 1,
    }
    return CaseView(ordinal=ordinal, status=status, **{**values, **fields})


def detail(ordinal: int, said: str, verdict: Verdict = Verdict.PASSED) -> AttemptDetail:
    turn = TurnRecord(
        session=0,
        index=0,
        sequence=0,
        input=TurnInput("hello"),
        status=TurnStatus.COMPLETED,
        events=(Message(Role.USER, "hello"), Message(Role.ASSISTANT, said)),
        data=None,
        usage=None,
        coverage=COMPLETE_COVERAGE,
        started_at=0.0,
        duration=0.5,
    )
    row = AssertionRow(
        index=0,
        name="check",
        scope="value",
        criterion={"includes": "sunny"},
        policy=AssertionPolicy(),
        outcome=AssertionResult(result=Result.MATCHED),
        holds=True,
        source="evals/sql.eval.py:7",
    )
    view = AttemptView(
        attempt=1 << 40 | ordinal,
        case=ordinal,
        number=1,
        outcome=Outcome.COMPLETED,
        settles=True,
        worker="w",
        started_at=0.0,
        duration=0.6,
        verdict=verdict,
    )
    return AttemptDetail(view=view, turns=(turn,), assertions=(row,))


def progress(settled: int, at: float = 0.0, **fields: Any) -> RunProgress:
    values: dict[str, Any] = {
        "at": at,
        "total": 10,
        "settled": settled,
        "passed": settled,
        "failed": 0,
        "errored": 0,
        "running": 2,
        "rate": 2.0,
        "cost_usd": 0.0,
    }
    return RunProgress(**{**values, **fields})
