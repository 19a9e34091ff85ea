"""Patterns on paths, and which paths are left out."""

from __future__ import annotations

import pytest

from evalfleet.errors import AuthoringError
from evalfleet.model.changes import DEFAULT_IGNORED
from evalfleet.model.path_pattern import ignore_rules, path_pattern


@pytest.mark.parametrize(
    ("pattern", "matched", "others"),
    [
        ("a.py", ["a.py"], ["src/a.py", "a.pyc", "xa.py"]),
        ("*.py", ["a.py", ".py"], ["src/a.py", "a.py/b"]),
        ("src/*.py", ["src/a.py"], ["a.py", "src/x/a.py"]),
        ("src/**", ["src/a.py", "src/x/a.py"], ["other/src/a"]),
        ("src/**/*.py", ["src/a.py", "src/x/y/a.py"], ["a.py", "src/a.txt"]),
        ("**/a.py", ["a.py", "x/y/a.py"], ["x/ba.py"]),
        ("**", ["a", "a/b"], []),
        ("**/x/**/y", ["x/y", "a/x/b/c/y", "x/x/y"], ["x", "y"]),
        ("[ab]?.py", ["a1.py", "b2.py"], ["c1.py", "a.py"]),
        ("ä\n*", ["ä\nx"], ["ä"]),
    ],
)
def test_patterns(pattern: str, matched: list[str], others: list[str]) -> None:
    compiled = path_pattern(pattern, "test")
    assert [path for path in matched if not compiled.matches(path)] == []
    assert [path for path in others if compiled.matches(path)] == []


def test_many_stars_take_no_time() -> None:
    assert not path_pattern("/".join(["**", "*a*a*a*a*b"] * 20), "test").matches("/".join(["a" * 200] * 40))


@pytest.mark.parametrize("pattern", ["", "/a", "a//b", "./a", "../a", "a/", "a\0b", "a" * 5000, None, 3])
def test_what_is_no_pattern(pattern: str) -> None:
    with pytest.raises(AuthoringError, match=r"test: .* is no path below the workdir"):
        path_pattern(pattern, "test")


@pytest.mark.parametrize(
    ("path", "left_out"),
    [
        ("node_modules", True),
        ("x/y/__pycache__", True),
        (".git", True),
        (".GIT", True),
        ("out", True),
        ("src/out", False),
        ("run.log", True),
        ("x/run.log", True),
        ("docs/_build", True),
        ("x/docs/_build", False),
        ("tmp", True),
        ("x/tmp", True),
        ("dist", False),
        ("distribution", False),
        (".gitignore", False),
    ],
)
def test_what_is_left_out(path: str, left_out: bool) -> None:
    rules = ignore_rules(DEFAULT_IGNORED, ["*.log", "/out", "docs/_build", "tmp/"], ["dist"])
    assert rules.leave_out(path, path.rpartition("/")[2]) is left_out


@pytest.mark.parametrize("name", ["dits", ".git", "src"])
def test_only_what_is_left_out_can_be_included(name: str) -> None:
    with pytest.raises(AuthoringError, match="is none of the names that are left out: node_modules"):
        ignore_rules(DEFAULT_IGNORED, [], [name])
