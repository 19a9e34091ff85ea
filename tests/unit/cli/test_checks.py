from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from evalfleet.cli.checks import (
    Check,
    State,
    check_bytecode,
    check_descriptors,
    check_disk,
    check_plugins,
    check_python,
    check_state_directory,
)
from evalfleet.errors import ConfigurationError

GIB = 1 << 30


@pytest.mark.parametrize(
    ("check", "state"),
    [
        (lambda: check_python((3, 11)), State.GOOD),
        (lambda: check_python((3, 10)), State.BAD),
        (lambda: check_python((3, 14)), State.BAD),
        (lambda: check_disk(Path("/x"), 6 * GIB), State.GOOD),
        (lambda: check_disk(Path("/x"), 2 * GIB), State.WARNING),
        (lambda: check_disk(Path("/x"), GIB - 1), State.BAD),
        (lambda: check_descriptors(4096), State.GOOD),
        (lambda: check_descriptors(-1), State.GOOD),
        (lambda: check_descriptors(1024), State.WARNING),
        (lambda: check_bytecode("surely_not_installed"), State.BAD),
    ],
)
def test_check(check: Callable[[], Check], state: State) -> None:
    found = check()
    assert found.state is state
    assert (found.advice is None) == (state is State.GOOD)


def test_a_package_without_bytecode_is_a_warning_that_says_how_to_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fresh_package").mkdir()
    (tmp_path / "fresh_package/__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = check_bytecode("fresh_package")
    assert found.state is State.WARNING
    assert found.advice == f"{sys.executable} -m compileall -q {tmp_path / 'fresh_package'}"


def test_a_state_directory_that_is_not_there_yet_is_judged_by_its_parent(tmp_path: Path) -> None:
    assert check_state_directory(tmp_path / "a" / "b").state is State.GOOD


def test_a_state_directory_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = check_state_directory(tmp_path / "file" / "state")
    assert (found.state, found.advice) == (State.BAD, "set EVALFLEET_HOME to a writable directory")


def test_a_broken_plugin_is_named() -> None:
    class Broken(dict[str, object]):
        def __getitem__(self, name: str) -> object:
            raise ConfigurationError(f"the adapter {name!r} can't be imported")

    found = check_plugins("adapters", Broken(mine=None))
    assert (found.state, found.found) == (State.WARNING, "the adapter 'mine' can't be imported")
