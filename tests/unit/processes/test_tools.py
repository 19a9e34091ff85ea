"""Trusted tools: all of their output, their exit code or signal, a timeout for their process group."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from evalfleet.processes import run, start_daemon
from evalfleet.testing.sandbox_subject import alive, forever


async def test_output_exit_code_and_stdin() -> None:
    result = await run(["sh", "-c", "cat; echo err >&2; exit 3"], stdin=b"\0in\xff", timeout=10)
    assert (result.exit_code, result.stdout, result.stderr) == (3, b"\0in\xff", b"err\n")
    assert (result.stdout_bytes, result.stderr_bytes, result.timed_out, result.signal) == (4, 4, False, None)


async def test_large_streams_both_ways() -> None:
    data = b"x" * 3_000_000
    assert (await run(["cat"], stdin=data, timeout=10)).stdout == data


async def test_cwd_and_environment(tmp_path: Path) -> None:
    result = await run(["sh", "-c", "pwd; echo $ONLY; env | wc -l"], cwd=tmp_path, env={"ONLY": "this"}, timeout=10)
    assert result.text.split()[:2] == [str(tmp_path), "this"]


async def test_a_signal_is_told_from_an_exit_code() -> None:
    result = await run(["sh", "-c", "kill -9 $$"], timeout=10)
    assert (result.exit_code, result.signal) == (None, 9)


async def test_a_timeout_keeps_the_output_and_kills_the_group() -> None:
    seconds = forever()
    result = await run(["sh", "-c", f"echo before; sleep {seconds} & sleep {seconds}"], timeout=0.5)
    assert (result.exit_code, result.timed_out, result.stdout) == (None, True, b"before\n")
    assert alive(seconds) == 0


async def test_cancelling_kills_the_group() -> None:
    seconds = forever()
    task = asyncio.ensure_future(run(["sh", "-c", f"sleep {seconds}; true"], timeout=60))
    await asyncio.sleep(0.3)
    assert alive(seconds) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert alive(seconds) == 0


async def test_a_missing_program_is_an_oserror() -> None:
    with pytest.raises(FileNotFoundError):
        await run(["no-such-program"], timeout=1)


async def test_a_daemon_that_ends_leaves_no_zombie(tmp_path: Path) -> None:
    pid = start_daemon(["true"], env=None, log=tmp_path / "log")
    for _ in range(200):
        if not os.path.exists(f"/proc/{pid}"):
            return
        await asyncio.sleep(0.01)
    pytest.fail("still there")


def test_a_daemon_that_can_not_start_is_an_oserror(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        start_daemon(["no-such-program"], env=None, log=tmp_path / "log")
