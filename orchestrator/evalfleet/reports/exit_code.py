"""What a command's exit code says about the run it waited for."""

from __future__ import annotations

from enum import IntEnum

from evalfleet.model.verdict import RunStatus


class ExitCode(IntEnum):
    """What a command's exit code says."""

    ACCEPTED = 0
    NOT_ACCEPTED = 1
    USAGE = 2
    LIMITED = 3
    INFRASTRUCTURE = 4
    INCONCLUSIVE = 5
    CANCELLED = 130


def exit_code(status: RunStatus, accepted: bool | None) -> ExitCode:
    """The exit code after waiting for a run: how it was scheduled first, then whether it is accepted."""
    if status is RunStatus.CANCELLED:
        return ExitCode.CANCELLED
    if status is RunStatus.LIMITED:
        return ExitCode.LIMITED
    if status is not RunStatus.COMPLETED:
        return ExitCode.INFRASTRUCTURE
    if accepted is None:
        return ExitCode.INCONCLUSIVE
    return ExitCode.ACCEPTED if accepted else ExitCode.NOT_ACCEPTED
