"""`submit` beside a run of the same definitions that never ended; export, import and garbage."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from evalfleet.cli.interrupts import plain_interrupts
from evalfleet.store.planned import UnfinishedRun
from tests.unit.cli.fake_api import FakeRun, case

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Shell

OLD = UnfinishedRun(id="0ldrun0000", created_at=0.0, settled=3, total=10)
STATE = "run 0ldrun0000 of the same definitions is not finished: 3 of 10 cases settled"


@pytest.fixture
def experiment(tmp_path: Path) -> str:
    path = tmp_path / "experiment.yaml"
    path.write_text("schema_version: 1\n")
    return str(path)


@pytest.fixture(autouse=True)
def run(with_run: Callable[[FakeRun], FakeRun]) -> FakeRun:
    return with_run(FakeRun([case(0)]))


def test_without_a_terminal_a_new_run_starts_and_the_old_one_is_named(shell: Shell, experiment: str) -> None:
    shell.api.unfinished = OLD
    assert shell("submit", experiment) == 0
    assert shell.api.went_on is False
    said = f"{STATE}; this is a new run (orchestrate resume 0ldrun0000 goes on with that one)"
    assert shell.err.splitlines()[:2] == ["run 7f3k2m0q1x", said]


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_the_old_run_goes_on_when_that_is_asked_for(shell: Shell, experiment: str, more: tuple[str, ...]) -> None:
    shell.api.unfinished = OLD
    assert shell("submit", experiment, "--resume-unfinished", *more) == 0
    assert shell.api.went_on is True
    assert shell.err.splitlines()[:2] == ["run 7f3k2m0q1x", f"{STATE}; going on with it"]
    assert shell.api.calls[0][3].resume_unfinished


def test_nothing_is_said_when_every_run_has_ended(shell: Shell, experiment: str) -> None:
    assert shell("submit", experiment) == 0
    assert shell.err.splitlines() == ["run 7f3k2m0q1x"]


def test_a_question_can_be_interrupted_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), plain_interrupts():
        signal.raise_signal(signal.SIGINT)


def test_export_says_where_the_run_lies(shell: Shell, tmp_path: Path) -> None:
    target = tmp_path / "run.evalfleet"
    assert shell("export", "7f3", "-o", str(target)) == 0
    assert shell.out == f"wrote run 7f3k2m0q1x to {target}\n"
    assert shell("export", "7f3", "-o", str(target), "--json") == 0
    assert shell.values == [{"run": "7f3k2m0q1x", "file": str(target), "bytes": 5}]


def test_import_says_how_to_look_at_the_run(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "run.evalfleet"
    file.write_bytes(b"")
    assert shell("import", str(file)) == 0
    assert shell.out == "run 7f3k2m0q1x is here: orchestrate show 7f3k2m0q1x\n"
    assert shell("import", str(tmp_path / "gone")) == 2
    assert "gone" in shell.err


def test_garbage_is_what_try_left_and_what_no_row_names(shell: Shell) -> None:
    assert shell("db", "gc", "--older-than", "2") == 0
    assert shell.api.calls == [("gc", 2.0, False)]
    assert shell.out == "1 run of `orchestrate try` deleted\n3 objects without a row deleted, 2,048 bytes\n"
    assert (
        shell.err
        == "left alone: 1 run in the artifact store that this record store does not have (--json names them)\n"
    )
    assert shell("db", "gc", "--dry-run") == 0
    assert shell.api.calls[1:] == [("gc", 7.0, True)]
    assert shell.out.splitlines()[-1] == "3 objects without a row would be deleted, 2,048 bytes"


def test_garbage_for_programs(shell: Shell) -> None:
    assert shell("db", "gc", "--json") == 0
    (value,) = shell.values
    swept = {"objects": {"8r": 2, "9r": 1}, "size": 2048, "unknown": ["0ther"]}
    assert value == {"deleted": ["7f3k2m0q1x"], **swept, "dry_run": False}
    assert shell("db", "gc", "--older-than", "-1") == 2
