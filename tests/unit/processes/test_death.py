"""Who dies with whom: real processes, killed by SIGKILL."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from evalfleet.testing.sandbox_subject import alive, forever

WORKER = """
import asyncio, multiprocessing, sys, time
from evalfleet.sandbox_ports import Command
from evalfleet.processes import SystemSpawner

script, forks = sys.argv[1], sys.argv[2] == "forks"

async def main():
    spawner = SystemSpawner()
    run = asyncio.ensure_future(spawner.run(Command(argv=("sh", "-c", script)), base_env={"PATH": "/usr/bin:/bin"}))
    await asyncio.sleep(0.3)
    if forks:
        multiprocessing.get_context("fork").Process(target=time.sleep, args=(20,)).start()
    print("ready", flush=True)
    await run

asyncio.run(main())
"""

DYING = """
import os, sys, time
from evalfleet.processes import die_with_parent
die_with_parent()
print(os.getpid(), flush=True)
time.sleep(60)
"""

PARENT = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", sys.argv[1]])
time.sleep(60)
"""

STARTER = """
import sys
from pathlib import Path
from evalfleet.processes import start_daemon
command = ["sh", "-c", "echo up; exec sleep " + sys.argv[1]]
print(start_daemon(command, env={"PATH": "/usr/bin:/bin"}, log=Path(sys.argv[2])), flush=True)
sys.stdin.read()
"""


def wait_for(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


def exists(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("forks", ["forks", "alone"])
@pytest.mark.parametrize(
    "script",
    [
        "sleep {0}",
        "sleep {0} & sleep {0}; true",
        "trap '' TERM HUP INT; setsid sleep {0} & (env -i setsid sleep {0} &) ; sleep {0}; true",
    ],
    ids=["child", "grandchildren", "detached"],
)
def test_a_killed_worker_takes_its_commands_along(script: str, forks: str) -> None:
    """Also when a fork of the worker lives on and holds copies of all its sockets."""
    seconds = forever()
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, script.format(seconds), forks], stdout=subprocess.PIPE, start_new_session=True
    )
    assert worker.stdout is not None
    try:
        assert worker.stdout.readline() == b"ready\n"
        assert wait_for(lambda: alive(seconds) == script.count("sleep"))
        helpers = [pid for pid in pids() if launched_by(pid) == worker.pid]
        assert len(helpers) == 2  # the launcher and one supervisor
        worker.kill()
        worker.wait()
        assert wait_for(lambda: alive(seconds) == 0)
        assert wait_for(lambda: not any(exists(pid) for pid in helpers))
    finally:
        with worker.stdout, contextlib.suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)


def test_a_process_that_dies_with_its_parent() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, DYING], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    with parent.stdout:
        child = int(parent.stdout.readline())
        assert exists(child)
        parent.kill()
        parent.wait()
        assert wait_for(lambda: not exists(child))


def test_a_daemon_outlives_its_starter_and_logs(tmp_path: Path) -> None:
    seconds, log = forever(), tmp_path / "log"
    log.write_text("before\n")
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, seconds, str(log)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert starter.stdout is not None and starter.stdin is not None
    with starter.stdout, starter.stdin:
        daemon = int(starter.stdout.readline())
        try:
            assert wait_for(lambda: alive(seconds) == 1)
            starter.kill()
            starter.wait()
            time.sleep(0.2)
            assert exists(daemon)
            assert os.getsid(daemon) == daemon
            assert log.read_text() == "before\nup\n"
        finally:
            os.kill(daemon, signal.SIGKILL)


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def launched_by(pid: int) -> int | None:
    """The worker that a launcher or a supervisor serves, from its command line."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return None
    return int(arguments[6]) if len(arguments) > 6 and b"process_main" in arguments[4] else None
