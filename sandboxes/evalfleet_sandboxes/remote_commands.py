"""Commands of a sandbox that only a client's `exec` reaches: how each ended is reported from inside, or unknown."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import math
import os
import posixpath
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.sandbox_ports import Command, CommandResult, OutputPiece, Stream
from evalfleet_sandboxes.inside import PIECE, Inner, Report, exports, mark_of, parse_report

#: Beside the kept outputs: the line of a report.
_REPORT_LINE = 4096
#: How long a script of ours may take that waits for nothing, in seconds.
_SCRIPT_SECONDS = 60.0
#: How long one exec waits for a command's end once its own connection was lost, and between tenths of a second.
_WAIT_LOOKS = 100
_LOOKS_PER_SECOND = 10
_TRIES = 3
_CWD_ERRORS = {"nowhere": errno.ENOENT, "nofolder": errno.ENOTDIR, "forbidden": errno.EACCES}
_BROKEN = "the folder of its commands can't be written to"


class Door(Protocol):
    """The way into a sandbox. Everything raises AttemptFailure once the sandbox is closed or lost."""

    async def exec(
        self, argv: tuple[str, ...], *, stdin: bytes = b"", user: str | None = None, limit: int, timeout: float | None
    ) -> CommandResult:
        """Run one of our scripts; what came of the connection is the result, and may be nothing."""
        ...

    async def exec_to(self, argv: tuple[str, ...], file: Path, *, timeout: float) -> CommandResult:
        """Run one of our scripts, its output into a file of this machine."""
        ...

    async def require_alive(self) -> None:
        """Raises AttemptFailure SANDBOX_CLOSED, SANDBOX_LOST or SANDBOX_OOM unless the sandbox lives."""
        ...

    async def retire(self, why: str) -> AttemptFailure:
        """Destroy a sandbox of which something can't be proven; the failure SANDBOX_LOST that it ends with."""
        ...

    def room(self) -> AbstractAsyncContextManager[None]:
        """Room for a process of ours in a sandbox that has used up its own."""
        ...


class RemoteCommands:
    """Runs, starts and ends commands behind a door. `env` is every command's, below its own."""

    def __init__(self, door: Door, inner: Inner, env: Mapping[str, str]) -> None:
        self._door = door
        self._inner = inner
        self._env = env
        self._numbers = itertools.count(1)
        self._started: dict[str, RemoteExecution] = {}
        self._done: list[str] = []

    def know(self, env: Mapping[str, str]) -> None:
        """Give this to every command that starts from now on, over what it had."""
        self._env = {**self._env, **env}

    async def run(self, command: Command) -> CommandResult:
        """See `Sandbox.run`."""
        mark = mark_of(next(self._numbers))
        result = await self.run_as(mark, command)
        self._done.append(mark)
        return result

    async def start(self, command: Command) -> RemoteExecution:
        """See `Sandbox.start`."""
        await self._door.require_alive()
        mark = mark_of(next(self._numbers))
        execution = self._started[mark] = RemoteExecution(self, mark, command)
        return execution

    def attach(self, execution: str) -> RemoteExecution:
        """Raises KeyError."""
        return self._started[execution]

    async def end_all(self) -> None:
        """Give up on what was started, when everything inside is dead already."""
        for execution in self._started.values():
            await execution.abandon()
        self._started.clear()

    async def run_as(self, mark: str, command: Command) -> CommandResult:
        """Run a command under a mark of its own; its tree is proven dead after a timeout and a cancellation."""
        try:
            async with asyncio.timeout(command.timeout):
                report = await self._to_its_end(mark, command)
        except TimeoutError:
            report = await asyncio.shield(self.end(mark, command))
            duration = max(command.timeout or 0.0, report.duration)
            return replace(_result(report), duration=duration, exit_code=None, signal=None, timed_out=True)
        except asyncio.CancelledError:
            with contextlib.suppress(AttemptFailure):  # closed or lost: nothing of it lives
                await asyncio.shield(self.end(mark, command))
            raise
        return _result(report)

    async def end(self, mark: str, command: Command) -> Report:
        """End a command's tree; its outputs so far. Raises SANDBOX_LOST where its death can't be proven."""
        limit = command.output_limit
        report = await self._ask(self._inner.end(mark, limit=limit), limit, user=command.user, roomy=True)
        if report is None or report.how != "dead":
            raise await self._door.retire("a command's processes would not die")
        return report

    async def piece(self, mark: str, stream: Stream, after: int, looks: int, user: str | None) -> Report:
        """A piece of a command's output: `complete` or `partial`."""
        asked = self._inner.piece(mark, stream.value, after=after, looks=looks)
        report = await self._ask(asked, PIECE, user=user, seconds=looks)
        if report is None:
            raise await self._door.retire("its command's output can't be read")
        return report

    async def look_again(self, mark: str, command: Command) -> Report:
        """What is known of a command now."""
        limit = command.output_limit
        report = await self._ask(self._inner.again(mark, limit=limit), limit, user=command.user, roomy=True)
        if report is None:
            raise await self._door.retire("how a command ended can't be known")
        return report

    async def _to_its_end(self, mark: str, command: Command) -> Report:
        inner, limit = self._inner, command.output_limit
        done, self._done = tuple(self._done), []
        cwd = posixpath.join(inner.workdir, command.cwd or "")
        argv = inner.run(mark, command.argv, cwd, limit=limit, stdin=command.stdin is not None, done=done)
        stdin = self._environment(command) + (command.stdin or b"")
        result = await self._exec(argv, limit, stdin=stdin, user=command.user)
        report = parse_report(result.stdout, limit)
        if report is None:
            report = await self._after_a_cut(mark, command, result)
        if report.how in ("lost", "broken"):
            raise await self._door.retire("its working directory is gone" if report.how == "lost" else _BROKEN)
        _raise_for_cwd(report.how, cwd)
        return report

    async def _after_a_cut(self, mark: str, command: Command, result: CommandResult) -> Report:
        """How a command ended whose exec brought no report: no exit status is no success."""
        limit = command.output_limit
        while True:
            await self._door.require_alive()
            asked = self._inner.again(mark, limit=limit, looks=_WAIT_LOOKS)
            report = await self._ask(asked, limit, user=command.user, seconds=_WAIT_LOOKS, roomy=True)
            if report is None and command.user is not None:  # there may be no such user, and nothing was started
                report = await self._ask(self._inner.again(mark, limit=limit), limit, user=None)
            if report is None or report.how == "unknown":
                raise await self._door.retire(f"how {command.argv[0]!r} ended is unknown")
            if report.how == "never":
                said = (result.stderr or result.stdout)[-_REPORT_LINE:].decode("utf-8", "replace").strip()
                raise AttemptFailure(FailureKind.SANDBOX, "SANDBOX_FAILED", f"a command could not be started: {said}")
            if report.how != "running":
                return report

    async def _ask(
        self, argv: tuple[str, ...], limit: int, *, user: str | None, seconds: float = 0.0, roomy: bool = False
    ) -> Report | None:
        """A report of a script that may run twice; None when none comes. Makes room for it, should there be none."""
        for number in range(_TRIES):
            if number and roomy:
                async with self._door.room():
                    result = await self._exec(argv, limit, user=user, timeout=_SCRIPT_SECONDS + seconds)
            else:
                result = await self._exec(argv, limit, user=user, timeout=_SCRIPT_SECONDS + seconds)
            report = parse_report(result.stdout, limit)
            if report is not None:
                return report
            await self._door.require_alive()
        return None

    async def _exec(
        self,
        argv: tuple[str, ...],
        limit: int,
        *,
        stdin: bytes = b"",
        user: str | None,
        timeout: float | None = None,
    ) -> CommandResult:
        return await self._door.exec(argv, stdin=stdin, user=user, limit=2 * limit + _REPORT_LINE, timeout=timeout)

    def _environment(self, command: Command) -> bytes:
        try:
            return exports({**self._env, **command.env})
        except ValueError as error:
            raise AttemptFailure(FailureKind.SANDBOX, "SANDBOX_UNSUPPORTED", str(error)) from error


class RemoteExecution:
    """See `Execution`. Its exec is held by a task; its output is in files of the sandbox."""

    def __init__(self, commands: RemoteCommands, mark: str, command: Command) -> None:
        self._commands = commands
        self._mark = mark
        self._command = command
        self._task = asyncio.create_task(commands.run_as(mark, command), name=f"command {mark}")

    @property
    def id(self) -> str:
        return self._mark

    async def read(self, stream: Stream = Stream.STDOUT, *, after: int = 0, wait: float = 0.0) -> OutputPiece:
        ended = self._task.done()  # looked at first: what it wrote last is in the file by then
        looks = 0 if ended else math.ceil(wait * _LOOKS_PER_SECOND)
        report = await self._commands.piece(self._mark, stream, after, looks, self._command.user)
        complete = report.how == "complete" or (ended and len(report.stdout) < PIECE)
        return OutputPiece(data=report.stdout, cursor=after + len(report.stdout), complete=complete)

    async def result(self) -> CommandResult:
        await asyncio.wait((self._task,))
        if not self._task.cancelled():
            return self._task.result()
        report = await self._commands.look_again(self._mark, self._command)
        return replace(_result(report), exit_code=None, signal=9)

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.wait((self._task,))

    async def abandon(self) -> None:
        """Wait for the task of a command that is dead already."""
        await asyncio.wait((self._task,))
        if not self._task.cancelled():
            self._task.exception()


def _result(report: Report) -> CommandResult:
    return CommandResult(
        exit_code=report.exit_code,
        signal=report.signal,
        stdout=report.stdout,
        stderr=report.stderr,
        stdout_bytes=report.stdout_bytes,
        stderr_bytes=report.stderr_bytes,
        duration=report.duration,
        oom_kills=report.oom_kills,
    )


def _raise_for_cwd(how: str, cwd: str) -> None:
    if how in _CWD_ERRORS:
        number = _CWD_ERRORS[how]
        raise OSError(number, os.strerror(number), cwd)
