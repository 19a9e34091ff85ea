"""Failpoints kill the process that passes them, at the time they are armed for, and with a file only one of several."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

_PASSES = """
import sys
from evalfleet.store.failpoints import Failpoints

failpoint = Failpoints(sys.argv[1])
for number in range(5):
    failpoint("before_copy")
    failpoint("after_copy")
    print(number, flush=True)
"""


def passed(armed: str) -> int:
    """How often a process passed both places; it ends by the failpoint or after five times."""
    done = subprocess.run([sys.executable, "-c", _PASSES, armed], capture_output=True, text=True, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    times = len(done.stdout.splitlines())
    assert (done.returncode == 0) == (times == 5)
    return times


@pytest.mark.parametrize(
    ("armed", "times"), [("", 5), ("elsewhere", 5), ("before_copy", 0), ("after_copy", 0), ("after_copy:3", 2)]
)
def test_every_process_that_passes_often_enough_is_killed(armed: str, times: int) -> None:
    assert passed(armed) == times


def test_with_a_file_one_process_is_killed_once_its_folder_is_there(tmp_path: Path) -> None:
    fired = tmp_path / "armed" / "fired"
    assert passed(f"after_copy:2@{fired}") == 5
    fired.parent.mkdir()
    assert passed(f"after_copy:2@{fired}") == 1
    assert fired.exists()
    assert passed(f"after_copy:2@{fired}") == 5
