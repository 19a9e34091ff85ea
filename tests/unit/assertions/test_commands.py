"""`command_match`: what the text shows is decided, what the shell computes is not."""

from __future__ import annotations

from typing import Any

import pytest

from evalfleet.assertions.commands import CommandMatch, command_match
from evalfleet.assertions.criteria import CalledTool, NotCalledTool, evaluate
from evalfleet.errors import AuthoringError
from evalfleet.model.assertion import Result
from evalfleet.model.events import OperationKind
from tests.unit.assertions.traces import called, scope, turn

RM = command_match("rm")
GIT = command_match("git", args_start=["push"], excludes=["--force"])


def ran(match: CommandMatch, given: Any, **how: Any) -> str:
    record = turn(*called("bash", given, **{"tool": "shell", **how}))
    return evaluate(CalledTool(match), scope(record)).result.value


@pytest.mark.parametrize(
    ("match", "command", "result"),
    [
        (RM, "rm -rf x", "matched"),
        (RM, "/bin/rm x", "matched"),
        (RM, "ls", "mismatched"),
        (RM, "echo rm", "mismatched"),
        (RM, "echo 'a; rm b'", "mismatched"),
        (RM, "echo ';' rm", "mismatched"),
        (RM, "cd x && rm y", "matched"),
        (RM, "ls | rm", "matched"),
        (RM, "ls\nrm y", "matched"),
        (RM, "LANG=C rm y", "matched"),
        (RM, "rm $HOME/x", "matched"),
        (RM, "ls > out 2>&1", "mismatched"),
        (command_match("1"), "ls 2>&1", "mismatched"),
        (RM, "ls & rm x", "matched"),
        (RM, "ls *.py", "mismatched"),
        (RM, "> out rm x", "unavailable"),
        (RM, "sudo rm x", "unavailable"),
        (RM, "if true; then rm x; fi", "unavailable"),
        (RM, "$cmd x", "unavailable"),
        (RM, "echo $(rm x)", "unavailable"),
        (RM, "cat <<EOF\nrm x\nEOF", "unavailable"),
        (RM, "ls # rm x", "unavailable"),
        (RM, "echo 'unclosed", "unavailable"),
        (RM, ["rm", "x; y"], "matched"),
        (RM, ["bash", "-lc", "ls && rm x"], "matched"),
        (RM, ["bash", "-lc", "ls"], "mismatched"),
        (RM, ["bash", "cleanup.sh"], "unavailable"),
        (RM, [], "unavailable"),
        (RM, [1], "unavailable"),
        (command_match("/bin/rm"), "rm x", "mismatched"),
        (command_match("sudo"), "sudo rm x", "matched"),
        (GIT, "git push origin", "matched"),
        (GIT, "git push", "matched"),
        (GIT, "git", "mismatched"),
        (GIT, "git pull", "mismatched"),
        (GIT, "git push --force", "mismatched"),
        (GIT, "git push $flags", "unavailable"),
        (GIT, "git $verb", "unavailable"),
        (GIT, 'git "push" "a b"', "matched"),
    ],
)
def test_commands(match: CommandMatch, command: Any, result: str) -> None:
    assert ran(match, {"command": command}) == result


@pytest.mark.parametrize(
    ("given", "how", "result"),
    [
        ("rm x", {}, "matched"),
        ({"cmd": "rm x"}, {}, "matched"),
        ({"argv": ["rm", "x"]}, {}, "matched"),
        ({"script": "rm x"}, {}, "unavailable"),
        ({"command": "rm x"}, {"tool": None}, "unavailable"),
        ({"command": "rm x"}, {"tool": "file_read"}, "mismatched"),
        ({"command": "rm x"}, {"kind": OperationKind.SUBAGENT}, "mismatched"),
    ],
)
def test_where_the_command_stands(given: Any, how: dict[str, Any], result: str) -> None:
    assert ran(RM, given, **how) == result


def test_a_status_belongs_to_the_same_command() -> None:
    assert ran(command_match("rm", status="rejected"), "rm x", status="rejected") == "matched"
    assert ran(command_match("rm", status="completed"), "rm x", status="rejected") == "mismatched"


def test_an_unreadable_command_proves_no_absence() -> None:
    record = turn(*called("bash", {"command": "$x"}, tool="shell"))
    found = evaluate(NotCalledTool(RM), scope(record))
    assert (found.result, found.reason) == (Result.UNAVAILABLE, "evidence:command-opaque")


@pytest.mark.parametrize(
    "build",
    [
        lambda: command_match(""),
        lambda: command_match(None),  # type: ignore[arg-type]
        lambda: command_match("rm", args_start="-rf"),
        lambda: command_match("rm", excludes=[1]),  # type: ignore[list-item]
        lambda: command_match("rm", status="done"),
    ],
)
def test_misuse_is_an_authoring_error(build: Any) -> None:
    with pytest.raises(AuthoringError):
        build()
