"""What a command that waited for a run prints at its end, and its exit code."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from evalfleet.cli.application import Application
from evalfleet.cli.report_files import Format, render, write_pieces
from evalfleet.cli.surface import RunHandle
from evalfleet.reports.exit_code import ExitCode, exit_code
from evalfleet.reports.json_report import report_value
from evalfleet.reports.text import render_text

#: Where the files of `reporters` go, below the current directory, in a folder a run.
REPORTS = "reports"


@contextmanager
def telling_how_to_resume(
    application: Application, more: Sequence[str] = ()
) -> Generator[Callable[[str], None], None, None]:
    """Prints a run's id when it is created, `more` after it, and how to go on with the run when it is interrupted."""
    known: list[str] = []

    def created(run: str) -> None:
        known.append(run)
        for line in (f"run {run}", *more):
            application.note(line)

    try:
        yield created
    except CancelledError:
        for run in known:
            application.note(f"run {run} keeps what it settled: orchestrate resume {run} goes on")
        raise


async def conclude(application: Application, run: RunHandle) -> ExitCode:
    """Print the summary of a run that ended, and write the files that its experiment asks for."""
    report = await run.report()
    if application.json:
        application.value(report_value(report))
    else:
        application.lines(render_text(report))
    for name in report.run.experiment.get("reporters", ()):
        form = Format("md" if name == "markdown" else name)
        target = Path(REPORTS, run.id, form.file_name)
        await write_pieces(target, render(form, report, run))
        application.note(f"wrote {target}")
    return exit_code(report.run.status, report.accepted.decision)
