"""The process that holds a template's namespaces: pid 1 in them, made by `bwrap`, and a child of it that sleeps."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

from evalfleet.errors import AttemptFailure, FailureKind, InfrastructureError
from evalfleet.sandbox_ports import Command, CommandResult, Spawner
from evalfleet_sandboxes.blocking import in_thread

#: How long it may take on a machine with much else to do.
_START_SECONDS = 60.0
#: Its arguments come through a pipe: a command line can be read by everyone in there.
_START = 'exec "$@" 4<&0 3>"$0" >&3 </dev/null'
_HOLD = "echo up; exec sleep 2147483647 >/dev/null 2>&1"
_UP = b"up\n"
_PID = re.compile(rb'"child-pid": (\d+)')


class Holder:
    """Lives until `end`, or until something kills it. `group` is the spawner's group of all that is inside.

    `fifo` is a name for its own use.
    """

    def __init__(self, spawner: Spawner, group: str, fifo: Path) -> None:
        self._spawner = spawner
        self._group = group
        self._fifo = fifo
        self._task: asyncio.Task[CommandResult] | None = None
        self.pid = 0

    @property
    def ended(self) -> bool:
        return self._task is not None and self._task.done()

    async def start(self, bwrap: str, arguments: Iterable[str]) -> None:
        """Make the namespaces. Raises AttemptFailure SANDBOX_FAILED with what bwrap says."""
        reader = await in_thread(_make_fifo, self._fifo)
        try:
            argv = ("/bin/sh", "-c", _START, str(self._fifo), bwrap, "--args", "4", "--info-fd", "3", "--")
            data = b"".join(os.fsencode(argument) + b"\0" for argument in arguments)
            command = Command(argv=(*argv, "/bin/sh", "-c", _HOLD), stdin=data, cwd="/")
            running = self._spawner.run(command, base_env={}, group=self._group)
            self._task = asyncio.create_task(running, name=f"holder of {self._group}")
            self.pid = await self._told(reader, self._task)
        finally:
            os.close(reader)
            await in_thread(self._fifo.unlink)

    async def end(self) -> None:
        """End everything inside, proven by its processes being gone. May be called twice.

        Raises InfrastructureError when something won't die.
        """
        await self._spawner.end(self._group)
        if self._task is not None:
            await asyncio.wait((self._task,))
            with contextlib.suppress(InfrastructureError, OSError):  # how it ended tells nobody anything
                self._task.result()

    async def _told(self, reader: int, task: asyncio.Task[CommandResult]) -> int:
        """The process id that is told once everything is in place."""
        loop = asyncio.get_running_loop()
        text = bytearray()
        up = loop.create_future()

        def read() -> None:
            piece = os.read(reader, 4096)
            text.extend(piece)
            if (text.endswith(_UP) or not piece) and not up.done():
                up.set_result(None)

        loop.add_reader(reader, read)
        try:
            await asyncio.wait((up, task), timeout=_START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            loop.remove_reader(reader)
        found = _PID.search(text)
        if text.endswith(_UP) and found is not None:
            return int(found[1])
        raise AttemptFailure(FailureKind.SANDBOX, "SANDBOX_FAILED", f"bubblewrap: {await self._said(task)}")

    async def _said(self, task: asyncio.Task[CommandResult]) -> str:
        """Why it did not start."""
        await asyncio.wait((task,), timeout=1.0)
        if not task.done():
            return f"no sandbox within {_START_SECONDS:g} s"
        try:
            result = task.result()
        except (InfrastructureError, OSError) as error:
            return str(error)
        said = result.stderr.decode("utf-8", "replace").strip()
        return said.rpartition("\n")[2].removeprefix("bwrap: ") or f"ended with exit code {result.exit_code}"


def _make_fifo(path: Path) -> int:
    """A new named pipe, open for reading."""
    os.mkfifo(path, 0o600)
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK)
