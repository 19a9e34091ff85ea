"""What the agents' log says of a run that was killed and resumed."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.workloads.executions import Execution, executions, told_of_kill


def test_a_line_that_is_being_written_is_not_one_yet(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("2000000000 7 row-1\n3000000000 7 row-2\n40000")
    assert executions(log) == [Execution(2.0, 7, "row-1"), Execution(3.0, 7, "row-2")]


def test_without_a_log_nothing_was_executed(tmp_path: Path) -> None:
    assert executions(tmp_path / "none") == []


def test_orphans_are_processes_of_before_the_kill_that_go_on() -> None:
    found = [
        Execution(1.0, 7, "a"),
        Execution(2.0, 7, "b"),
        Execution(3.5, 7, "c"),  # an orphan
        Execution(9.0, 8, "b"),  # again, by the resumed run
        Execution(9.5, 8, "d"),
    ]
    told = told_of_kill(found, 3.0, 5)
    assert (told["executed"], told["executed_twice"], told["never_executed"], told["before_kill"]) == (5, 1, 1, 2)
    assert told["orphans"] == 1
    assert told["orphans_last"] == pytest.approx(0.5)
