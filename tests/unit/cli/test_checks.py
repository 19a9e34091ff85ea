from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from evalfleet.cli.checks import (
    Check,
    Health,
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
    ("check", "health"),
    [
        (lambda: check_python((3, 11)), Health.GOOD),
        (lambda: check_python((3, 10)), Health.BAD),
        (lambda: check_python((3, 14)), Health.BAD),
        (lambda: check_disk(Path("/x"), 6 * GIB), Health.GOOD),
        (lambda: check_disk(Path("/x"), 2 * GIB), Health.WARNING),
        (lambda: check_disk(Path("/x"), GIB - 1), Health.BAD),
        (lambda: check_descriptors(4096), Health.GOOD),
        (lambda: check_descriptors(-1), Health.GOOD),
        (lambda: check_descriptors(1024), Health.WARNING),
        (lambda: check_bytecode("surely_not_installed"), Health.BAD),
    ],
)
def test_check(check: Callable[[], Check], health: Health) -> None:
    found = check()
    assert found.health is health
    assert (found.advice is None) == (health is Health.GOOD)


def test_a_package_without_bytecode_is_a_warning_that_says_how_to_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fresh_package").mkdir()
    (tmp_path / "fresh_package/__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = check_bytecode("fresh_package")
    assert found.health is Health.WARNING
    assert found.advice == f"{sys.executable} -m compileall -q {tmp_path / 'fresh_package'}"


def test_a_state_directory_that_is_not_there_yet_is_judged_by_its_parent(tmp_path: Path) -> None:
    assert check_state_directory(tmp_path / "a" / "b").health is Health.GOOD


def test_a_state_directory_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = check_state_directory(tmp_path / "file" / "state")
    assert (found.health, found.advice) == (Health.BAD, "set EVALFLEET_HOME to a writable directory")


def test_a_broken_plugin_is_named() -> None:
    class Broken(dict[str, object]):
        def __getitem__(self, name: str) -> object:
            raise ConfigurationError(f"the adapter {name!r} can't be imported")

    found = check_plugins("adapters", Broken(mine=None))
    assert (found.health, found.found) == (Health.WARNING, "the adapter 'mine' can't be imported")
