"""`docs/commands.md` holds the reference that the commands give of themselves.

`python -m tests.architecture.test_command_reference` writes it anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

from evalfleet.cli.main import orchestrate
from tests.architecture.source import ROOT

PAGE = ROOT / "docs" / "commands.md"
SECTION = re.compile(r"^## Reference\n.*\Z", re.MULTILINE | re.DOTALL)

#: Options that each command has, or that the page describes once.
EVERYWHERE = frozenset({"--json", "--help"})


def reference() -> str:
    """The section: for each command how it is called, what it does, and its options."""
    lines = ["## Reference", "", "Each command also takes `--json` and `--help`."]
    for words, command in commands(orchestrate, ()):
        lines += ["", f"### `{usage(words, command)}`", "", *described(command)]
        options = [each for each in command.params if isinstance(each, click.Option) and not EVERYWHERE & {*each.opts}]
        if options:
            lines += ["", "| Option | |", "|---|---|", *map(row, options)]
    return "\n".join(lines) + "\n"


def commands(group: click.Group, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command, those of groups with their group's name before them."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))
        else:
            yield (*words, name), command


def usage(words: tuple[str, ...], command: click.Command) -> str:
    context = click.Context(command)
    arguments = [each.make_metavar(context) for each in command.params if isinstance(each, click.Argument)]
    return " ".join(("orchestrate", *words, *arguments))


def described(command: click.Command) -> list[str]:
    """The help's paragraphs, each on one line."""
    paragraphs = (command.help or "").replace("\b", "").split("\n\n")
    return "\n\n".join(" ".join(each.split()) for each in paragraphs).split("\n")


def row(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    values = "" if option.is_flag else " " + option.make_metavar(click.Context(orchestrate)).removesuffix(" RANGE")
    return f"| {names}{escaped(values)} | {escaped(option.help or '')} |"


def escaped(text: str) -> str:
    return text.replace("|", r"\|").replace("<", "&lt;")


def test_the_page_holds_what_the_commands_say_of_themselves() -> None:
    (section,) = SECTION.findall(PAGE.read_text(encoding="utf-8"))
    assert section == reference(), "python -m tests.architecture.test_command_reference writes docs/commands.md anew"


def test_every_option_is_explained() -> None:
    silent = [
        f"{' '.join(words)} {option.opts[-1]}"
        for words, command in commands(orchestrate, ())
        for option in command.params
        if isinstance(option, click.Option) and not option.help
    ]
    assert not silent, ", ".join(silent)


if __name__ == "__main__":
    PAGE.write_text(SECTION.sub(reference().replace("\\", r"\\"), PAGE.read_text(encoding="utf-8")), encoding="utf-8")
