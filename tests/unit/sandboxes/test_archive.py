"""Tars into and out of sandboxes: what leads out never does, and nothing is lost on the way."""

from __future__ import annotations

import io
import os
import socket
import stat
import tarfile
from pathlib import Path

import pytest

from evalfleet_sandboxes.archive import packed, unpack


def there_and_back(source: Path, folder: Path) -> Path:
    archive, _ = packed(source)
    (folder / "tar").write_bytes(b"a line before\n" + archive)
    unpack(folder / "tar", len("a line before\n"), folder / "out")
    return folder / "out"


def hostile(folder: Path, *entries: tuple[str, bytes, str]) -> Path:
    """A tar file of entries: name, type, and the link's aim or the content."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, kind, text in entries:
            entry = tarfile.TarInfo(name)
            entry.type = kind
            entry.mode = 0o777
            if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
                entry.linkname = text
                tar.addfile(entry)
            else:
                entry.size = len(text)
                tar.addfile(entry, io.BytesIO(text.encode()))
    (folder / "tar").write_bytes(stream.getvalue())
    return folder / "tar"


def test_content_modes_links_and_empty_folders_come_back(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep" / "er").mkdir(parents=True)
    (source / "empty").mkdir()
    (source / "deep" / "a\nb 城市").write_bytes(b"\0content")
    (source / "deep" / "run").write_bytes(b"x" * 100_000)
    (source / "deep" / "run").chmod(0o750)
    (source / ("n" * 255)).write_bytes(b"long")
    (source / "link").symlink_to("deep/run")
    os.link(source / "deep" / "run", source / "again")
    out = there_and_back(source, tmp_path)
    assert (out / "deep" / "a\nb 城市").read_bytes() == b"\0content"
    assert stat.S_IMODE((out / "deep" / "run").stat().st_mode) == 0o750
    assert (out / "again").read_bytes() == b"x" * 100_000
    assert (out / ("n" * 255)).read_bytes() == b"long"
    assert os.readlink(out / "link") == "deep/run"
    assert (out / "empty").is_dir() and (out / "deep" / "er").is_dir()


def test_folders_are_named_parents_first_and_sockets_left_out(tmp_path: Path) -> None:
    (tmp_path / "b" / "c").mkdir(parents=True)
    (tmp_path / "a").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        archive, folders = packed(tmp_path)
    assert folders == ("a", "b", "b/c")
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        assert tar.getnames() == ["a", "b", "b/c"]


@pytest.mark.parametrize("aim", ["/etc/hostname", "..", "deep/../../x"])
def test_a_link_that_leads_out_is_not_packed(tmp_path: Path, aim: str) -> None:
    (tmp_path / "source" / "deep").mkdir(parents=True)
    (tmp_path / "source" / "link").symlink_to(aim)
    with pytest.raises(PermissionError, match="leads out"):
        packed(tmp_path / "source")


@pytest.mark.parametrize("name", ["../out", "a/../../out", "/absolute"])
def test_a_name_that_leads_out_is_not_unpacked(tmp_path: Path, name: str) -> None:
    with pytest.raises(PermissionError):
        unpack(hostile(tmp_path, (name, tarfile.REGTYPE, "x")), 0, tmp_path / "target")
    assert not (tmp_path / "out").exists()


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    tar = hostile(
        tmp_path,
        ("way", tarfile.SYMTYPE, str(tmp_path / "victim")),
        ("way/file", tarfile.REGTYPE, "planted"),
    )
    with pytest.raises(OSError):
        unpack(tar, 0, tmp_path / "target")
    assert list((tmp_path / "victim").iterdir()) == []


@pytest.mark.parametrize("aim", ["../secret", "way/secret"])
def test_a_hard_link_names_what_was_unpacked_only(tmp_path: Path, aim: str) -> None:
    (tmp_path / "secret").write_text("secret")
    tar = hostile(tmp_path, ("way", tarfile.SYMTYPE, str(tmp_path)), ("copy", tarfile.LNKTYPE, aim))
    with pytest.raises(OSError):
        unpack(tar, 0, tmp_path / "target")
    assert not (tmp_path / "target" / "copy").exists()


def test_modes_of_another_user_and_devices_are_not_made(tmp_path: Path) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, kind, mode in (("suid", tarfile.REGTYPE, 0o4755), ("disk", tarfile.BLKTYPE, 0o666)):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = kind, mode
            tar.addfile(entry)
    (tmp_path / "tar").write_bytes(stream.getvalue())
    unpack(tmp_path / "tar", 0, tmp_path / "target")
    assert [path.name for path in (tmp_path / "target").iterdir()] == ["suid"]
    assert stat.S_IMODE((tmp_path / "target" / "suid").stat().st_mode) == 0o755


def test_what_is_no_tar_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "tar").write_bytes(b"no tar at all" * 100)
    with pytest.raises(OSError, match="no tar"):
        unpack(tmp_path / "tar", 0, tmp_path / "target")
