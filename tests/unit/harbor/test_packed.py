"""The tests of a step as they are brought: folders laid over each other, modes and links kept, owners forgotten."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

from evalfleet.harbor.verifier import packed


def test_a_later_folder_is_laid_over_an_earlier_one(tmp_path: Path) -> None:
    shared, own = tmp_path / "shared", tmp_path / "own"
    (shared / "lib" / "empty").mkdir(parents=True)
    (own / "lib").mkdir(parents=True)
    (shared / "test.sh").write_text("shared")
    (own / "test.sh").write_text("own")
    (own / "test.sh").chmod(0o640)
    (shared / "lib" / "tool").write_bytes(b"\x00" * 20_000)
    (shared / "lib" / "tool").chmod(0o755)
    os.link(shared / "lib" / "tool", own / "lib" / "same")
    (own / "lib" / "link").symlink_to("/etc/passwd")
    with tarfile.open(fileobj=io.BytesIO(packed((shared, own)))) as tar:
        members = {member.name: member for member in tar}
        files = {name: tar.extractfile(member) for name, member in members.items() if member.isfile()}
        content = {name: file.read() for name, file in files.items() if file is not None}
    assert sorted(members) == ["lib", "lib/empty", "lib/link", "lib/same", "lib/tool", "test.sh"]
    assert content == {"test.sh": b"own", "lib/tool": b"\x00" * 20_000, "lib/same": b"\x00" * 20_000}
    assert (members["test.sh"].mode, members["lib/tool"].mode) == (0o640, 0o755)
    assert members["lib/link"].issym() and members["lib/link"].linkname == "/etc/passwd"
    assert {(member.uid, member.gid, member.uname) for member in members.values()} == {(0, 0, "")}
