"""The entry point of `orchestrate`: finds a command's module by name when it is used, and turns errors into exits."""

from __future__ import annotations

import importlib
import sys
import traceback
from asyncio import CancelledError
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, cast

import click

from evalfleet.cli.application import Application
from evalfleet.cli.failures import code_of, error_lines, error_value
from evalfleet.errors import ObserverFailed
from evalfleet.reports.exit_code import ExitCode

if TYPE_CHECKING:
    from evalfleet import api
    from evalfleet.cli.surface import Api

    _THE_API_FITS: Api = api

#: Each command's module under `evalfleet.cli.commands` and its line in the overview.
COMMANDS: Mapping[str, tuple[str, str]] = {
    "init": ("init", "Write a project that runs as it is."),
    "list": ("list_evals", "List the project's evals."),
    "try": ("try_cases", "Run a few cases here and now, and print what happened."),
    "plan": ("plan", "Say what a run would do, and why."),
    "submit": ("submit", "Run an experiment."),
    "resume": ("resume", "Go on with a run over what is not settled."),
    "rescore": ("rescore", "Judge a run's recorded attempts again, without its agents."),
    "cancel": ("cancel", "Stop a run; what is settled stays."),
    "delete": ("delete", "Delete a run with all its evidence."),
    "status": ("status", "How a run is doing."),
    "watch": ("watch", "Follow a run until it ends."),
    "runs": ("runs", "List runs, newest first."),
    "capacity": ("capacity", "Which runs use how much of which account's rate."),
    "show": ("show", "List a run's cases, or show one with its evidence."),
    "report": ("report", "Write a run's report as text, JSON, Markdown or JUnit."),
    "compare": ("compare", "Hold one side against another, pair by pair."),
    "sandboxes": ("sandboxes", "List the sandboxes that there are, and remove those that are nobody's."),
    "sandbox": ("sandbox", "Open a shell in a sandbox, or remove it."),
    "pack": ("pack", "Check Task packs, and repeat what their attempts wrote."),
    "judge": ("judge", "How far a judge agrees with people."),
    "up": ("up", "Keep a Ray and the record store up, for runs to join."),
    "down": ("down", "End what `up` keeps running."),
    "export": ("export", "Write a run with all its evidence into one file."),
    "import": ("import_run", "Read an exported run into this record store."),
    "db": ("db", "The record store: its schema, its address, its garbage."),
    "doctor": ("doctor", "Look at everything that a run needs on this machine."),
}


class LazyGroup(click.Group):
    """Imports a command's module only when the command is used, so that `--help` and completion stay quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"evalfleet.cli.commands.{COMMANDS[cmd_name][0]}")
        return module.command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        close = [] if args[0] in COMMANDS else get_close_matches(args[0], COMMANDS, n=1)
        if close:
            ctx.fail(f"no command {args[0]!r}: did you mean {close[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Print the traceback of an error.")
@click.version_option(package_name="evalfleet", prog_name="orchestrate")
@click.pass_obj
def orchestrate(application: Application, debug: bool) -> None:
    """Run evals of AI agents, on this machine or on a cluster.

    \b
    Exit codes: 0 accepted, 1 not accepted, 2 usage, definition or configuration, 3 limited (budget, failures),
    4 infrastructure or record store, 5 inconclusive, 130 cancelled.
    """
    application.debug = debug


def main() -> None:
    """The console script."""
    sys.exit(invoke(sys.argv[1:], Application(load_api)))


def invoke(arguments: Sequence[str], application: Application) -> int:
    """Run one command line and return its exit code; nothing escapes but SystemExit."""
    application.arguments = tuple(arguments)
    application.json = "--json" in arguments
    try:
        result: Any = orchestrate.main(
            args=list(arguments), prog_name="orchestrate", obj=application, standalone_mode=False
        )
        return int(result or 0)
    except BrokenPipeError:
        application.leave_stdout()
        return int(ExitCode.NOT_ACCEPTED)
    except ObserverFailed as error:
        application.leave_stdout()
        _report(error, application)
        return int(code_of(error))
    except (CancelledError, KeyboardInterrupt, click.Abort):
        _report(click.Abort(), application)
        return int(ExitCode.CANCELLED)
    except Exception as error:  # noqa: BLE001 - the edge of the program: every error becomes a line and a code
        _report(error, application)
        return int(code_of(error))


def _report(error: Exception, application: Application) -> None:
    if application.debug:
        application.note("".join(traceback.format_exception(error)).rstrip())
    if application.json:
        application.value(error_value(error))
    for line in error_lines(error):
        application.note(line)


def load_api() -> Api:
    """The Python API, imported."""
    return cast("Api", importlib.import_module("evalfleet.api"))


if __name__ == "__main__":
    main()
