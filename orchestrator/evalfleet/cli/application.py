"""What every command is given: the API, where to write, and how to run a coroutine."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from evalfleet.api.listeners import Observer
from evalfleet.cli.event_lines import EventLines
from evalfleet.cli.interrupts import cancelled_by_signals
from evalfleet.reports.json_text import to_json

if TYPE_CHECKING:
    from evalfleet.cli.surface import Api

T = TypeVar("T")


class Application:
    """The state of one invocation. `arguments` is the command line; `json` and `debug` say what it asks for."""

    def __init__(self, load_api: Callable[[], Api]) -> None:
        self._load_api = load_api
        self._api: Api | None = None
        self.arguments: tuple[str, ...] = ()
        self.json = False
        self.debug = False

    @property
    def api(self) -> Api:
        """The Python API, imported on first use."""
        if self._api is None:
            self._api = self._load_api()
        return self._api

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run to the end; the first Ctrl-C cancels `work` and waits for it, the second one ends it at once."""

        async def guarded() -> T:
            with cancelled_by_signals(self.note):
                return await work

        return asyncio.run(guarded())

    def lines(self, lines: Iterable[str]) -> None:
        """Text for people, on stdout."""
        for line in lines:
            click.echo(line)

    def value(self, value: Any) -> None:
        """One JSON document on one line of stdout."""
        click.echo(to_json(value))

    def observer(self) -> Observer | None:
        """What is told the events of a run: with --json whoever reads stdout."""
        return Observer(EventLines(), by_page=True) if self.json else None

    def leave_stdout(self) -> None:
        """Write nothing there any more: whoever read it has gone, and even a flush at exit could fail or wait."""
        self.json = False
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def note(self, text: str) -> None:
        """Something to know while a command works, on stderr."""
        click.echo(text, err=True)


pass_application = click.make_pass_decorator(Application)
