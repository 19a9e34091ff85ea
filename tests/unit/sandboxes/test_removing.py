"""Nothing that lies in a directory keeps it from being removed, and nothing outside of it is touched."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from evalfleet_sandboxes.removing import remove


def test_what_is_gone_is_removed_already(tmp_path: Path) -> None:
    remove(tmp_path / "missing")
    remove(tmp_path / "missing" / "below")


def test_a_directory_deeper_than_any_path_goes_with_all_it_holds(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    (top / "0").write_bytes(b"where something would be moved")
    here = os.open(top, os.O_RDONLY)
    for number in range(1500):
        os.mkdir("deeper", dir_fd=here)
        os.close(os.open(f"file-{number}", os.O_CREAT | os.O_WRONLY, dir_fd=here))
        below = os.open("deeper", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    remove(top)
    assert list(tmp_path.iterdir()) == []


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    (outside / "kept").write_bytes(b"kept")
    top = tmp_path / "top"
    (top / "locked").mkdir(parents=True)
    for folder in (top, top / "locked"):
        (folder / "folder").symlink_to(outside)
        (folder / "file").symlink_to(outside / "kept")
        (folder / "nowhere").symlink_to("missing")
    (top / "locked").chmod(0o500)
    remove(top)
    assert not top.exists()
    assert (outside / "kept").read_bytes() == b"kept"
    assert stat.S_IMODE(outside.stat().st_mode) == 0o755


@pytest.mark.parametrize("mode", [0o000, 0o300, 0o500, 0o600])
def test_what_its_maker_locked_goes(mode: int, tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "a" / "b").mkdir(parents=True)
    (top / "a" / "b" / "file").write_bytes(b"x")
    for folder in (top / "a" / "b", top / "a", top):
        folder.chmod(mode)
    remove(top)
    assert list(tmp_path.iterdir()) == []


def test_pipes_and_odd_names_go(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    os.mkfifo(top / "pipe")
    for name in ("two\nlines", "-rf", "城市", "a" * 255):
        (top / name).mkdir()
        (top / name / name).write_bytes(b"x")
    remove(top)
    assert list(tmp_path.iterdir()) == []
