"""What backends share whose commands are started from this machine: shells, and programs that can't be started."""

from __future__ import annotations

import errno
import functools
import shutil

from evalfleet.sandbox_ports import Command, CommandResult

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: What a shell answers when a program can't be run, and when there is none.
_CANNOT_RUN, NOT_FOUND = 126, 127


def not_started(command: Command, error: OSError) -> CommandResult:
    """The result of a program that can't be started. Raises the error when it is about something else."""
    if error.filename != command.argv[0]:
        raise error
    code = NOT_FOUND if error.errno == errno.ENOENT else _CANNOT_RUN
    message = f"{command.argv[0]}: {error.strerror}\n".encode(errors="replace")
    return CommandResult(exit_code=code, stdout=b"", stderr=message, duration=0.0, stderr_bytes=len(message))


def shell() -> str:
    """The shell that people get: bash where it is installed."""
    return host_bash() or "sh"


@functools.cache
def host_bash() -> str | None:
    """Where bash is on this machine, if it was installed when this process first asked."""
    return shutil.which("bash", path=SYSTEM_PATH)
