"""Temporary folders that outlive nobody for long: those of killed processes go with the next one, no other does."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from evalfleet.taskpacks.owned_folder import OwnedFolder, sweep

HOLD = """
import sys
from evalfleet.taskpacks.owned_folder import OwnedFolder
mine = OwnedFolder("evalfleet-swept-")
print(mine.path(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def holder(place: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process that holds a folder, and the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        env={**os.environ, "TMPDIR": str(place)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_the_folder_of_a_killed_process_goes_with_the_next_one_and_no_other_does(place: Path) -> None:
    (place / "evalfleet-swept-foreign").mkdir()
    living, its_folder = holder(place)
    killed, left = holder(place)
    try:
        (left / "snapshots").mkdir()
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert left.is_dir() and sweep("evalfleet-other-") == []
        owned = OwnedFolder("evalfleet-swept-")
        mine = owned.path()
        kept = {each.name for each in place.iterdir() if each.name.startswith("evalfleet-swept-")}
        assert kept == {mine.name, its_folder.name, "evalfleet-swept-foreign"}
    finally:
        living.communicate("")
        killed.communicate()
    assert not its_folder.exists(), "who ends in order leaves nothing"


def test_a_folder_is_one_and_goes_with_its_owner(place: Path) -> None:
    owned = OwnedFolder("evalfleet-swept-")
    folder = owned.path()
    assert owned.path() == folder and sweep("evalfleet-swept-") == []
    del owned
    gc.collect()
    assert not folder.exists()


def test_a_fork_has_a_folder_of_its_own_and_leaves_its_parents(place: Path) -> None:
    owned = OwnedFolder("evalfleet-swept-")
    folder = owned.path()
    child = os.fork()
    if child == 0:
        other = owned.path()
        status = 0 if other != folder and other.is_dir() and folder.is_dir() else 1
        del owned
        gc.collect()
        os._exit(status if folder.is_dir() else 2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert folder.is_dir()
