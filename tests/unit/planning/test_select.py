"""Plain prefixes, tags and exclusions: what they take, and what they never matched."""

from __future__ import annotations

from evalfleet.model.experiment import Selection
from evalfleet.planning.select import Narrowing, Selector


def selector(
    select: tuple[str, ...] = (),
    exclude: tuple[str, ...] = (),
    tags: tuple[str, ...] = (),
    prefixes: tuple[str, ...] = (),
    narrow_tags: tuple[str, ...] = (),
) -> Selector:
    selection = Selection(select=select, exclude=exclude, tags=tags)
    return Selector(selection, Narrowing(prefixes=prefixes, tags=narrow_tags))


def test_a_prefix_is_plain_text() -> None:
    chosen = selector(("terminal-swe",))
    assert [
        chosen.admits(name) for name in ("terminal-swe-astropy-1", "terminal-swe", "terminal", "x/terminal-swe")
    ] == [
        True,
        True,
        False,
        False,
    ]


def test_the_command_line_only_narrows() -> None:
    chosen = selector(("sql", "weather"), prefixes=("weather/b", "math"))
    assert [chosen.admits(name) for name in ("sql/1", "weather/b", "weather/c", "math")] == [False, True, False, False]


def test_exclusion_has_the_last_word() -> None:
    chosen = selector(("sql",), exclude=("sql/00",), prefixes=("sql/00",))
    assert not chosen.admits("sql/0001")


def test_any_tag_of_each_list_suffices() -> None:
    chosen = selector(tags=("a", "b"), narrow_tags=("c",))
    tags = [("a", "c"), ("b", "c"), ("a",), ("c",), ()]
    assert [chosen.may_admit("x", own, rows=False) for own in tags] == [True, True, False, False, False]


def test_a_dataset_is_read_only_when_a_prefix_can_reach_its_rows() -> None:
    chosen = selector(("sql/0001",))
    assert chosen.may_admit("sql", (), rows=True)
    assert not chosen.may_admit("sq", (), rows=True)
    assert not chosen.may_admit("math", (), rows=True)
    assert not chosen.may_admit("sql", (), rows=False)


def test_prefixes_that_matched_nothing_are_known() -> None:
    chosen = selector(("sql", "wether"), exclude=("nope",), prefixes=("sql/9",))
    chosen.may_admit("sql", (), rows=True)
    chosen.admits("sql/0001")
    assert list(chosen.unmatched()) == [("select", 1, "wether"), ("exclude", 0, "nope"), ("prefix", 0, "sql/9")]


def test_a_prefix_of_what_was_narrowed_away_is_not_unknown() -> None:
    chosen = selector(("weather", "sql/0001", "sql0"), exclude=("math", "sql/9", "x"), prefixes=("weather",))
    assert [chosen.may_admit(name, (), rows=name == "sql") for name in ("weather", "sql", "math")] == [
        True,
        False,
        False,
    ]
    chosen.admits("weather")
    assert list(chosen.unmatched()) == [("select", 2, "sql0"), ("exclude", 2, "x")]


def test_exact_ids_are_kept_or_taken_away_and_no_longer_ones_with_them() -> None:
    named = frozenset({"sql/0001", "weather"})
    only, without = (Selector(Selection(), Narrowing(**{how: named})) for how in ("only", "without"))
    for name in ("sql/0001", "weather"):
        assert only.admits(name) and not without.admits(name)
    for name in ("sql/00011", "sql/0002", "sql", "weather/brooklyn"):
        assert not only.admits(name) and without.admits(name)
    assert [
        only.may_admit(name, (), rows=rows) for name, rows in (("sql", True), ("weather", False), ("sql", False))
    ] == [
        True,
        True,
        False,
    ]
    assert without.may_admit("sql", (), rows=True)


def test_exact_ids_that_nothing_has_are_known() -> None:
    only = Selector(Selection(exclude=("weather",)), Narrowing(only=frozenset({"sql/0001", "weather", "gone"})))
    for name in ("sql/0001", "weather"):
        only.admits(name)
    assert only.missing() == ["gone", "weather"]
    assert Selector(Selection(), Narrowing()).missing() == []
