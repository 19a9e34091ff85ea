"""The setup of a sandbox: shell commands in order, the first that fails ends it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.sandbox_ports import Command, CommandResult

_STDERR_TAIL = 2000


async def set_up(lines: Sequence[str], bash: str | None, run: Callable[[Command], Awaitable[CommandResult]]) -> None:
    """Run the setup commands. Raises AttemptFailure SANDBOX_SETUP_FAILED with the end of stderr.

    A line fails at its first failing command, with `bash` (where that is, if the sandbox has it) also inside a pipe.
    """
    strict = ("sh", "-ec") if bash is None else (bash, "-eo", "pipefail", "-c")
    for number, line in enumerate(lines, start=1):
        result = await run(Command(argv=(*strict, line)))
        if not result.ok:
            ending = f"exit code {result.exit_code}" if result.signal is None else f"signal {result.signal}"
            tail = result.stderr[-_STDERR_TAIL:].decode("utf-8", "replace")
            place = f"setup command {number} of {len(lines)}"
            message = f"{place} ended with {ending}: {line}\n{tail}".rstrip()
            raise AttemptFailure(FailureKind.SANDBOX, "SANDBOX_SETUP_FAILED", message)
