"""Files of a sandbox that only a client's `exec` reaches; the path rules are enforced inside."""

from __future__ import annotations

import errno
import os
import posixpath
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet_sandboxes.archive import packed, unpack
from evalfleet_sandboxes.blocking import in_thread
from evalfleet_sandboxes.folder import Folder
from evalfleet_sandboxes.inside import Report, parse_report
from evalfleet_sandboxes.inside_files import WHOLE, InnerFiles
from evalfleet_sandboxes.remote_commands import Door

_ANSWER_BYTES = 4096
#: An answer and the longest path behind it.
_PATH_ANSWER = 2 * _ANSWER_BYTES
_FILE_SECONDS = 600.0
_TRIES = 3
#: An answer's line, and no more than any file is long.
_ANY_SIZE = 1 << 40
#: The most bytes of folder names in one exec's arguments.
_NAMES_BYTES = 256 << 10
_REASONS = {errno.EPERM: "leads out of the sandbox", errno.EINVAL: "neither a file nor a directory"}


class Copying(Protocol):
    """How tars get into a sandbox without a tar, and out of it. Paths are followed already.

    Raises AttemptFailure.
    """

    @property
    def owner(self) -> tuple[int, int]:
        """Whose the files are to be."""
        ...

    async def copy_in(self, archive: bytes, folder: str) -> None: ...

    async def copy_out(self, path: str, file: Path) -> None: ...


class RemoteFiles:
    """Reads and writes below the workdir; see `Sandbox`. What comes out goes through the host directory `scratch`.

    With `copying` nothing of it needs a tar inside.
    """

    def __init__(self, door: Door, workdir: str, scratch: Path, copying: Copying | None = None) -> None:
        self._door = door
        self._workdir = workdir
        self._files = InnerFiles(workdir)
        self._scratch = scratch
        self._copying = copying

    async def probe(self) -> None:
        """Raises AttemptFailure SANDBOX_LOST when the workdir is gone."""
        await self._ask(self._files.probe(), self._workdir)

    async def read(self, path: str) -> bytes:
        return (await self._ask(self._files.read(self._absolute(path)), path, limit=_ANY_SIZE)).stdout

    async def write(self, path: str, data: bytes, mode: int | None = None) -> None:
        await self._ask(self._files.write(self._absolute(path), len(data), mode), path, stdin=data)

    async def upload(self, source: Path, target: str) -> None:
        if await in_thread(source.is_dir):
            owner = None if self._copying is None else self._copying.owner
            archive, folders = await in_thread(packed, source, owner)
            await self._unpack(archive, folders, target)
        else:
            mode = stat.S_IMODE((await in_thread(source.stat)).st_mode)
            await self.write(target, await in_thread(source.read_bytes), mode)

    async def download(self, source: str, target: Path) -> None:
        with tempfile.TemporaryDirectory(dir=self._scratch) as scratch:
            content, name = await self._packed(source, Path(scratch))
            await in_thread(Folder(content).download, name, target)

    async def export(self, target: Path) -> None:
        with tempfile.TemporaryDirectory(dir=self._scratch) as scratch:
            content, _ = await self._packed("", Path(scratch))
            await in_thread(Folder(content).export, target)

    async def _unpack(self, archive: bytes, folders: tuple[str, ...], target: str) -> None:
        """Folder names over several execs, should they be too many for one; all but the last get an empty tar."""
        path = self._absolute(target)
        batches = list(_batches(folders))
        if self._copying is not None:
            place = b""
            for batch in batches:
                place = (await self._ask(self._files.prepare(path, batch), target, limit=_PATH_ANSWER)).stdout
            await self._copying.copy_in(archive, os.fsdecode(place))
            return
        for batch in batches[:-1]:
            await self._ask(self._files.unpack(path, batch), target, stdin=bytes(1024))
        await self._ask(self._files.unpack(path, batches[-1]), target, stdin=archive)

    async def _packed(self, source: str, scratch: Path) -> tuple[Path, str]:
        """What was packed inside, unpacked in a directory of our own, and its name there."""
        if self._copying is not None:
            return await self._copied(source, scratch, self._copying)
        said = ""
        for _ in range(_TRIES):
            into = scratch / "tar"
            result = await self._door.exec_to(self._files.pack(self._absolute(source)), into, timeout=_FILE_SECONDS)
            line, whole = await in_thread(_ends_of, into)
            report = parse_report(line, 0)
            if report is not None and report.how in ("file", "folder") and whole:
                place = scratch / "content"
                await in_thread(unpack, into, len(line), place)
                return place, "." if report.how == "folder" else os.listdir(place)[0]
            if report is not None and report.how not in ("file", "folder"):
                raise await self._failure(report, source)
            await self._door.require_alive()
            said = result.stderr[-_ANSWER_BYTES:].decode("utf-8", "replace").strip()
        raise AttemptFailure(FailureKind.SANDBOX, "SANDBOX_FAILED", f"{source or '.'} could not be packed: {said}")

    async def _copied(self, source: str, scratch: Path, copying: Copying) -> tuple[Path, str]:
        """As `_packed`, by who has a tar of his own."""
        found = await self._ask(self._files.find(self._absolute(source)), source, limit=_PATH_ANSWER)
        into, place, path = scratch / "tar", scratch / "content", os.fsdecode(found.stdout)
        whole = found.how == "folder"
        await copying.copy_out(f"{path}/." if whole else path, into)
        await in_thread(unpack, into, 0, place)
        return place, "." if whole else os.listdir(place)[0]

    async def _ask(self, argv: tuple[str, ...], path: str, *, stdin: bytes = b"", limit: int = _ANSWER_BYTES) -> Report:
        """The answer of a script, which may run again when none came."""
        said = ""
        for _ in range(_TRIES):
            result = await self._door.exec(argv, stdin=stdin, limit=limit, timeout=_FILE_SECONDS)
            report = parse_report(result.stdout, limit)
            if report is not None:
                if report.how in ("ok", "file", "folder"):
                    return report
                raise await self._failure(report, path)
            await self._door.require_alive()
            said = result.stderr[-_ANSWER_BYTES:].decode("utf-8", "replace").strip()
        raise AttemptFailure(FailureKind.SANDBOX, "SANDBOX_FAILED", f"no answer about {path}: {said}")

    async def _failure(self, report: Report, path: str) -> Exception:
        if report.how == "lost":
            return await self._door.retire("its working directory is gone")
        number = getattr(errno, report.how, errno.EIO)
        return OSError(number, _REASONS.get(number, os.strerror(number)), path)

    def _absolute(self, path: str) -> str:
        """Below the workdir unless absolute; without empty parts and dots, but with what leads up: see `resolve`."""
        parts = [part for part in posixpath.join(self._workdir, path).split("/") if part not in ("", ".")]
        return "/" + "/".join(parts)


def _batches(names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    batch: list[str] = []
    size = 0
    for name in names:
        size += len(os.fsencode(name)) + 1
        if size > _NAMES_BYTES:
            yield tuple(batch)
            batch, size = [], 0
        batch.append(name)
    yield tuple(batch)


def _ends_of(file: Path) -> tuple[bytes, bool]:
    """The first line of what a script packed, and whether its last line says that it is whole."""
    with file.open("rb") as opened:
        line = opened.readline(_ANSWER_BYTES)
        opened.seek(max(0, os.stat(file).st_size - len(WHOLE)))
        return line, opened.read() == WHOLE
