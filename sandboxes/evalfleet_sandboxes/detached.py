"""A detached command whose output goes to two files on this machine: readable by any number of readers, at any time."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from evalfleet.sandbox_ports import Command, CommandResult, OutputPiece, Stream
from evalfleet_sandboxes.blocking import in_thread
from evalfleet_sandboxes.folder import Folder

#: The most bytes of one read.
PIECE = 1 << 20
_LOOK_SECONDS = 0.02


def redirected(command: Command, folder: str) -> Command:
    """The command with its outputs in the files `stdout` and `stderr` of `folder`, which has to exist."""
    script = 'folder=$1; shift; exec "$@" >"$folder/stdout" 2>"$folder/stderr"'
    return replace(command, argv=("sh", "-c", script, "sh", folder, *command.argv))


@dataclass(frozen=True, slots=True)
class Outputs:
    """The files `stdout` and `stderr` in the folder `name` of `files`. Blocking; call it from a thread.

    The command may do to them what it likes: what is gone reads as empty, and nothing leads out of `files`.
    """

    files: Folder
    name: str

    def make(self) -> None:
        for stream in Stream:
            self.files.write(f"{self.name}/{stream.value}", b"")

    def piece(self, stream: Stream, after: int, size: int) -> bytes:
        with contextlib.suppress(OSError):
            return self.files.piece(f"{self.name}/{stream.value}", after, size)
        return b""

    def kept(self, stream: Stream, limit: int) -> tuple[bytes, int]:
        """Head and tail of a file, together at most `limit` bytes, and its size."""
        try:
            size = self.files.size(f"{self.name}/{stream.value}")
        except OSError:
            return b"", 0
        if size <= limit:
            return self.piece(stream, 0, size), size
        head = limit // 2
        return self.piece(stream, 0, head) + self.piece(stream, size - (limit - head), limit - head), size


class FileExecution:
    """A command that runs in `task`, its outputs in files. `limit` is the command's output limit.

    `task` is cancelled to end the command, and must not be done before its whole tree is dead. `require_open` raises
    once the sandbox is closed: the files are gone then.
    """

    def __init__(
        self,
        outputs: Outputs,
        task: asyncio.Task[CommandResult],
        limit: int,
        require_open: Callable[[], object],
    ) -> None:
        self._outputs = outputs
        self._task = task
        self._limit = limit
        self._require_open = require_open

    @property
    def id(self) -> str:
        return self._outputs.name.rpartition("/")[2]

    async def read(self, stream: Stream = Stream.STDOUT, *, after: int = 0, wait: float = 0.0) -> OutputPiece:
        looks = math.ceil(wait / _LOOK_SECONDS)
        while True:
            complete = self._task.done()  # looked at first: what it wrote last is in the file by then
            data = await in_thread(self._outputs.piece, stream, after, PIECE)
            self._require_open()
            if data or complete or looks <= 0:
                return OutputPiece(data=data, cursor=after + len(data), complete=complete and len(data) < PIECE)
            await asyncio.wait((self._task,), timeout=_LOOK_SECONDS)
            looks -= 1

    async def result(self) -> CommandResult:
        await asyncio.wait((self._task,))
        if self._task.cancelled():
            ended = CommandResult(exit_code=None, stdout=b"", stderr=b"", duration=0.0, signal=9)
        else:
            ended = self._task.result()
        out, err = [await in_thread(self._outputs.kept, stream, self._limit) for stream in Stream]
        self._require_open()
        return replace(ended, stdout=out[0], stdout_bytes=out[1], stderr=err[0], stderr_bytes=err[1])

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.wait((self._task,))
        with contextlib.suppress(asyncio.CancelledError):
            self._task.exception()
