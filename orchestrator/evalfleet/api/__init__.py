"""The Python API: plan, run, resume and read. The command line calls these functions and nothing else."""

from __future__ import annotations

from evalfleet.api.handle import RunHandle
from evalfleet.api.planned import plan
from evalfleet.api.runs import cancel, delete, open_run, resume, runs, submit, try_, watch

__all__ = ["RunHandle", "cancel", "delete", "open_run", "plan", "resume", "runs", "submit", "try_", "watch"]
