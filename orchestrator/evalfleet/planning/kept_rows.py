"""The selected rows of a plan by number: in memory up to a size, what is beyond in one unnamed temporary file."""

from __future__ import annotations

import os
import tempfile
import weakref
from array import array
from contextlib import suppress
from typing import IO

from evalfleet.errors import ConfigurationError


class KeptRows:
    """Rows as (id, canonical JSON), numbered from 0 in the order they were added. The file goes with the object."""

    def __init__(self, in_memory: int) -> None:
        self._room = in_memory
        self._held: list[tuple[str, bytes]] = []
        self._ends = array("Q", [0])
        self._file = None

    def add(self, name: str, data: bytes) -> int:
        """Keep a row and give its number. Raises ConfigurationError when the disk is full."""
        size = len(name) + len(data)
        if self._file is None and size <= self._room:
            self._room -= size
            self._held.append((name, data))
            return len(self._held) - 1
        line = name.encode() + b"\n" + data  # a name holds no control character
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="evalfleet-rows-")  # noqa: SIM115 - lives as long as this
                weakref.finalize(self, _close, self._file)
            self._file.write(line)
        except OSError as error:
            raise _no_room(error) from error
        self._ends.append(self._ends[-1] + len(line))
        return len(self._held) + len(self._ends) - 2

    def __getitem__(self, number: int) -> tuple[str, bytes]:
        beyond = number - len(self._held)
        if beyond < 0:
            return self._held[number]
        assert self._file is not None
        begin, end = self._ends[beyond], self._ends[beyond + 1]
        try:
            self._file.flush()
        except OSError as error:
            raise _no_room(error) from error
        name, _, data = os.pread(self._file.fileno(), end - begin, begin).partition(b"\n")
        return name.decode(), data


def _close(file: IO[bytes]) -> None:
    with suppress(OSError):  # a full disk was reported when a row was added
        file.close()


def _no_room(error: OSError) -> ConfigurationError:
    folder = tempfile.gettempdir()
    message = f"the rows of large datasets are kept in {folder} while a run is planned, which failed"
    return ConfigurationError(f"{message}: {error.strerror}; set TMPDIR to a folder with more room")
