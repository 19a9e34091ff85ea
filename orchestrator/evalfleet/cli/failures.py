"""Errors as people and programs read them: one line each that says where, what and what to do; and the exit code."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click
from click.exceptions import NoArgsIsHelpError

from evalfleet.errors import (
    ConfigurationError,
    DefinitionError,
    EvalfleetError,
    InfrastructureError,
    StoreError,
    describe,
)
from evalfleet.reports.exit_code import ExitCode
from evalfleet.reports.visible import visible_line

#: The code of an error that only a mistake in evalfleet can cause.
RUNNER_INTERNAL = "RUNNER_INTERNAL"


def code_of(error: BaseException) -> ExitCode:
    """The exit code that an escaped error means."""
    match error:
        case KeyboardInterrupt() | click.Abort():
            return ExitCode.CANCELLED
        case click.ClickException() | DefinitionError() | ConfigurationError():
            return ExitCode.USAGE
        case StoreError() | InfrastructureError():
            return ExitCode.INFRASTRUCTURE
        case OSError() if error.filename is not None:
            return ExitCode.USAGE
        case _:
            return ExitCode.INFRASTRUCTURE


def error_lines(error: BaseException) -> list[str]:
    """What to print: a line for each problem of a batch, else one line; the help where only a command's name stood."""
    if isinstance(error, NoArgsIsHelpError):
        return error.format_message().splitlines()
    if isinstance(error, DefinitionError):
        return [f"error: {visible_line(str(problem))}" for problem in error.problems] or [f"error: {error.code}"]
    return [f"error: {_one_line(_message(error))}"]


def error_value(error: BaseException) -> dict[str, Any]:
    """The same for programs."""
    value: dict[str, Any] = {"exit_code": int(code_of(error)), "message": _message(error)}
    if isinstance(error, DefinitionError):
        value |= {"code": error.code, "problems": [asdict(problem) for problem in error.problems]}
    elif _is_ours(error):
        value |= {"code": RUNNER_INTERNAL}
    return {"error": value}


def _is_ours(error: BaseException) -> bool:
    """Whether it is a mistake in evalfleet: nothing that has a message for its user."""
    told = isinstance(error, EvalfleetError | click.ClickException | click.Abort | KeyboardInterrupt)
    return not told and not (isinstance(error, OSError) and error.filename is not None)


def _message(error: BaseException) -> str:
    match error:
        case KeyboardInterrupt() | click.Abort():
            return "cancelled"
        case click.UsageError():
            hint = f" ({error.ctx.command_path} --help)" if error.ctx is not None else ""
            return f"{error.format_message()}{hint}"
        case click.ClickException():
            return error.format_message()
        case EvalfleetError():
            return describe(error)
        case OSError() if error.filename is not None:
            return f"{error.filename}: {error.strerror}"
        case _:
            what = f"{type(error).__name__}: {describe(error)}"
            return f"{what} (a bug of evalfleet: --debug shows where) [{RUNNER_INTERNAL}]"


def _one_line(text: str) -> str:
    return visible_line("; ".join(line.strip() for line in text.splitlines() if line.strip()))
