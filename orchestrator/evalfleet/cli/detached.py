"""A run that goes on after its terminal: the same command line again, as a process of its own with a log."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from evalfleet import processes
from evalfleet.api.confirming import confirm
from evalfleet.api.options import PlanOptions, SubmitOptions
from evalfleet.cli.application import Application
from evalfleet.cli.costly import cost_choice
from evalfleet.clock import SystemClock
from evalfleet.errors import InfrastructureError
from evalfleet.reports.exit_code import ExitCode
from evalfleet.settings import Settings

RUN_LINE = "run "
_LOOK_SECONDS = 0.1


async def submit_detached(
    application: Application, experiment: Path, prefixes: Sequence[str], chosen: SubmitOptions
) -> ExitCode:
    """Plan here, so that what is wrong is said here; then leave the run to a process of its own.

    Raises InfrastructureError with the end of that process's log when it ends before its run begins.
    """
    narrowed = PlanOptions(
        overrides=chosen.overrides, arms=chosen.arms, allow_empty=chosen.allow_empty, reuse=chosen.reuse
    )
    preview = await application.api.plan(experiment, prefixes, narrowed)
    if not chosen.confirmed:
        confirm(preview.plan, preview.actions(), preview.costs, cost_choice(application))
    log = _new_log(Settings.from_environment().state_dir / "logs")
    arguments = [argument for argument in application.arguments if argument != "--detach"]
    if not chosen.confirmed:
        arguments.append("--yes")  # nobody sits at the terminal of the process that goes on
    pid = processes.start_daemon([sys.executable, "-m", "evalfleet.cli.main", *arguments], env=None, log=log)
    run = await _run_id(pid, log)
    application.note(f"{RUN_LINE}{run}")
    if application.json:
        application.value({"run": run, "log": str(log)})
    else:
        application.lines([f"watch it: orchestrate watch {run}", f"its log:  {log}"])
    return ExitCode.ACCEPTED


def _new_log(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix="submit-", suffix=".log", dir=folder)
    os.close(descriptor)
    return Path(name)


async def _run_id(pid: int, log: Path) -> str:
    """What the process says first."""
    clock = SystemClock()
    while True:
        ended = not processes.process_alive(pid)
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        said = [line.removeprefix(RUN_LINE) for line in lines if line.startswith(RUN_LINE)]
        if said:
            return said[0]
        if ended:
            last = lines[-1].removeprefix("error: ") if lines else "it said nothing"
            raise InfrastructureError(f"the detached command ended before its run began: {last} (see {log})")
        await clock.sleep(_LOOK_SECONDS)
