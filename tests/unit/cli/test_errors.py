from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from evalfleet.cli.main import COMMANDS
from evalfleet.errors import ConfigurationError, DefinitionError, InfrastructureError, Problem, RunHeld, StoreError
from tests.unit.cli.fake_api import FakeRun, case

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Shell

PROBLEMS = [
    Problem("UNKNOWN_FIELD", "unknown field", "experiment.yaml", 3, 5, "arms.small.modle", "did you mean model?"),
    Problem("MISSING", "no evals", "experiment.yaml"),
]


@pytest.mark.parametrize(
    ("error", "code", "lines"),
    [
        (
            DefinitionError("INVALID_EXPERIMENT", PROBLEMS),
            2,
            [
                "error: experiment.yaml:3:5: arms.small.modle: unknown field (did you mean model?) [UNKNOWN_FIELD]",
                "error: experiment.yaml: no evals [MISSING]",
            ],
        ),
        (ConfigurationError("no such run"), 2, ["error: no such run"]),
        (RunHeld("held by host a, pid 7, 3 s ago"), 2, ["error: held by host a, pid 7, 3 s ago"]),
        (StoreError("can't reach\n  postgres"), 4, ["error: can't reach; postgres"]),
        (InfrastructureError("Ray did not start"), 4, ["error: Ray did not start"]),
        (KeyboardInterrupt(), 130, ["error: cancelled"]),
        (asyncio.CancelledError(), 130, ["error: cancelled"]),
        (FileNotFoundError(2, "No such file or directory", "x.csv"), 2, ["error: x.csv: No such file or directory"]),
        (
            KeyError("\x1b[2J"),
            4,
            [r"error: KeyError: '\x1b[2J' (a bug of evalfleet: --debug shows where) [RUNNER_INTERNAL]"],
        ),
    ],
)
def test_an_error_is_a_line_and_a_code(error: BaseException, code: int, lines: list[str], shell: Shell) -> None:
    shell.api.known.append(FakeRun([case(0)]))
    shell.api.fail = error
    assert shell("cancel", "7f3") == code
    assert [line for line in shell.err.splitlines() if line] == lines
    assert shell.out == ""


def test_json_errors_are_documents(shell: Shell) -> None:
    shell.api.fail = DefinitionError("INVALID_EXPERIMENT", PROBLEMS)
    assert shell("cancel", "7f3", "--json") == 2
    (value,) = shell.values
    assert value["error"]["exit_code"] == 2
    assert value["error"]["problems"][0]["field"] == "arms.small.modle"


@pytest.mark.parametrize(("error", "code"), [(KeyError("x"), "RUNNER_INTERNAL"), (StoreError("gone"), None)])
def test_a_mistake_of_ours_has_a_code_of_its_own(shell: Shell, error: Exception, code: str | None) -> None:
    shell.api.fail = error
    assert shell("cancel", "7f3", "--json") == 4
    assert shell.values[0]["error"].get("code") == code


def test_a_command_line_that_cannot_be_parsed_is_a_document_too(shell: Shell) -> None:
    assert shell("cancel", "7f3", "--wings", "--json") == 2
    (value,) = shell.values
    assert "--wings" in value["error"]["message"]


def test_a_traceback_only_with_debug(shell: Shell) -> None:
    shell.api.fail = StoreError("gone")
    shell("cancel", "7f3")
    assert "Traceback" not in shell.err
    assert shell("--debug", "cancel", "7f3") == 4
    assert "Traceback" in shell.err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("submti",), "error: no command 'submti': did you mean 'submit'? (orchestrate --help)"),
        (("cancel",), "error: Missing argument 'RUN'. (orchestrate cancel --help)"),
        (("submit", "nowhere.yaml"), "error: Invalid value for 'EXPERIMENT': File 'nowhere.yaml' does not exist."),
        (("resume", "7f3", "--set", "limits"), "is not of the form field=value, as in limits.concurrency=8"),
        (("resume", "7f3", "--set", "a=1", "--set", "a=2"), "a is set twice"),
        (("report", "7f3", "--format", "pdf"), "'pdf' is not one of text, json, md, junit"),
        (("resume", "7f3", "--retry", "passed"), "'passed' is not one of 'errored', 'failed', 'blocked'"),
    ],
)
def test_usage(arguments: tuple[str, ...], line: str, shell: Shell) -> None:
    assert shell(*arguments) == 2
    assert line in shell.err
    assert len(shell.err.splitlines()) == 1


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_helps_and_speaks_json(name: str, shell: Shell) -> None:
    assert shell(name, "--help") == 0
    assert "--json" in shell.out or name in ("db", "judge", "pack", "sandbox"), "groups say it of their commands"


def test_the_overview_lists_every_command(shell: Shell) -> None:
    assert shell("--help") == 0
    assert all(f"\n  {name} " in shell.out for name in COMMANDS)


def test_help_imports_no_command_and_nothing_heavy() -> None:
    probe = (
        "import sys\n"
        "from evalfleet.cli.main import invoke\n"
        "from evalfleet.cli.application import Application\n"
        "invoke(['--help'], Application(lambda: None))\n"
        "bad = [m for m in sys.modules if m.startswith('evalfleet.cli.commands.')"
        " or m in ('ray', 'sqlalchemy', 'rich', 'psycopg', 'pydantic')]\n"
        "sys.exit(f'imported {bad}' if bad else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_reader_that_has_gone_ends_the_listing_quietly(tmp_path: Path) -> None:
    script = tmp_path / "many.py"
    script.write_text(
        "import sys\n"
        "from evalfleet.cli.application import Application\n"
        "from evalfleet.cli.main import invoke\n"
        "from tests.unit.cli.fake_api import FakeApi, FakeRun, case\n"
        "api = FakeApi([FakeRun([case(n) for n in range(20000)])])\n"
        "sys.exit(invoke(['show', '7f3'], Application(lambda: api)))\n"
    )
    done = subprocess.run(
        ["bash", "-c", f"PYTHONPATH={Path.cwd()} {sys.executable} {script} | head -1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.startswith("case")
    assert done.stderr == ""
