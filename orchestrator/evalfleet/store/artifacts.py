"""Large bodies by content hash, below one prefix a run, in a directory or any store that fsspec speaks to."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
from collections.abc import AsyncGenerator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from evalfleet.errors import ConfigurationError, StoreError
from evalfleet.model.ids import sha256

_HEX = frozenset("0123456789abcdef")


@dataclass(frozen=True, slots=True)
class _Entry:
    """What stands below a prefix: its bytes, and when it was last written, in seconds since the epoch."""

    name: str
    size: int
    written: float


class _Place(Protocol):
    """Where objects stand. Keys are relative; every method blocks and raises OSError."""

    def renew(self, key: str) -> bool:
        """Whether the object is there and as young as if it had been written now; if not, it has to be."""
        ...

    def write(self, key: str, data: bytes) -> None: ...

    def read(self, key: str) -> bytes: ...

    def names(self, prefix: str) -> list[str]: ...

    def entries(self, prefix: str) -> Iterator[_Entry]: ...

    def drop(self, key: str, before: float) -> bool:
        """Remove the object if it is there and was last written before then; whether it was."""
        ...

    def remove(self, prefix: str) -> None: ...


class FileArtifacts:
    """The artifact store at `base`: a path, or a URL of fsspec (`s3://bucket/prefix`, `gs://…`, `memory://…`).

    Methods raise StoreError when the place can't be used.
    """

    def __init__(self, base: str) -> None:
        self._base = base
        self._place: _Place = _Remote(base) if "://" in base and not base.startswith("file://") else _Local(base)

    async def put(self, run: str, data: bytes) -> str:
        """See `ArtifactStore.put`. The object is durable, and whole under its name, when this returns."""
        digest = await asyncio.to_thread(sha256, data)
        key = _key(run, digest)

        def work() -> None:
            if not self._place.renew(key):
                self._place.write(key, data)

        await self._do(work, f"write {key}")
        return digest

    async def get(self, run: str, sha256: str) -> bytes:
        """See `ArtifactStore.get`."""
        key = _key(run, sha256)
        data: bytes = await self._do(lambda: self._place.read(key), f"read {key}")
        if await asyncio.to_thread(_digest, data) != sha256:
            raise StoreError(f"{key} in {self._base} is damaged: its bytes don't have this SHA-256")
        return data

    async def delete_run(self, run: str) -> None:
        """Remove everything below the run's prefix; nothing there is fine."""
        prefix = _prefix(run)
        await self._do(lambda: self._place.remove(prefix), f"delete {prefix}")

    async def list_run(self, run: str) -> AsyncGenerator[str]:
        """The hashes of the run's objects."""
        prefix = _prefix(run)
        names: list[str] = await self._do(lambda: self._place.names(prefix), f"list {prefix}")
        for name in names:
            if len(name) == 64 and _HEX.issuperset(name):
                yield name

    async def runs(self) -> list[str]:
        """The ids of all runs that have a prefix, sorted."""
        return await self._do(lambda: self._place.names("runs"), "list runs")

    async def old(self, run: str, before: float) -> dict[str, int]:
        """What the run has that was last written before then, cut-short writes included: bytes by name."""
        prefix = _prefix(run)

        def work() -> dict[str, int]:
            return {entry.name: entry.size for entry in self._place.entries(prefix) if entry.written < before}

        return await self._do(work, f"list {prefix}")

    async def discard(self, run: str, names: Iterable[str], before: float) -> list[str]:
        """Remove those of `names`, as `old` gave them, that nobody wrote again since; the names that are gone."""
        prefix = _prefix(run)

        def work() -> list[str]:
            return [name for name in names if self._place.drop(f"{prefix}/{name}", before)]

        return await self._do(work, f"delete from {prefix}")

    async def _do(self, work: Any, what: str) -> Any:
        try:
            return await asyncio.to_thread(work)
        except FileNotFoundError as error:
            raise StoreError(f"cannot {what} in the artifact store {self._base}: it is not there") from error
        except OSError as error:
            raise StoreError(f"cannot {what} in the artifact store {self._base}: {error}") from error


class _Local:
    """A directory. A file appears under its name only when all of it is on the disk."""

    _numbers = itertools.count()

    def __init__(self, base: str) -> None:
        self._root = Path(base.removeprefix("file://")).expanduser()

    def renew(self, key: str) -> bool:
        try:
            os.utime(self._root / key)
        except FileNotFoundError:
            return False
        return True

    def write(self, key: str, data: bytes) -> None:
        path = self._root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}.{os.getpid()}.{next(self._numbers)}")
        try:
            with fresh.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(path)
        finally:
            fresh.unlink(missing_ok=True)

    def read(self, key: str) -> bytes:
        return (self._root / key).read_bytes()

    def names(self, prefix: str) -> list[str]:
        directory = self._root / prefix
        return sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []

    def entries(self, prefix: str) -> Iterator[_Entry]:
        directory = self._root / prefix
        for path in directory.iterdir() if directory.is_dir() else ():
            try:
                found = path.stat()
            except FileNotFoundError:  # a write that has just become an object
                continue
            yield _Entry(path.name, found.st_size, found.st_mtime)

    def drop(self, key: str, before: float) -> bool:
        path = self._root / key
        try:
            if path.stat().st_mtime >= before:
                return False
            path.unlink()
        except FileNotFoundError:
            return False
        return True

    def remove(self, prefix: str) -> None:
        directory = self._root / prefix
        if directory.is_dir():
            shutil.rmtree(directory)


class _Remote:
    """An object store, whose writes are whole by nature."""

    def __init__(self, base: str) -> None:
        import fsspec  # here, since it costs 50 ms and most stores are a directory

        try:
            found: tuple[Any, Any] = fsspec.core.url_to_fs(base)  # pyright: ignore
        except (ValueError, ImportError) as error:
            raise ConfigurationError(f"EVALFLEET_ARTIFACTS={base} can't be used: {error}") from error
        self._files, root = found
        self._root = PurePosixPath(str(root))

    def renew(self, key: str) -> bool:
        return False  # no store of this kind can do it otherwise than by writing

    def write(self, key: str, data: bytes) -> None:
        path = self._root / key
        self._files.makedirs(str(path.parent), exist_ok=True)
        self._files.pipe_file(str(path), data)

    def read(self, key: str) -> bytes:
        return bytes(self._files.cat_file(str(self._root / key)))

    def names(self, prefix: str) -> list[str]:
        try:
            found: list[str] = self._files.ls(str(self._root / prefix), detail=False)
        except FileNotFoundError:
            return []
        return sorted(PurePosixPath(path).name for path in found)

    def entries(self, prefix: str) -> Iterator[_Entry]:
        for name in self.names(prefix):
            path = str(self._root / prefix / name)
            yield _Entry(name, int(self._files.size(path)), self._files.modified(path).timestamp())

    def drop(self, key: str, before: float) -> bool:
        path = str(self._root / key)
        try:
            if self._files.modified(path).timestamp() >= before:
                return False
            self._files.rm_file(path)
        except FileNotFoundError:
            return False
        return True

    def remove(self, prefix: str) -> None:
        if self._files.exists(str(self._root / prefix)):
            self._files.rm(str(self._root / prefix), recursive=True)


def _prefix(run: str) -> str:
    """A run's prefix. Raises ValueError for an id that would leave it."""
    if not run or "/" in run or run in (".", ".."):
        raise ValueError(f"no run id: {run!r}")
    return f"runs/{run}"


def _key(run: str, digest: str) -> str:
    if len(digest) != 64 or not _HEX.issuperset(digest):
        raise ValueError(f"no SHA-256 in hexadecimal: {digest!r}")
    return f"{_prefix(run)}/{digest}"


def _digest(data: bytes) -> str:
    return sha256(data)
