from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from evalfleet.cli.application import Application
from evalfleet.cli.main import invoke
from tests.unit.cli.fake_api import FakeApi, FakeRun, as_api


@dataclass
class Shell:
    """Runs command lines in this process; `out` and `err` are what the last one wrote."""

    capture: pytest.CaptureFixture[str]
    api: FakeApi = field(default_factory=FakeApi)
    out: str = ""
    err: str = ""

    def __call__(self, *arguments: str) -> int:
        self.capture.readouterr()
        code = invoke(arguments, Application(lambda: as_api(self.api)))
        self.out, self.err = self.capture.readouterr()
        return code

    @property
    def values(self) -> list[Any]:
        """Stdout as JSON, a document a line."""
        return [json.loads(line, parse_constant=pytest.fail) for line in self.out.splitlines()]


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


@pytest.fixture
def with_run(shell: Shell) -> Callable[[FakeRun], FakeRun]:
    def add(run: FakeRun) -> FakeRun:
        shell.api.known.append(run)
        return run

    return add
