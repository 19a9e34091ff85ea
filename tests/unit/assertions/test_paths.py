"""`references_any_path`: whole components, anywhere in a JSON value."""

from __future__ import annotations

from typing import Any

import pytest

from evalfleet.assertions.match import evaluate_now
from evalfleet.assertions.matchers import references_any_path
from evalfleet.errors import AuthoringError


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("agents", "ls agents", True),
        ("agents", "ls agents-old", False),
        ("agents", "ls my-agents", False),
        ("agents", "ls agents.py", False),
        ("agents", "ls agents/x.py", True),
        ("agents", "ls /repo/agents", True),
        ("agents", "See agents.", True),
        ("agents", "agents...", False),
        ("src/button.py", "edit src/button.py:12", True),
        ("src/button.py", "edit 'src\\button.py'", True),
        ("src/button.py", "edit ./src/./button.py", True),
        ("./src/button.py", "edit src/button.py", True),
        ("src/button.py", "edit lib_src/button.py", False),
        ("src/button.py", "edit src/button.pyc", False),
        ("button.py", "edit .button.py", False),
        ("/etc/passwd", "cat /etc/passwd", True),
        ("/etc/passwd", "cat /chroot/etc/passwd", False),
        ("a/b", {"cmd": ["x", {"deep": "cat a/b"}]}, True),
        ("a/b", {"a": "b"}, False),
        ("a/b", 5, False),
        ("a", "aaa a", True),
        ("дом", "cat домик", False),
    ],
)
def test_mentions(path: str, value: Any, expected: bool) -> None:
    assert evaluate_now(references_any_path([path]), value).holds is expected


def test_the_witness_has_a_place() -> None:
    found = evaluate_now(references_any_path(["x.py", "y.py"]), {"args": ["a", "cat y.py"]})
    assert found.actual == {"path": "y.py", "at": "/args/1"}


def test_one_path_may_stand_alone() -> None:
    assert evaluate_now(references_any_path("x.py"), "cat x.py").holds


def test_cycles_end() -> None:
    loop: list[Any] = ["nothing"]
    loop.append(loop)
    assert not evaluate_now(references_any_path(["x"]), loop).holds


@pytest.mark.parametrize("paths", [[], [""], ["."], ["a", "./a"], ["a", "a/"], [5]])
def test_misuse_is_an_authoring_error(paths: Any) -> None:
    with pytest.raises(AuthoringError, match="references_any_path"):
        references_any_path(paths)
