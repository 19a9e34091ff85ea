"""The Python API: plan, run, resume and read. The command line calls these functions and nothing else.

Each is loaded when it is first used: a worker's process needs none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evalfleet.api.capacity import capacity
    from evalfleet.api.comparing import compare
    from evalfleet.api.handle import RunHandle
    from evalfleet.api.imported import read_report
    from evalfleet.api.packs import lint_packs, rate_packs, reapply_run, run_packs
    from evalfleet.api.planned import plan
    from evalfleet.api.reaping import reap_sandboxes, sandbox_shell, sandboxes, stop_sandbox
    from evalfleet.api.records import cancel, collect_garbage, delete, events, export, import_, open_run, runs, watch
    from evalfleet.api.rescoring import rescore
    from evalfleet.api.starting import resume, submit, try_

_HOMES = {
    "RunHandle": "evalfleet.api.handle",
    "cancel": "evalfleet.api.records",
    "capacity": "evalfleet.api.capacity",
    "collect_garbage": "evalfleet.api.records",
    "compare": "evalfleet.api.comparing",
    "delete": "evalfleet.api.records",
    "events": "evalfleet.api.records",
    "export": "evalfleet.api.records",
    "import_": "evalfleet.api.records",
    "lint_packs": "evalfleet.api.packs",
    "open_run": "evalfleet.api.records",
    "plan": "evalfleet.api.planned",
    "rate_packs": "evalfleet.api.packs",
    "read_report": "evalfleet.api.imported",
    "reap_sandboxes": "evalfleet.api.reaping",
    "reapply_run": "evalfleet.api.packs",
    "rescore": "evalfleet.api.rescoring",
    "resume": "evalfleet.api.starting",
    "run_packs": "evalfleet.api.packs",
    "runs": "evalfleet.api.records",
    "sandbox_shell": "evalfleet.api.reaping",
    "sandboxes": "evalfleet.api.reaping",
    "stop_sandbox": "evalfleet.api.reaping",
    "submit": "evalfleet.api.starting",
    "try_": "evalfleet.api.starting",
    "watch": "evalfleet.api.records",
}

__all__ = [
    "RunHandle",
    "cancel",
    "capacity",
    "collect_garbage",
    "compare",
    "delete",
    "events",
    "export",
    "import_",
    "lint_packs",
    "open_run",
    "plan",
    "rate_packs",
    "read_report",
    "reap_sandboxes",
    "reapply_run",
    "rescore",
    "resume",
    "run_packs",
    "runs",
    "sandbox_shell",
    "sandboxes",
    "stop_sandbox",
    "submit",
    "try_",
    "watch",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'evalfleet.api' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value
