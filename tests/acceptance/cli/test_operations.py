"""The installed command on this machine, with a real record store."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.acceptance.cli.conftest import Orchestrate


def test_doctor_finds_this_machine_usable(orchestrate: Orchestrate) -> None:
    ended = orchestrate("doctor", "--json")
    assert ended.code == 0, ended.out + ended.err
    checks = {value["name"]: value for value in ended.values}
    assert "Postgres" in checks["record store"]["found"]
    assert checks["record store"]["health"] == "good"
    assert all((value["advice"] is None) == (value["health"] == "good") for value in checks.values())


def test_doctor_says_what_is_wrong_with_a_record_store_that_is_not_there(orchestrate: Orchestrate) -> None:
    elsewhere = replace(orchestrate, database_url="postgresql://u:s3cret@127.0.0.1:1/nothing")
    ended = elsewhere("doctor")
    assert ended.code == 4
    assert "✗ record store: 127.0.0.1:1/nothing" in ended.out
    assert "s3cret" not in ended.out + ended.err


def test_the_schema_is_brought_up_once_and_again(orchestrate: Orchestrate) -> None:
    first, second = orchestrate("db", "upgrade", "--json"), orchestrate("db", "upgrade", "--json")
    assert first.code == second.code == 0, first.err + second.err
    assert first.values == second.values


def test_the_url_is_one_that_postgres_tools_take(orchestrate: Orchestrate) -> None:
    ended = orchestrate("db", "url")
    assert ended.code == 0
    assert ended.out.startswith("postgresql://evalfleet:")


def test_an_unknown_command_is_one_line(orchestrate: Orchestrate) -> None:
    ended = orchestrate("submitt")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == "error: no command 'submitt': did you mean 'submit'? (orchestrate --help)\n"
