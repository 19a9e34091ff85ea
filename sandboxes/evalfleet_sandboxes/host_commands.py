"""What backends share whose commands are started from this machine: setup, and programs that can't be started."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Awaitable, Callable, Sequence

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.sandbox_ports import Command, CommandResult

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_STDERR_TAIL = 2000
#: What a shell answers when a program can't be run, and when there is none.
_CANNOT_RUN, _NOT_FOUND = 126, 127


async def set_up(lines: Sequence[str], run: Callable[[Command], Awaitable[CommandResult]]) -> None:
    """Run the setup commands in order. Raises AttemptFailure SANDBOX_SETUP_FAILED at the first that fails."""
    for number, line in enumerate(lines, start=1):
        result = await run(Command(argv=(*_strict(), line)))
        if not result.ok:
            ending = f"exit code {result.exit_code}" if result.signal is None else f"signal {result.signal}"
            tail = result.stderr[-_STDERR_TAIL:].decode("utf-8", "replace")
            place = f"setup command {number} of {len(lines)}"
            message = f"{place} ended with {ending}: {line}\n{tail}".rstrip()
            raise AttemptFailure(FailureKind.SANDBOX, "SANDBOX_SETUP_FAILED", message)


def not_started(command: Command, error: OSError) -> CommandResult:
    """The result of a program that can't be started. Raises the error when it is about something else."""
    if error.filename != command.argv[0]:
        raise error
    code = _NOT_FOUND if error.errno == errno.ENOENT else _CANNOT_RUN
    message = f"{command.argv[0]}: {error.strerror}\n".encode(errors="replace")
    return CommandResult(exit_code=code, stdout=b"", stderr=message, duration=0.0, stderr_bytes=len(message))


def shell() -> str:
    """The shell that people get: bash where it is installed."""
    return shutil.which("bash", path=SYSTEM_PATH) or "sh"


def _strict() -> tuple[str, ...]:
    """How a setup line is run: it fails at its first failing command, with bash also inside a pipe."""
    return ("sh", "-ec") if shell() == "sh" else (shell(), "-eo", "pipefail", "-c")
