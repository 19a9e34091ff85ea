"""The live counters of a run: a bar on a terminal, a line now and then elsewhere. On stderr: stdout is for results."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from evalfleet.model.report import RunProgress
from evalfleet.reports.budget_line import budget_line
from evalfleet.reports.figures import money, seconds
from evalfleet.reports.wording import failure_counts

LINE_EVERY_SECONDS = 10.0


def counters(progress: RunProgress) -> str:
    """The counters in words: what became of the settled cases, pace, time left, money, failures, what is paused."""
    judged = progress.judge_usd or progress.unknown_judge_cost
    left = (progress.total - progress.settled) / progress.rate if progress.rate > 0 else None
    parts = [
        f"{progress.passed} passed",
        f"{progress.failed} failed",
        f"{progress.errored} errored",
        f"{progress.running} running",
        f"{progress.rate:.1f}/s",
        f"{seconds(left)} left" if left is not None and progress.settled < progress.total else "",
        money(progress.cost_usd) if progress.cost_usd else "",
        f"judges {money(progress.judge_usd, progress.unknown_judge_cost)}" if judged else "",
        budget_line(progress.budget),
        failure_counts(progress.failures_by_kind),
        *(f"arm {arm} paused: {why}" for arm, why in progress.paused.items()),
    ]
    return " · ".join(part for part in parts if part)


def progress_line(progress: RunProgress) -> str:
    """The same with how much is settled, for logs and pipes."""
    return f"{progress.settled}/{progress.total} settled · {counters(progress)}"


class ProgressDisplay:
    """Shows each `RunProgress` it is given. `update` is an observer of `submit`."""

    def __init__(self, *, hidden: bool = False, console: Console | None = None) -> None:
        self._hidden = hidden
        self._console = console or Console(stderr=True, highlight=False, markup=False)
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._last: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, progress: RunProgress) -> None:
        """Show the newest counters."""
        if self._hidden:
            return
        if self._console.is_terminal:
            self._draw(progress)
        elif self._last is None or progress.at - self._last >= LINE_EVERY_SECONDS:
            self._last = progress.at
            self._console.print(progress_line(progress), soft_wrap=True)

    def _draw(self, progress: RunProgress) -> None:
        if self._bar is None or self._task is None:
            # only now: until the run begins somebody may be asked a question in this place
            columns = (BarColumn(bar_width=24), MofNCompleteColumn(), TextColumn("{task.description}", markup=False))
            self._bar = Progress(*columns, console=self._console, transient=True, refresh_per_second=4)
            self._bar.start()
            self._task = self._bar.add_task("", total=progress.total)
        self._bar.update(self._task, completed=progress.settled, total=progress.total, description=counters(progress))
