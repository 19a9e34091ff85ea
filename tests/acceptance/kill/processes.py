"""Which processes a run has, and which of them are still there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import psutil

COORDINATOR = "ray::CoordinatorActor"
WORKER = "ray::WorkerActor"
RAYLET = "raylet"

#: Parts of Ray that outlive a killed driver for a while and have none of our code in them: its agents, and processes
#: of its pool that were still starting, so that no actor has moved in.
_RAY_AGENTS = (
    "ray::DashboardAgent",
    "ray::RuntimeEnvAgent",
    "ray/dashboard/agent.py",
    "runtime_env/agent/main.py",
    "workers/default_worker.py",
)


class Tree:
    """Every process that a run was ever seen to have. `root` is the driver, or the Ray that it joined."""

    def __init__(self, *roots: int, without: frozenset[psutil.Process] = frozenset()) -> None:
        self._roots = roots
        self._without = without
        self._seen: set[psutil.Process] = set()

    def look(self) -> None:
        """Add what lives now; a process that has lost its parent stays known."""
        for pid in self._roots:
            with contextlib.suppress(psutil.Error):
                root = psutil.Process(pid)
                self._seen |= {root, *root.children(recursive=True)} - self._without

    async def keep_looking(self) -> None:
        while True:
            await asyncio.to_thread(self.look)
            await asyncio.sleep(0.25)

    def alive(self) -> dict[psutil.Process, str]:
        """The living ones and what each of them is."""
        return {process: name for process in self._seen if (name := called(process)) is not None}

    def find(self, name: str) -> list[psutil.Process]:
        """The living processes whose name or command line contains `name`, oldest first."""
        self.look()
        found = [process for process, what in self.alive().items() if name in what]
        return sorted(found, key=lambda process: (process.create_time(), process.pid))

    async def gone(self, seconds: float) -> list[str]:
        """Wait until all have ended; the names of those that live on after `seconds`, known agents of Ray excepted."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + seconds
        while True:
            left = [name for name in self.alive().values() if not is_ray_agent(name)]
            if not left or loop.time() >= ends_at:
                return sorted(left)
            await asyncio.sleep(0.05)


def is_ray_agent(name: str) -> bool:
    return any(agent in name for agent in _RAY_AGENTS)


def called(process: psutil.Process) -> str | None:
    """The command line of a living process; None when it has ended, if only its parent has to notice."""
    try:
        if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
            return None
        return " ".join(process.cmdline()).strip() or process.name()
    except psutil.Error:
        return None


def descendants(pid: int) -> Iterator[psutil.Process]:
    """The process and everything below it."""
    root = psutil.Process(pid)
    yield root
    yield from root.children(recursive=True)
