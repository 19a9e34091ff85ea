"""The one file that a run is exported to: a ZIP whose manifest holds the SHA-256 of every other member."""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from evalfleet.errors import ConfigurationError
from evalfleet.model.canonical import digest

FORMAT = "evalfleet-run"
VERSION = 1

_MANIFEST = "manifest.json"
_CHUNK = 1 << 20
_BROKEN = (zipfile.BadZipFile, EOFError, KeyError, ValueError, TypeError, OSError, NotImplementedError, zlib.error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One member of the file: its digest in hexadecimal, its size in bytes, and the columns of a table's rows."""

    sha256: str
    size: int
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What the file holds. `schema` is the migration at which its tables were written."""

    run: str
    schema: str
    members: dict[str, Member] = field(default_factory=dict[str, Member])

    def as_json(self) -> dict[str, Any]:
        told = {"format": FORMAT, "version": VERSION, **asdict(self)}
        return {**told, "digest": digest(told)}

    @classmethod
    def from_json(cls, value: Any) -> Manifest:
        """Raises ValueError when it is not what `as_json` makes."""
        if value.pop("digest", None) != digest(value):
            raise ValueError("its manifest doesn't match its own digest")
        if (value["format"], value["version"]) != (FORMAT, VERSION):
            raise ValueError(f"it has format {value['format']} {value['version']}, not {FORMAT} {VERSION}")
        if not re.fullmatch(r"[\w-]{1,64}", value["run"], re.ASCII):
            raise ValueError(f"it names the run {value['run']!r}")
        members = {
            name: Member(sha256=told["sha256"], size=told["size"], columns=tuple(told["columns"]))
            for name, told in value["members"].items()
        }
        return cls(run=value["run"], schema=value["schema"], members=members)


class ArchiveWriter:
    """Writes one archive, member after member; it stands under its name only when it is whole."""

    def __init__(self, path: Path, run: str, schema: str) -> None:
        self._path = path
        self._fresh = path.with_name(f".{path.name}.part")
        self._manifest = Manifest(run=run, schema=schema)
        self._file = zipfile.ZipFile(self._fresh, "w", zipfile.ZIP_DEFLATED, compresslevel=3)
        self._hash = hashlib.sha256()
        self._size = 0
        self._open: IO[bytes] | None = None

    def begin(self, name: str) -> None:
        self._hash, self._size = hashlib.sha256(), 0
        self._open = self._file.open(name, "w", force_zip64=True)

    def write(self, data: bytes) -> None:
        if self._open is None:
            raise RuntimeError("write outside a member")
        self._hash.update(data)
        self._size += len(data)
        self._open.write(data)

    def end(self, name: str, columns: tuple[str, ...] = ()) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None
        member = Member(sha256=self._hash.hexdigest(), size=self._size, columns=columns)
        self._manifest.members[name] = member

    def commit(self) -> None:
        """Write the manifest and give the file its name."""
        self._file.writestr(_MANIFEST, json.dumps(self._manifest.as_json(), indent=1))
        self._file.close()
        self._fresh.replace(self._path)

    def discard(self) -> None:
        """Leave nothing behind, unless it was committed."""
        if self._open is not None:
            self._open.close()
            self._open = None
        self._file.close()
        self._fresh.unlink(missing_ok=True)


class ArchiveReader:
    """An archive whose every byte was checked against its manifest.

    Raises ConfigurationError, saying what is wrong, for a file that is absent, foreign, cut short or changed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = zipfile.ZipFile(path)
        except FileNotFoundError as error:
            raise ConfigurationError(f"{path}: there is no such file") from error
        except _BROKEN as error:
            raise ConfigurationError(f"{path} is damaged or no exported run: {error}") from error
        try:
            self.manifest = Manifest.from_json(json.loads(self._file.read(_MANIFEST)))
            self._verify()
        except _BROKEN as error:
            self._file.close()
            raise ConfigurationError(f"{path} is damaged or no exported run: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def chunks(self, name: str) -> Iterator[bytes]:
        """The bytes of a member, a megabyte at a time."""
        with self._file.open(name) as member:
            while data := member.read(_CHUNK):
                yield data

    def _verify(self) -> None:
        held = set(self._file.namelist())
        named = {_MANIFEST, *self.manifest.members}
        if held != named or len(self._file.namelist()) != len(named):
            raise ValueError(f"its manifest doesn't name what it holds: {', '.join(sorted(held ^ named))}")
        for name, told in self.manifest.members.items():
            found, size = hashlib.sha256(), 0
            for data in self.chunks(name):
                found.update(data)
                size += len(data)
            if (found.hexdigest(), size) != (told.sha256, told.size):
                raise ValueError(f"{name} doesn't have the bytes that were exported")
