"""What a command's exit code says about the run it waited for."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from evalfleet.model.comparison import Finding
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


def gate_code(findings: Iterable[Finding]) -> ExitCode:
    """The exit code of a gate between two sides: a second side that is worse anywhere, then one that may be."""
    found = set(findings)
    if Finding.WORSE in found:
        return ExitCode.NOT_ACCEPTED
    return ExitCode.INCONCLUSIVE if Finding.INCONCLUSIVE in found else ExitCode.ACCEPTED
