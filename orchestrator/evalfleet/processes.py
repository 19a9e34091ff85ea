"""The only place that starts processes: trusted tools, daemons, and commands whose whole tree must die with us."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from evalfleet.ports import CommandResult

_PR_SET_PDEATHSIG = 1
_PARENT_POLL_SECONDS = 0.5


def die_with_parent() -> None:
    """End this process, by SIGKILL, as soon as its parent is gone; the first line of every actor.

    On Linux the kernel does it, and the setting belongs to the calling thread: call it from one that lives as
    long as the process. Elsewhere a thread polls the parent's id.
    """
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it went before the call took effect
            os.kill(os.getpid(), signal.SIGKILL)
    else:
        threading.Thread(target=_poll_parent, args=(parent,), name="die-with-parent", daemon=True).start()


def _poll_parent(parent: int) -> None:
    pause = threading.Event()
    while os.getppid() == parent:
        pause.wait(_PARENT_POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


def start_daemon(argv: Sequence[str], *, env: Mapping[str, str] | None, log: Path) -> int:
    """Start a process that outlives this one, in its own session, and return its pid.

    Its output is appended to `log`; it has no input; `env` replaces the environment unless None. It is reaped
    should it end while this process lives. Raises OSError when the program can't be started.
    """
    with log.open("ab") as output:
        daemon = subprocess.Popen(
            list(argv),
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    threading.Thread(target=daemon.wait, name=f"reap-{daemon.pid}", daemon=True).start()
    return daemon.pid


async def run(
    argv: Sequence[str],
    *,
    timeout: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: bytes | None = None,
) -> CommandResult:
    """Run a trusted, well-behaved tool (git, initdb) to its end, keeping all of its output.

    `timeout` is in seconds; the tool's process group is killed when it passes or the caller is cancelled.
    `env` replaces the environment unless None. Raises OSError when the program can't be started.
    """
    loop = asyncio.get_running_loop()
    started = loop.time()
    process = await asyncio.create_subprocess_exec(
        *argv,
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    timed_out = False
    talk = asyncio.ensure_future(process.communicate(stdin))
    try:
        await asyncio.wait_for(asyncio.shield(talk), timeout)
    except TimeoutError:
        timed_out = True
    finally:
        if not talk.done():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    stdout, stderr = await talk
    code = process.returncode
    killed = code is not None and code < 0
    return CommandResult(
        exit_code=None if killed or timed_out else code,
        stdout=stdout,
        stderr=stderr,
        duration=loop.time() - started,
        timed_out=timed_out,
        signal=-code if code is not None and killed and not timed_out else None,
        stdout_bytes=len(stdout),
        stderr_bytes=len(stderr),
    )
