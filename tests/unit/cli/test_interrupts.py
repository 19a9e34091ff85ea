"""Real signals to a real process: once to stop in good order, twice to stop at once."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAM = """
import asyncio, sys
from evalfleet.cli.application import Application
from evalfleet.cli.main import invoke
from tests.unit.cli.fake_api import FakeApi

class Slow(FakeApi):
    async def cancel(self, run):
        print("working", flush=True)
        try:
            await asyncio.sleep(60)
        finally:
            print("cleaning", flush=True)
            {cleanup}
            print("clean", flush=True)

sys.exit(invoke(["cancel", "7f3"], Application(Slow)))
"""


@pytest.fixture
def start(tmp_path: Path) -> Callable[[str], subprocess.Popen[str]]:
    def run(cleanup: str) -> subprocess.Popen[str]:
        script = tmp_path / "slow.py"
        script.write_text(PROGRAM.replace("{cleanup}", cleanup))
        return subprocess.Popen(
            [sys.executable, script],
            env={"PYTHONPATH": str(Path(__file__).parents[3])},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return run


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_cancels_and_waits_for_the_cleanup(
    number: signal.Signals, start: Callable[[str], subprocess.Popen[str]]
) -> None:
    with start("await asyncio.sleep(0.05)") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "working\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
    assert out == "cleaning\nclean\n"
    assert err.split("\n")[0] == "stopping: what runs is cancelled and cleaned up; once more to stop at once"
    assert "error: cancelled" in err
    assert "Traceback" not in err
    assert process.returncode == 130


def test_a_second_signal_does_not_wait_for_a_cleanup_that_hangs(
    start: Callable[[str], subprocess.Popen[str]],
) -> None:
    with start("await asyncio.sleep(60)") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "working\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "cleaning\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert out == ""
    assert "Traceback" not in err
    assert process.returncode == 130


def test_a_second_signal_reaches_code_that_blocks_the_loop(start: Callable[[str], subprocess.Popen[str]]) -> None:
    with start("import time; time.sleep(60)") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "working\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "cleaning\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert "Traceback" not in err
    assert process.returncode == 130
