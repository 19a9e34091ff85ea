from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import psutil
import pytest

from tests.acceptance.kill.command import AUTHENTICATION
from tests.acceptance.kill.processes import RAYLET


class JoinedRay:
    """A running Ray below process `pid`, to be joined at `address`. All its nodes are on this machine."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._stdin = process.stdin
        self.pid = process.pid
        self.address = process.stdout.readline().strip()
        assert self.address, "Ray did not start"

    def add_node(self) -> None:
        """Ask for one more node like the first; it comes a moment later."""
        self._stdin.write("\n")
        self._stdin.flush()

    def raylets(self) -> list[psutil.Process]:
        """The living nodes, the head first."""
        below = psutil.Process(self.pid).children()
        found = [each for each in below if each.name() == RAYLET and each.status() != psutil.STATUS_ZOMBIE]
        return sorted(found, key=lambda raylet: raylet.create_time())


@contextmanager
def _running(cpus: int) -> Generator[JoinedRay, None, None]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("EVALFLEET_", "RAY_"))}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.acceptance.kill.cluster", str(cpus)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**kept, **AUTHENTICATION},
        start_new_session=True,
    ) as process:
        try:
            yield JoinedRay(process)
        finally:
            process.communicate()


@pytest.fixture(scope="session")
def joined_ray() -> Iterator[JoinedRay]:
    """One Ray of one node for every run that joins it."""
    with _running(4) as ray:
        yield ray


@pytest.fixture
def small_nodes() -> Iterator[JoinedRay]:
    """A Ray whose nodes take one worker each."""
    with _running(1) as ray:
        yield ray
