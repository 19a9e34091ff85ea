"""`python -m evalfleet.cli.standby ADDRESS`: a process that has done what every run begins with, and waits for one.

It has imported what a run needs, has joined the Ray of `orchestrate up` and keeps the actors of one run ready there.
One command line is handed to it; when that is carried out it ends, and `up` starts the next.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from evalfleet.api import starting
from evalfleet.api.warm import warm_ray
from evalfleet.cli.application import Application
from evalfleet.cli.commands import resume, submit
from evalfleet.cli.front import may_be_handed_over
from evalfleet.cli.main import invoke, load_api
from evalfleet.collector import spare_collections
from evalfleet.handover import CommandLine, listening, own_limits, standby_socket, take
from evalfleet.plugins import ray_engine
from evalfleet.processes import die_with_parent
from evalfleet.settings import Settings, own_environment, ray_settings
from evalfleet.socket_places import make_ours

#: Imported for what they import.
_USED = (starting, resume, submit)


def main() -> None:
    """Wait for a command line, carry it out, and let its giver end with its code."""
    die_with_parent()
    settings = Settings.from_environment()
    path = standby_socket(settings)
    make_ours(path.parent, "set EVALFLEET_HOME to a directory of your own")
    began = _Began(settings, ray_settings(own_environment()), own_limits())
    with ray_engine().held(sys.argv[1]):
        unfit = partial(_unfit, began, _loaded())
        spare_collections()
        with listening(path) as listener:
            taken = take(listener, unfit)
        code = 1
        try:
            taken.begin()
            code = invoke(taken.line.arguments, Application(load_api))
        finally:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            taken.finish(code)


class _Began(NamedTuple):
    """What this process was given, before Ray changed any of it."""

    settings: Settings
    ray: dict[str, str]
    limits: Mapping[str, list[int]]


def _unfit(began: _Began, loaded: Mapping[Path, int], line: CommandLine) -> str | None:
    """Why this process would not do the same as one of the caller's own."""
    theirs = Settings.from_environment(line.environment)
    warm = warm_ray(began.settings)
    if warm is None or not may_be_handed_over(line.arguments):
        return "this is none of its commands"
    if _changed(loaded):
        sys.exit(0)  # the next one has the new code
    if theirs.state_dir != began.settings.state_dir or theirs.ray_address is not None:
        return "it goes to another Ray"
    # Ray adds variables of its own, so that there may be more of them here.
    asked = ray_settings(line.environment)
    if warm.differences(line.environment) or not asked.items() <= began.ray.items():
        return "its environment is another"
    return None if line.limits == began.limits else "its limits are others"


def _loaded() -> dict[Path, int]:
    """The files that this process has loaded code of ours from, as they were."""
    files = [getattr(module, "__file__", None) for name, module in sys.modules.items() if name.startswith("evalfleet")]
    return {Path(file): Path(file).stat().st_mtime_ns for file in files if file is not None}


def _changed(loaded: Mapping[Path, int]) -> bool:
    return any(not path.exists() or path.stat().st_mtime_ns != then for path, then in loaded.items())


if __name__ == "__main__":
    main()
