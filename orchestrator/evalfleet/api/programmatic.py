"""`evalfleet.run`, `run_sync`, `open` and `watch`: runs as plain objects for scripts and notebooks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypedDict, TypeVar, Unpack

from evalfleet.api.call_options import check_options
from evalfleet.api.comparing import compare as compare_chosen
from evalfleet.api.handle import RunHandle
from evalfleet.api.listeners import OBSERVER_DEADLINE, Listeners, Observer
from evalfleet.api.options import CaseFilter, RescoreOptions, SideChoice, SubmitOptions
from evalfleet.api.portal import Portal
from evalfleet.api.records import events, open_run, watch
from evalfleet.api.rescoring import rescore as judge_again
from evalfleet.api.starting import submit
from evalfleet.errors import ConfigurationError
from evalfleet.model.assertion import AssertionRow
from evalfleet.model.grading import Grading, Rescored
from evalfleet.model.report import AttemptDetail, CaseView, RunProgress
from evalfleet.model.run_events import RunEvent
from evalfleet.model.turn import TurnRecord
from evalfleet.model.verdict import CaseStatus, RunStatus
from evalfleet.reports.comparison import Comparison
from evalfleet.reports.divergence import Divergence, first_divergence
from evalfleet.reports.json_report import report_value
from evalfleet.reports.markdown import render_markdown
from evalfleet.reports.model import ReportModel
from evalfleet.reports.text import render_text

__all__ = [
    "CaseResult",
    "Rescored",
    "Run",
    "compare",
    "compare_sync",
    "events",
    "open",
    "rescore",
    "run",
    "run_sync",
    "watch",
]

T = TypeVar("T")

#: Cases with evidence that are handed from the reader's thread at once.
_TOGETHER = 16


class CaseResult:
    """One case of a run: its listed facts, and its evidence when asked for."""

    def __init__(self, run: Run, view: CaseView, detail: AttemptDetail | None = None) -> None:
        self._run = run
        self.view = view
        self._detail = detail

    @property
    def eval_id(self) -> str:
        return self.view.eval_id

    @property
    def arm(self) -> str:
        return self.view.arm

    @property
    def status(self) -> CaseStatus:
        return self.view.status

    @property
    def detail(self) -> AttemptDetail:
        """The attempt that settled the case, with all its evidence; read once."""
        if self._detail is None:
            self._detail = self._run.attempt(self.view.ordinal)
        return self._detail

    @property
    def turns(self) -> tuple[TurnRecord, ...]:
        return self.detail.turns

    @property
    def assertions(self) -> tuple[AssertionRow, ...]:
        return self.detail.assertions

    def first_divergence(self) -> Divergence | None:
        """The first assertion that decides and does not hold, or the failure, with what is recorded at each boundary.

        None when all hold and nothing failed.
        """
        return first_divergence(self.view, self.detail)

    def __repr__(self) -> str:
        return f"<case {self.view.ordinal} {self.arm}/{self.eval_id} #{self.view.repetition + 1}: {self.status.value}>"


class Run:
    """A run, read with plain calls, also inside a running event loop. Close it, or use it in a `with` block.

    `grading` is the one that was asked for, None for the run's current one.
    """

    def __init__(self, run_id: str, grading: int | None = None) -> None:
        self.grading = grading
        self._portal = Portal()
        try:
            self._handle: RunHandle = self._portal.call(open_run(run_id, grading))
        except BaseException:
            self._portal.close()
            raise

    @property
    def id(self) -> str:
        return self._handle.id

    @property
    def gradings(self) -> Sequence[Grading]:
        """Each time that the run's attempts were judged again, in order."""
        return self._portal.call(self._handle.gradings())

    @property
    def status(self) -> RunStatus:
        return self._portal.call(self._handle.info()).status

    @property
    def accepted(self) -> bool | None:
        """The experiment's acceptance rule; None when the evidence can't decide it."""
        return self._portal.call(self._handle.accepted()).decision

    @property
    def summary(self) -> dict[str, Any]:
        """The run's figures as JSON: counts, headlines and their bounds by arm."""
        return report_value(self._figures())

    def report(self, arm: str | None = None) -> dict[str, Any]:
        """The report document of an arm as JSON; without one of all arms, `{run, arms: {name: …}}` if several.

        Raises ConfigurationError when there is no such arm.
        """
        return self._portal.call(_whole(self._handle.document(arm)))

    def is_accepted(self, predicate: Callable[[dict[str, Any]], bool]) -> bool:
        """Your own acceptance rule, which every arm's report document has to meet."""
        report = self.report()
        return all(predicate(each) for each in (report["arms"].values() if "arms" in report else (report,)))

    def _figures(self) -> ReportModel:
        return self._portal.call(self._handle.report())

    def cases(
        self,
        status: CaseStatus | str | None = None,
        *,
        arm: str | None = None,
        prefix: str | None = None,
        evidence: bool = False,
    ) -> Iterator[CaseResult]:
        """Cases in planned order. `evidence` reads that of each along with it, for many at a time."""
        statuses = () if status is None else (CaseStatus(status),)
        which = CaseFilter(statuses=statuses, arm=arm, prefix=prefix)
        if evidence:
            return self._with_evidence(self._handle.records(which))
        return (CaseResult(self, view) for view in self._portal.call(self._listed(which)))

    def attempt(self, case: int, number: int | None = None) -> AttemptDetail:
        """An attempt with its evidence; without a number the one that settles the case."""
        return self._portal.call(self._handle.attempt(case, number))

    def close(self) -> None:
        """Release the record store. May be called twice."""
        if self._portal.closed:
            return
        self._portal.call(self._handle.close())
        self._portal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<run {self.id}: {self.status.value}>"

    def __str__(self) -> str:
        return "\n".join(render_text(self._figures()))

    def _repr_markdown_(self) -> str:
        return render_markdown(self._figures())

    async def _listed(self, which: CaseFilter) -> list[CaseView]:
        return [view async for view in self._handle.cases(which)]

    def _with_evidence(self, records: AsyncIterator[tuple[CaseView, AttemptDetail | None]]) -> Iterator[CaseResult]:
        while found := self._portal.call(_next(records, _TOGETHER)):
            yield from (CaseResult(self, view, detail) for view, detail in found)


async def _whole(pieces: AsyncIterator[str]) -> dict[str, Any]:
    """A document from its pieces."""
    return json.loads("".join([piece async for piece in pieces]))


async def _next(items: AsyncIterator[T], count: int) -> list[T]:
    """Up to `count` more of them."""
    found: list[T] = []
    async for item in items:
        found.append(item)
        if len(found) == count:
            break
    return found


class RunOptions(TypedDict, total=False):
    """How `run` narrows and changes an experiment.

    `select` holds eval id prefixes, `overrides` dotted fields to values as written; `address` names a Ray
    cluster, without one the run is inline; `on_event` is told the live counters about once a second. `affected_by`
    names a run: only the evals of its failed and errored cases run, all of them anew.
    """

    select: Sequence[str]
    arms: Sequence[str]
    overrides: Mapping[str, str]
    reuse: bool
    affected_by: str | Run | None
    address: str | None
    on_event: Callable[[RunEvent], Awaitable[None] | None] | None
    event_deadline: float
    on_progress: Callable[[RunProgress], None] | None


async def run(experiment: str | Path, **options: Unpack[RunOptions]) -> Run:
    """Run an experiment and return it when it has ended. See `RunOptions`.

    Prints nothing and never exits; failed criteria return. Raises DefinitionError when the definitions are
    or the options invalid, StoreError or InfrastructureError when the run can't be carried out, ObserverFailed when
    `on_event` fails.
    """
    check_options(options, [*RunOptions.__annotations__])
    address, affected = options.get("address"), options.get("affected_by")
    chosen = SubmitOptions(
        overrides=dict(options.get("overrides", {})),
        arms=tuple(options.get("arms", ())),
        reuse=options.get("reuse", False),
        affected_by=affected.id if isinstance(affected, Run) else affected,
        address=address,
        inline=address is None,
    )
    on_event, deadline = options.get("on_event"), options.get("event_deadline", OBSERVER_DEADLINE)
    observer = None if on_event is None else Observer(on_event, deadline=deadline)
    listeners = Listeners(progress=options.get("on_progress"), observer=observer)
    handle = await submit(Path(experiment), tuple(options.get("select", ())), chosen, listeners)
    async with handle:
        # Opened before the other is closed, so that an embedded server is not stopped in between.
        return await asyncio.to_thread(Run, handle.id)


def run_sync(experiment: str | Path, **options: Unpack[RunOptions]) -> Run:
    """`run` for plain scripts. Raises ConfigurationError inside a running event loop, where `await run(…)` belongs."""
    return _outside_a_loop(run(experiment, **options), "await evalfleet.run(…)")


async def compare(first: str | Run, second: str | Run | None = None) -> Sequence[Comparison]:
    """Hold the second side against the first, or all arms of one run against each other.

    A side is a run, or `RUN` or `RUN:ARM` as text; without an arm it is all its arms, each held against the one of the
    same name. Raises ConfigurationError when there is no such run or arm, or evals of pass and of score style.
    """
    return await compare_chosen(_side(first), None if second is None else _side(second))


def compare_sync(first: str | Run, second: str | Run | None = None) -> Sequence[Comparison]:
    """`compare` for plain scripts. Raises ConfigurationError inside a running event loop."""
    return _outside_a_loop(compare(first, second), "await evalfleet.compare(…)")


def _side(side: str | Run) -> SideChoice:
    return SideChoice.parsed(side) if isinstance(side, str) else SideChoice(side.id, grading=side.grading)


def _outside_a_loop(work: Coroutine[Any, Any, T], instead: str) -> T:
    """Run `work` where no event loop runs; else say what belongs there `instead`."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    work.close()
    raise ConfigurationError(f"an event loop runs here already: use `{instead}`")


def open(run_id: str, grading: int | None = None) -> Run:
    """A run by its id or an unambiguous prefix of it, as its current grading or the one with this number judged it.

    Raises ConfigurationError when there is none.
    """
    return Run(run_id, grading)


async def rescore(
    run: str | Run, *, evals: str | Path | None = None, only_unavailable: bool = False, reason: str = ""
) -> Rescored:
    """Judge a run's recorded attempts again by its evals as they are now, or those of the project `evals`.

    No agent is called. It becomes the run's current grading, which whoever opens the run from now on reads; with
    `only_unavailable` what already has a verdict keeps it. Raises RunHeld while the run is worked on, DefinitionError
    when its evals can't be loaded.
    """
    options = RescoreOptions(
        evals=None if evals is None else Path(evals), only_unavailable=only_unavailable, reason=reason
    )
    handle, rescored = await judge_again(run if isinstance(run, str) else run.id, options)
    await handle.close()
    return rescored
