"""`orchestrate sandboxes` and `orchestrate sandbox`: what they ask for, and what they print."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from evalfleet.api.options import ReapOptions
from evalfleet.api.reaping import SandboxListing
from evalfleet.model.sandbox import SandboxView, Standing

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Shell

ORPHAN = SandboxView(
    backend="container",
    id="c0ffee",
    owner="7f3k/101",
    host="here",
    pid=11,
    created_at=1_750_000_000.0,
    alive=False,
    standing=Standing.ORPHAN,
    why="process 11 on here is dead",
    run="7f3k",
    case=1,
    eval_id="sql/\x1b[2J",
)
KEPT = replace(ORPHAN, id="7f3k%2F9", backend="local", standing=Standing.KEPT, run=None, case=None, eval_id=None)


@pytest.fixture
def listed(shell: Shell) -> Shell:
    shell.api.listing = SandboxListing(views=(ORPHAN, KEPT), faults={"kubernetes": "no cluster"}, foreign=2)
    return shell


def test_sandboxes_are_listed_with_why_they_stand_so(listed: Shell) -> None:
    assert listed("sandboxes") == 0
    header, first, second = listed.out.splitlines()
    assert header.split() == ["backend", "id", "run", "case", "eval", "age", "standing", "why"]
    assert "orphan" in first and first.endswith("process 11 on here is dead") and "\x1b" not in first
    assert second.startswith("local") and "kept" in second and "7f3k " in second
    assert listed.err.splitlines() == [
        "nothing is known of sandboxes of kubernetes, which does not work here: no cluster",
        "left alone: 2 sandboxes of other record stores",
    ]


def test_only_orphans_are_listed_to_who_asks_for_them(listed: Shell) -> None:
    assert listed("sandboxes", "--orphans", "--json") == 0
    (value,) = listed.values
    assert [view["id"] for view in value["sandboxes"]] == ["c0ffee"]
    assert value["sandboxes"][0]["standing"] == "orphan"
    assert (value["faults"], value["foreign"]) == ({"kubernetes": "no cluster"}, 2)


def test_where_there_are_none_it_says_so(shell: Shell) -> None:
    assert shell("sandboxes") == 0
    assert (shell.out, shell.err) == ("there are none\n", "")


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ([], ReapOptions()),
        (["--kept"], ReapOptions(kept=True)),
        (["--force", "--kept"], ReapOptions(kept=True, force=True)),
    ],
    ids=str,
)
def test_what_is_reaped(listed: Shell, words: list[str], options: ReapOptions) -> None:
    assert listed("sandboxes", "--reap", *words) == 0
    assert listed.api.calls == [("reap", options)]
    assert listed.out.splitlines()[-1] == "2 sandboxes removed"


def test_a_program_is_told_how_to_open_a_shell(listed: Shell) -> None:
    assert listed("sandbox", "enter", "c0", "--json") == 0
    assert (listed.api.calls, listed.values) == ([("shell", "c0")], [{"argv": ["true"]}])


def test_one_is_stopped_by_its_name(listed: Shell) -> None:
    assert listed("sandbox", "stop", "c0") == 0
    assert listed.api.calls == [("stop", "c0")]
    assert listed.out == "sandbox c0ffee is removed\n"


@pytest.mark.parametrize("words", [["--kept"], ["--force", "--orphans"]], ids=str)
def test_words_that_say_nothing_without_reap_are_refused(listed: Shell, words: list[str]) -> None:
    assert listed("sandboxes", *words) == 2
    assert listed.api.calls == []
