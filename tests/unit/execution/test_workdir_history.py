"""What differs between two looks at a workdir: every kind of content survives, byte by byte, and nothing vanishes."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from evalfleet.execution.git import CaptureError, GitTool
from evalfleet.execution.private_folders import PrivateFolders
from evalfleet.execution.workdir_history import Limits, Look, WorkdirHistory
from evalfleet.model.changes import DEFAULT_IGNORED, Change, ChangeKind
from evalfleet.model.path_pattern import ignore_rules
from evalfleet.processes import SystemSpawner

GIT = shutil.which("git")
pytestmark = pytest.mark.skipif(GIT is None, reason="git is not installed: apt-get install git")


def tool(spawner: SystemSpawner, folder: Path, path: str = os.environ["PATH"]) -> GitTool:
    folders = PrivateFolders(folder / "folders", "host", os.getpid())
    return GitTool(spawner=spawner, environment={"PATH": path, "HOME": "/nowhere"}, folders=folders)


class Place:
    """A workdir with its history."""

    def __init__(self, folder: Path, spawner: SystemSpawner, limits: Limits | None = None) -> None:
        self.root = folder / "work"
        self.root.mkdir()
        self.private = folder / "private"
        self.private.mkdir()
        self.history = WorkdirHistory(
            tool(spawner, folder),
            self.private,
            ignore_rules(DEFAULT_IGNORED, (), ()),
            limits,
        )
        self.last: Look | None = None
        self.clean = folder / "clean"

    def write(self, path: str, content: str | bytes) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    async def look(self) -> None:
        """Look at the workdir, and keep a copy of it to apply patches to."""
        self.last = await self.history.look(self.root)
        shutil.rmtree(self.clean, ignore_errors=True)
        shutil.copytree(self.root, self.clean, symlinks=True)

    async def changes(self) -> dict[str, Change]:
        """What changed since the last look, by path. The patches are proven by applying them to the copy."""
        assert self.last is not None
        after = await self.history.look(self.root)
        found = await self.history.compare(self.root, self.last, after)
        assert found.omitted == 0
        whole = b"".join(change.patch or b"" for change in found.changes)
        if whole:
            self.apply(whole)
            for change in found.changes:
                if change.patch is not None:
                    assert state(self.clean / change.path) == state(self.root / change.path), change.path
        self.last = after
        return {change.path: change for change in found.changes}

    def apply(self, patch: bytes) -> None:
        environment = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "HOME": "/nowhere"}
        environment["GIT_CEILING_DIRECTORIES"] = str(self.clean.parent)
        argv = ["git", "-c", "core.protectNTFS=false", "apply", "--whitespace=nowarn", "-"]
        done = subprocess.run(argv, input=patch, cwd=self.clean, env=environment, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr


def state(path: Path) -> object:
    """What git sees of a path: nothing, a link with its target, or bytes and whether they can be executed."""
    if path.is_symlink():
        return os.readlink(path)
    return (path.read_bytes(), path.stat().st_mode & 0o100) if path.is_file() else None


@pytest.fixture
async def place(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    spawner = SystemSpawner()
    yield Place(tmp_path, spawner, getattr(request, "param", None))
    await spawner.close()


def git(folder: Path, *arguments: str) -> str:
    """Git as an agent would use it."""
    named = [
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "-c",
        "protocol.file.allow=always",
        "-c",
        "init.defaultBranch=m",
    ]
    done = subprocess.run(["git", *named, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


async def test_no_change(place: Place) -> None:
    place.write("a", "1")
    await place.look()
    assert await place.changes() == {}


async def test_staged_committed_new_deleted_and_ignored(place: Place) -> None:
    """GD-02."""
    for name in ("committed", "staged", "gone"):
        place.write(name, "1\n")
    place.write(".gitignore", "*.secret\n/made/\n:*\n")
    git(place.root, "init", "-q")
    git(place.root, "add", ".")
    git(place.root, "commit", "-qm", "start")
    await place.look()
    place.write("committed", "2\n")
    git(place.root, "commit", "-qam", "by the agent")
    place.write("staged", "2\n")
    git(place.root, "add", "staged")
    place.write("new", "1\n")
    place.write("x.secret", "1\n")
    place.write(":(glob)", "1\n")
    place.write("made/by/tool", "1\n")
    (place.root / "gone").unlink()
    index, head = (place.root / ".git" / "index").read_bytes(), git(place.root, "rev-parse", "HEAD")
    found = await place.changes()
    assert {path: (change.kind.value, change.ignored) for path, change in found.items()} == {
        ":(glob)": ("added", True),
        "committed": ("modified", False),
        "gone": ("deleted", False),
        "made/by/tool": ("added", True),
        "new": ("added", False),
        "staged": ("modified", False),
        "x.secret": ("added", True),
    }
    assert (place.root / ".git" / "index").read_bytes() == index
    assert git(place.root, "rev-parse", "HEAD") == head


async def test_an_edit_in_a_submodule_stands_under_its_path(place: Place, tmp_path: Path) -> None:
    """GD-03."""
    inner = tmp_path / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    (inner / "lib.py").write_text("1\n")
    git(inner, "add", ".")
    git(inner, "commit", "-qm", "start")
    git(place.root, "init", "-q")
    git(place.root, "submodule", "add", "-q", str(inner), "sub")
    place.write("own.py", "1\n")
    await place.look()
    place.write("sub/lib.py", "2\n")
    assert list(await place.changes()) == ["sub/lib.py"]
    shutil.rmtree(place.root / ".git" / "modules")
    place.write("own.py", "2\n")
    assert list(await place.changes()) == ["own.py"]
    git(place.root, "init", "-q", "made")
    place.write("made/new.py", "1\n")
    assert list(await place.changes()) == ["made/new.py"]


@pytest.mark.parametrize(
    "attributes", ["", "* text=auto eol=crlf\n*.txt filter=evil ident diff=evil working-tree-encoding=UTF-16\n"]
)
async def test_line_endings_stay_what_they_are(place: Place, attributes: str) -> None:
    """GD-04, also where the project asks git to convert them."""
    if attributes:
        place.write(".gitattributes", attributes)
    place.write("a.txt", b"a\r\nb\r\n$Id$\r\n")
    await place.look()
    place.write("a.txt", b"a\r\nB\r\n$Id$\r\n")
    place.write("b.txt", b"x\ny\r\nz\r")
    found = await place.changes()
    assert b"-b\r\n+B\r\n" in (found["a.txt"].patch or b"")
    assert list(found) == ["a.txt", "b.txt"]


async def test_the_last_newline(place: Place) -> None:
    """GD-05."""
    place.write("none", "a\nb")
    place.write("blank", "a\n\nb\nc\n \n")
    await place.look()
    place.write("none", "a\nB")
    place.write("blank", "a\n\nB\nc\n \n")
    found = await place.changes()
    assert (found["none"].patch or b"").endswith(b"+B\n\\ No newline at end of file\n")
    assert (found["blank"].patch or b"").endswith(b"\n  \n")


async def test_modes_links_and_types(place: Place) -> None:
    """GD-06."""
    place.write("run.sh", "#!/bin/sh\n")
    place.write("file", "x")
    place.write("folder/x", "x")
    (place.root / "link").symlink_to("run.sh")
    await place.look()
    (place.root / "run.sh").chmod(0o755)
    (place.root / "new").symlink_to("run.sh")
    place.write("tool", "#!/bin/sh\n").chmod(0o755)
    (place.root / "file").unlink()
    (place.root / "file").symlink_to("/etc/passwd")
    (place.root / "link").unlink()
    place.write("link/inside", "x")
    shutil.rmtree(place.root / "folder")
    place.write("folder", "now a file")
    found = await place.changes()
    modes = {path: [facts and oct(facts.mode) for facts in (each.before, each.after)] for path, each in found.items()}
    assert [(path, each.kind.value, *modes[path]) for path, each in found.items()] == [
        ("file", "type", "0o100644", "0o120000"),
        ("folder", "added", None, "0o100644"),
        ("folder/x", "deleted", "0o100644", None),
        ("link", "deleted", "0o120000", None),
        ("link/inside", "added", None, "0o100644"),
        ("new", "added", None, "0o120000"),
        ("run.sh", "mode", "0o100644", "0o100755"),
        ("tool", "added", None, "0o100755"),
    ]
    assert b"old mode 100644\nnew mode 100755\n" in (found["run.sh"].patch or b"")
    assert b"root:" not in (found["file"].patch or b"")


async def test_binary_and_large_content(place: Place) -> None:
    """GD-07."""
    place.write("big.bin", b"\0\1" * (10 << 20))
    place.write("big.txt", b"line\n" * (1 << 20))
    place.write("gone.bin", b"\0\1" * (1 << 20))
    await place.look()
    place.write("nul.bin", b"a\0b")
    place.write("big.bin", b"\0\2" * (10 << 20))
    place.write("big.txt", b"another\n" * (1 << 20))
    (place.root / "gone.bin").unlink()
    found = await place.changes()
    assert {path: (change.binary, change.patch is None, change.size) for path, change in found.items()} == {
        "big.bin": (True, True, 20 << 20),
        "big.txt": (False, True, 8 << 20),
        "gone.bin": (True, True, 2 << 20),
        "nul.bin": (True, False, 3),
    }
    after = found["big.bin"].after
    assert after is not None and after.blob == git(place.root, "hash-object", "big.bin").strip()


async def test_what_the_setup_left_is_nobodys(place: Place) -> None:
    """GD-08."""
    git(place.root, "init", "-q")
    place.write("dirty", "1\n")
    git(place.root, "add", ".")
    git(place.root, "commit", "-qm", "start")
    place.write("dirty", "2\n")
    place.write("out/made.txt", "1\n")
    await place.look()
    place.write("src.py", "1\n")
    assert list(await place.changes()) == ["src.py"]


async def test_any_name(place: Place) -> None:
    names = ["a b", 'q"uote', "new\nline", "tab\t", "ümlaut", "back\\slash", "-dash", ":(glob)*", "git~1/x", "é" * 80]
    raw = os.fsdecode(b"\xff\xfe latin")
    await place.look()
    for name in [*names, raw]:
        place.write(name, f"{names.index(name) if name in names else 'raw'}\n")
    found = await place.changes()
    assert sorted(found) == sorted([*names, raw])
    assert all(change.patch for change in found.values())


async def test_left_out_names_and_what_has_no_content(place: Place) -> None:
    await place.look()
    for path in ("node_modules/x/i.js", "src/__pycache__/a.pyc", ".git/x", "a/.GIT/x", "dist/x", "src/a.py"):
        place.write(path, "1")
    os.mkfifo(place.root / "pipe")
    (place.root / "empty").mkdir()
    assert list(await place.changes()) == ["src/a.py"]


async def test_same_size_and_same_time(place: Place) -> None:
    file = place.write("a", "1\n")
    await place.look()
    times = file.stat()
    file.write_text("2\n")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert list(await place.changes()) == ["a"]


@pytest.mark.parametrize("place", [Limits(paths=3)], indirect=True)
async def test_paths_beyond_the_limit_are_counted_and_never_deleted(place: Place) -> None:
    for name in ("m", "n", "o"):
        place.write(name, "1")
    before = await place.history.look(place.root)
    assert before.omitted == 0
    place.write("a", "1")
    place.write("n", "2")
    after = await place.history.look(place.root)
    found = await place.history.compare(place.root, before, after)
    assert [(change.path, change.kind) for change in found.changes] == [("n", ChangeKind.MODIFIED)]
    assert after.omitted == 1


@pytest.mark.parametrize("place", [Limits(changes=2, patches=300)], indirect=True)
async def test_changes_and_bytes_beyond_the_limits(place: Place) -> None:
    before = await place.history.look(place.root)
    for name in ("a", "b", "c"):
        place.write(name, "line\n" * 10)
    found = await place.history.compare(place.root, before, await place.history.look(place.root))
    assert [(change.path, change.patch is None) for change in found.changes] == [("a", False), ("b", True)]
    assert found.omitted == 1


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything: run it as another user")
async def test_what_can_not_be_read_is_named(place: Place) -> None:
    place.write("secret", "1").chmod(0)
    (place.root / "closed").mkdir(0)
    look = await place.history.look(place.root)
    (place.root / "closed").chmod(0o700)
    assert look.unread == ("closed", "secret")


async def test_a_link_that_git_refuses_is_named(place: Place) -> None:
    (place.root / ".gitmodules").symlink_to("x")
    assert (await place.history.look(place.root)).unread == (".gitmodules",)


def breaks_objects(place: Place) -> None:
    for folder in (place.private / "objects").iterdir():
        shutil.rmtree(folder)


def removes_the_workdir(place: Place) -> None:
    shutil.rmtree(place.root)


def locks_the_index(place: Place) -> None:
    (place.private / "index.lock").touch()


@pytest.mark.parametrize("damage", [breaks_objects, removes_the_workdir, locks_the_index])
async def test_what_git_can_not_do_is_an_error_and_never_an_empty_difference(
    place: Place, damage: Callable[[Place], None]
) -> None:
    place.write("a", "1")
    before = await place.history.look(place.root)
    place.write("b", "1")
    damage(place)
    with pytest.raises(CaptureError):
        await place.history.compare(place.root, before, await place.history.look(place.root))


async def test_without_git(place: Place, tmp_path: Path) -> None:
    spawner = SystemSpawner()
    (tmp_path / "other").mkdir()
    history = WorkdirHistory(tool(spawner, tmp_path, str(tmp_path)), tmp_path / "other", ignore_rules((), (), ()))
    with pytest.raises(CaptureError, match="git is not installed here"):
        await history.look(place.root)
    await spawner.close()


async def test_hooks_and_settings_of_the_workdir_are_not_used(place: Place, tmp_path: Path) -> None:
    git(place.root, "init", "-q")
    witness = tmp_path / "witness"
    for hook in ("post-index-change", "pre-commit", "fsmonitor"):
        file = place.write(f".git/hooks/{hook}", f"#!/bin/sh\ntouch {witness}\n")
        file.chmod(0o755)
    git(place.root, "config", "core.fsmonitor", str(place.root / ".git/hooks/fsmonitor"))
    git(place.root, "config", "filter.evil.clean", f"touch {witness}")
    place.write(".gitattributes", "* filter=evil\n")
    await place.look()
    place.write("a", "1")
    assert list(await place.changes()) == ["a"]
    assert not witness.exists()
