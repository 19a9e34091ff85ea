"""Rows by number, in memory and beyond."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalfleet.planning.kept_rows import KeptRows
from tests.unit.planning.projects import REPO

names = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1)
rows = st.lists(st.tuples(names, st.binary().map(lambda data: data.hex().encode())))


@given(rows, st.integers(0, 200), st.randoms(use_true_random=False))
def test_every_row_is_found_by_its_number(rows: list[tuple[str, bytes]], in_memory: int, random: object) -> None:
    kept = KeptRows(in_memory)
    assert [kept.add(*row) for row in rows] == list(range(len(rows)))
    order = list(range(len(rows)))
    random.shuffle(order)  # pyright: ignore - a Random
    assert [kept[number] for number in order] == [rows[number] for number in order]


def test_reading_and_adding_take_turns() -> None:
    kept = KeptRows(0)
    for number in range(100):
        assert kept.add(f"r{number}", b"x" * number) == number
        assert kept[number // 2] == (f"r{number // 2}", b"x" * (number // 2))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts open files by /proc")
def test_the_file_goes_with_the_rows() -> None:
    before = len(os.listdir("/proc/self/fd"))
    kept = KeptRows(0)
    kept.add("a", b"{}")
    assert len(os.listdir("/proc/self/fd")) == before + 1
    del kept
    assert len(os.listdir("/proc/self/fd")) == before


FULL = """
import resource
from evalfleet.errors import ConfigurationError
from evalfleet.planning.kept_rows import KeptRows

resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
kept = KeptRows(0)
try:
    for number in range(10_000):
        kept.add(str(number), b"x" * 1_000)
except ConfigurationError as error:
    print(error)
"""


def test_a_full_disk_is_a_line_that_says_what_to_do(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FULL],
        cwd=REPO,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        f"the rows of large datasets are kept in {tmp_path} while a run is planned, which failed: File too large; "
        "set TMPDIR to a folder with more room\n"
    )
