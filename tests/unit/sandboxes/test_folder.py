"""Files of a sandbox as those outside read and write them, while somebody inside moves and links things."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from evalfleet_sandboxes.anchored import Owner
from evalfleet_sandboxes.folder import Folder

ROUNDS = 2_000


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "file").write_bytes(b"secret")
    return folder


def swapped(root: Path, outside: Path) -> Callable[[], None]:
    """Makes `root/door` a directory and a link that leads out, in turns as fast as it can; a call ends that."""
    (root / "real").mkdir(parents=True)
    (root / "real" / "file").write_bytes(b"inside")
    (root / "link").symlink_to(outside)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for name in ("real", "link"):
                try:
                    os.rename(root / name, root / "door")
                    os.rename(root / "door", root / name)
                except OSError:  # a writer has made a directory of this name meanwhile
                    shutil.rmtree(root / "door", ignore_errors=True)

    thread = threading.Thread(target=swap)
    thread.start()

    def end() -> None:
        stop.set()
        thread.join()

    return end


def test_no_race_leads_a_reader_out(tmp_path: Path, outside: Path) -> None:
    root = tmp_path / "root"
    end, seen = swapped(root, outside), set[bytes]()
    try:
        for _ in range(ROUNDS):
            try:
                seen.add(Folder(root).read("door/file"))
            except OSError:
                continue
    finally:
        end()
    assert seen <= {b"inside"}


def test_no_race_leads_a_writer_out(tmp_path: Path, outside: Path) -> None:
    root = tmp_path / "root"
    end = swapped(root, outside)
    try:
        for number in range(ROUNDS):
            try:
                Folder(root).write(f"door/{number}", b"x")
            except OSError:
                continue
    finally:
        end()
    assert [path.name for path in outside.iterdir()] == ["file"]


def test_no_race_leads_a_copy_out(tmp_path: Path, outside: Path) -> None:
    root = tmp_path / "root"
    end = swapped(root, outside)
    try:
        for number in range(ROUNDS // 20):
            try:
                Folder(root).export(tmp_path / "copies" / str(number))
            except OSError:
                continue
    finally:
        end()
    assert {path.read_bytes() for path in (tmp_path / "copies").rglob("file")} == {b"inside"}


def test_absolute_paths_are_those_that_the_sandbox_sees(tmp_path: Path) -> None:
    folder = Folder(tmp_path, seen="/sandbox/here")
    folder.write("/sandbox/here/a/file", b"x")
    (tmp_path / "link").symlink_to("/sandbox/here/a/../a/./file")
    assert folder.read("link") == b"x"
    for path in (str(tmp_path / "a" / "file"), "/sandbox/hereshop/a", "/", "/sandbox/here/../here/a/file"):
        with pytest.raises(PermissionError):
            folder.read(path)


def test_links_in_circles_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="Too many levels"):
        Folder(tmp_path).read("a")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_is_made_belongs_to_its_owner(tmp_path: Path) -> None:
    source, root = tmp_path / "source", tmp_path / "root"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "file").write_bytes(b"x")
    (source / "link").symlink_to("deep")
    root.mkdir()
    folder = Folder(root, owner=Owner(60_800, 60_800))
    folder.write("new/er/file", b"x")
    folder.upload(source, "copy")
    owners = {(path.lstat().st_uid, path.lstat().st_gid) for path in root.rglob("*")}
    assert owners == {(60_800, 60_800)}
    assert len(list(root.rglob("*"))) == 7


def test_nobody_gets_the_right_to_act_as_another(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "tool").write_bytes(b"x")
    (root / "tool").chmod(0o6755)
    Folder(root).export(tmp_path / "copy")
    Folder(root).download("tool", tmp_path / "tool")
    assert (tmp_path / "copy" / "tool").stat().st_mode & 0o7777 == (tmp_path / "tool").stat().st_mode & 0o7777 == 0o755
