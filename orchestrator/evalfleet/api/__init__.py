"""The Python API: plan, run, resume and read. The command line calls these functions and nothing else.

Each is loaded when it is first used: a worker's process needs none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evalfleet.api.handle import RunHandle
    from evalfleet.api.planned import plan
    from evalfleet.api.records import cancel, collect_garbage, delete, export, import_, open_run, runs, watch
    from evalfleet.api.rescoring import rescore
    from evalfleet.api.starting import resume, submit, try_

_HOMES = {
    "RunHandle": "evalfleet.api.handle",
    "cancel": "evalfleet.api.records",
    "collect_garbage": "evalfleet.api.records",
    "delete": "evalfleet.api.records",
    "export": "evalfleet.api.records",
    "import_": "evalfleet.api.records",
    "open_run": "evalfleet.api.records",
    "plan": "evalfleet.api.planned",
    "rescore": "evalfleet.api.rescoring",
    "resume": "evalfleet.api.starting",
    "runs": "evalfleet.api.records",
    "submit": "evalfleet.api.starting",
    "try_": "evalfleet.api.starting",
    "watch": "evalfleet.api.records",
}

__all__ = [
    "RunHandle",
    "cancel",
    "collect_garbage",
    "delete",
    "export",
    "import_",
    "open_run",
    "plan",
    "rescore",
    "resume",
    "runs",
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
