"""What `tests/conftest.py` groups runs in one process: pytest and pytest-xdist have to agree on how that is said."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = """
import os
from pathlib import Path

import pytest

@pytest.mark.xdist_group("one")
@pytest.mark.parametrize("n", range(6))
def test_of_the_group(n: int) -> None:
    with Path(__file__).with_name("processes").open("a") as file:
        print(os.getpid(), file=file)
"""


def test_a_group_runs_in_one_process(tmp_path: Path) -> None:
    (tmp_path / "test_group.py").write_text(TESTS, encoding="utf-8")
    options = ("-p", "xdist", "-n", "2", "--dist", "loadgroup", "--rootdir", str(tmp_path))
    outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    outside["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    command = [sys.executable, "-m", "pytest", *options, str(tmp_path)]
    ended = subprocess.run(command, cwd=tmp_path, env=outside, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    processes = (tmp_path / "processes").read_text(encoding="utf-8").split()
    assert len(processes) == 6
    assert len(set(processes)) == 1, "a group was spread: each of its tests would start what they share"
