"""`command_match`: what a shell tool was told to run, by exact tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from evalfleet.assertions.event_index import Occurrence
from evalfleet.assertions.match import kleene_and, kleene_or
from evalfleet.assertions.shell_words import Command, commands_of_argv, commands_of_text
from evalfleet.assertions.tools import (
    MATCH,
    MISMATCH,
    Candidate,
    OperationMatch,
    conjunction,
    operation_status,
    status_candidate,
)
from evalfleet.errors import AuthoringError
from evalfleet.model.assertion import Result
from evalfleet.model.events import OperationKind, OperationStatus

SHELL = "shell"

_FIELDS = ("command", "cmd", "argv")
#: What runs inside of these is not looked into; whether it is the wanted program can't be decided.
_WRAPPERS = frozenset({
    "builtin", "case", "command", "do", "doas", "elif", "else", "env", "eval", "exec", "find", "for", "if", "nice",
    "nohup", "parallel", "sh", "bash", "zsh", "dash", "source", ".", "ssh", "sudo", "then", "time", "timeout",
    "until", "while", "xargs",
})  # fmt: skip
_UNREADABLE = Candidate(Result.UNAVAILABLE, "evidence:command-opaque")
_UNCLASSIFIED = Candidate(Result.UNAVAILABLE, "evidence:command-unclassified")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandMatch(OperationMatch):
    """Conditions on one command that a tool of the class `shell` was told to run."""

    written: ClassVar[str] = "command_match(...)"
    executable: str
    args_start: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    status: OperationStatus | None = None

    def describe(self) -> Any:
        return {
            "executable": self.executable,
            "args_start": list(self.args_start),
            "excludes": list(self.excludes),
            "status": self.status.value if self.status else None,
            "count": self.wanted.describe(),
        }

    def candidate(self, found: Occurrence, gap: str | None) -> Candidate:
        if found.kind is not OperationKind.TOOL or found.tool not in (SHELL, None):
            return MISMATCH
        if found.tool is None:
            return _UNCLASSIFIED
        commands = parse(found.input)
        ran = _UNREADABLE if commands is None else _RAN[kleene_or(self._says(command) for command in commands)]
        return conjunction((ran, status_candidate(self.status, found, gap)))

    def _says(self, command: Command) -> Result:
        """Whether this is the wanted command; unavailable where the shell computes what decides it."""
        program, arguments = command[0], command[1:]
        name = program.text if "/" in self.executable else program.text.rpartition("/")[2]
        if not program.literal or any(mark in program.text for mark in "<>"):
            return Result.UNAVAILABLE
        if name != self.executable:
            return Result.UNAVAILABLE if name in _WRAPPERS else Result.MISMATCHED
        return kleene_and((self._starts(arguments), self._spares(arguments)))

    def _starts(self, arguments: Command) -> Result:
        for wanted, given in zip(self.args_start, arguments, strict=False):
            if not given.literal:
                return Result.UNAVAILABLE
            if given.text != wanted:
                return Result.MISMATCHED
        return Result.MATCHED if len(arguments) >= len(self.args_start) else Result.MISMATCHED

    def _spares(self, arguments: Command) -> Result:
        if any(word.literal and word.text in self.excludes for word in arguments):
            return Result.MISMATCHED
        unsure = self.excludes and not all(word.literal for word in arguments)
        return Result.UNAVAILABLE if unsure else Result.MATCHED


_RAN = {Result.MATCHED: MATCH, Result.MISMATCHED: MISMATCH, Result.UNAVAILABLE: _UNREADABLE}


def command_match(
    executable: str,
    *,
    args_start: Sequence[str] = (),
    excludes: Sequence[str] = (),
    status: OperationStatus | str | None = None,
) -> CommandMatch:
    """Matches a shell command by its program, the words its arguments start with, and words it must not have.

    Only a tool that the adapter classified as `shell` is read. What the text does not show can't be decided: a
    tool of no known class, substitutions, here-documents, and what runs inside of `sudo`, `xargs` and the like.
    `rm` also matches `/bin/rm`. What a script or another program runs is not looked into.
    """
    if not isinstance(executable, str) or not executable:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise AuthoringError(f"command_match: the program must be a text that is not empty, not {executable!r}")
    for name, tokens in (("args_start", args_start), ("excludes", excludes)):
        if isinstance(tokens, str) or not all(isinstance(token, str) for token in tokens):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise AuthoringError(f"command_match: {name} is a list of tokens, such as ['-r', 'src']")
    return CommandMatch(
        executable=executable,
        args_start=tuple(args_start),
        excludes=tuple(excludes),
        status=operation_status(status, "command_match"),
    )


def parse(given: Any) -> list[Command] | None:
    """The commands in a shell tool's input; None when they can't be read from it."""
    if isinstance(given, dict):
        fields = cast("dict[str, Any]", given)
        given = next((fields[name] for name in _FIELDS if name in fields), None)
    if isinstance(given, str):
        return commands_of_text(given)
    if not isinstance(given, (list, tuple)):
        return None
    argv = tuple(cast("list[Any]", given))
    return commands_of_argv(argv) if argv and all(isinstance(token, str) for token in argv) else None
