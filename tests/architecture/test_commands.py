"""Documents name only commands and options that `orchestrate` has."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from evalfleet.cli.main import COMMANDS, orchestrate
from tests.architecture.source import ROOT, committed_files

DOCUMENTS = [path for path in committed_files() if path.suffix == ".md"]
COMMAND_LINE = re.compile(
    r"`(?:\.venv/bin/)?orchestrate ([^`\n]+)`|^\s*(?:\$ )?(?:\.venv/bin/)?orchestrate ([^\n]+)", re.M
)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def command_lines(text: str) -> Iterator[list[str]]:
    """The arguments of every `orchestrate …` in quotes, or on a line of its own in a fenced block."""
    for quoted, _ in COMMAND_LINE.findall(FENCE.sub("", text)):
        if quoted:
            yield shlex.split(quoted)
    for fence in FENCE.finditer(text):
        for quoted, line in COMMAND_LINE.findall(fence.group()):
            yield shlex.split(quoted or line, comments=True)


def unknown(arguments: list[str]) -> Iterator[str]:
    """What of a command line does not exist."""
    name, *rest = arguments
    if name.isupper():  # a placeholder
        return
    if name.startswith("-"):
        command: click.Command = orchestrate
        rest = [name]
    elif name in COMMANDS:
        command = orchestrate.get_command(click.Context(orchestrate), name) or orchestrate
    else:
        yield f"orchestrate {name}"
        return
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        inner = command.get_command(click.Context(command), rest[0])
        if inner is None:
            yield f"orchestrate {name} {rest[0]}"
            return
        command, name, rest = inner, f"{name} {rest[0]}", rest[1:]
    options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for argument in rest:
        if argument.startswith("--") and argument.split("=")[0] not in options | {"--help"}:
            yield f"orchestrate {name} {argument}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_that_a_document_names_exists(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    gone = [problem for arguments in command_lines(text) for problem in unknown(arguments)]
    assert not gone, ", ".join(gone)


def test_the_rule_sees_a_dead_command() -> None:
    text = "Say `orchestrate fly RUN`, or `orchestrate db sink`\n```\norchestrate submit x.yaml --wings=2  # no\n```\n"
    assert [list(unknown(arguments)) for arguments in command_lines(text)] == [
        ["orchestrate fly"],
        ["orchestrate db sink"],
        ["orchestrate submit --wings=2"],
    ]
