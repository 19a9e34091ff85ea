"""Entry points to factories: lazy, and each failure by name."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from evalfleet.errors import ConfigurationError
from evalfleet.plugins import Factories, UnknownPlugin, adapter_factories, installed_packages, sandbox_factories
from evalfleet.ports import AdapterFactory
from tests.unit.planning.projects import QuietFactory, write

GROUP = "evalfleet.adapters"


def factories(*points: tuple[str, str]) -> Factories[AdapterFactory]:
    return Factories("adapter", AdapterFactory, [EntryPoint(name, value, GROUP) for name, value in points])


def test_looking_up_imports_once_and_listing_imports_nothing() -> None:
    here = "tests.unit.planning.projects:QuietFactory"
    known = factories(("quiet", here), ("broken", "no_such_module:factory"))
    assert list(known) == ["broken", "quiet"]
    assert (len(known), "broken" in known, "x" in known) == (2, True, False)
    assert "no_such_module" not in sys.modules
    assert known["quiet"] is known["quiet"]
    assert known["quiet"] is QuietFactory


def test_an_unknown_name_is_answered_with_the_nearest_one() -> None:
    known = factories(("openai", "x:y"), ("python", "x:y"))
    with pytest.raises(ConfigurationError, match=r"^unknown adapter 'opnai': did you mean 'openai'\?$"):
        known["opnai"]
    with pytest.raises(UnknownPlugin, match="installed are openai, python"):
        known["zzz"]
    assert known.get("zzz") is None
    with pytest.raises(UnknownPlugin, match="none is installed"):
        factories()["x"]


def test_a_broken_entry_point_is_reported_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(
        tmp_path,
        {"planning_broken_plugin.py": "raise RuntimeError('half installed')\n", "planning_odd_plugin.py": "f = 3\n"},
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    known = factories(
        ("raises", "planning_broken_plugin:factory"),
        ("number", "planning_odd_plugin:f"),
        ("gone", "planning_odd_plugin:nothing"),
        ("twice", "a:b"),
        ("twice", "c:d"),
    )
    for name, text in (
        ("raises", r"'raises' \(planning_broken_plugin:factory, .*RuntimeError: half installed"),
        ("number", "is not a AdapterFactory but a int"),
        ("gone", "can't be imported: AttributeError"),
        ("twice", "provided twice"),
    ):
        with pytest.raises(ConfigurationError, match=text):
            known[name]


def test_what_this_distribution_ships_is_found() -> None:
    assert {"python", "http", "openai", "scripted"} <= set(adapter_factories())
    assert "local" in sandbox_factories()
    assert "pydantic" in installed_packages()
