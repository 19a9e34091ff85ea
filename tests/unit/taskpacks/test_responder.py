"""The scripted responder: the first rule that fits answers, a part at a time; and what a lint says of its script."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from evalfleet.taskpacks.graders import Gold
from evalfleet.taskpacks.responder import Cursor, ScriptRule, answer, read_cursor
from evalfleet.taskpacks.script_lint import script_faults


def rule(id: str, *asked: str, **more: Any) -> ScriptRule:
    return ScriptRule(id=id, asked=frozenset(asked), **{"reply": "Here.", "fallback": not asked, **more})


@pytest.mark.parametrize(
    ("rules", "asked", "cursor", "fires"),
    [
        ([rule("a", "x")], "x", Cursor(), "a"),
        ([rule("a", "x")], "xy", Cursor(), None),
        ([rule("a", "x")], "", Cursor(), None),
        ([rule("a", "x", how="any")], "xy", Cursor(), "a"),
        ([rule("a", "x", "y", how="all")], "xyz", Cursor(), "a"),
        ([rule("a", "x", "y", how="all")], "x", Cursor(), None),
        ([rule("a", "x", how="any"), rule("b", "x", "y")], "xy", Cursor(), "a"),
        ([rule("b", "x", "y"), rule("a", "x", how="any")], "xy", Cursor(), "b"),
        ([rule("a", "x", turn=2)], "x", Cursor(), None),
        ([rule("a", "x", turn=2)], "x", Cursor(answers=1), "a"),
        ([rule("a", "x", once=True)], "x", Cursor(fired={"a": 1}), None),
        ([rule("a", "x")], "x", Cursor(fired={"a": 7}), "a"),
        ([rule("a", "x", supplied={"y"})], "x", Cursor(), None),
        ([rule("a", "x", supplied={"y"})], "x", Cursor(supplied=frozenset("yz")), "a"),
        ([rule("a", "x"), rule("end")], "q", Cursor(), "end"),
        ([rule("end"), rule("a", "x")], "x", Cursor(), "end"),
        ([], "x", Cursor(), None),
    ],
)
def test_which_rule_answers(rules: list[ScriptRule], asked: str, cursor: Cursor, fires: str | None) -> None:
    found = answer(rules, asked, cursor)
    assert (None if found is None else found.rule.id) == fires


def test_a_part_is_supplied_and_the_rest_can_be_asked_for_again() -> None:
    rules = [rule("part", "x", "y", supplies={"x"}), rule("rest", "y", supplied={"x"}, supplies={"y"}), rule("end")]
    first = answer(rules, "xy", Cursor())
    assert first is not None
    assert (first.rule.id, first.cursor.supplied, first.asked_again) == ("part", frozenset("x"), frozenset())
    second = answer(rules, "y", first.cursor)
    assert second is not None
    assert (second.rule.id, second.cursor.supplied) == ("rest", frozenset("xy"))
    third = answer(rules, "xy", second.cursor)
    assert third is not None
    assert third.asked_again == frozenset("xy")
    assert (third.cursor.answers, third.cursor.fired) == (3, {"part": 2, "rest": 1})


def test_a_cursor_is_kept_as_a_record() -> None:
    cursor = Cursor(2, {"a": 1, "b": 1}, frozenset("xy"))
    assert read_cursor(cursor.document()) == cursor
    assert read_cursor(None) == Cursor()


@pytest.mark.parametrize("wrong", [{"fallback": True, "asked": ["x"]}, {}, {"asked": ["x"], "reply": ""}, {"asks": []}])
def test_rules_that_say_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ScriptRule.model_validate({"id": "a", "reply": "Here.", **wrong})


NAMES = {"x": ("the lease",), "y": ("the permit",), "z": ("the policy",)}
END = rule("end")


@pytest.mark.parametrize(
    ("rules", "unmet", "codes"),
    [
        ([rule("a", "x", supplies={"x"}), END], "x", []),
        ([rule("a", "x", supplies={"x"})], "x", []),
        ([rule("a", "x")], "xy", ["missing-rule y", "missing-rule x, y"]),
        ([rule("a", "x", "y", how="any")], "xy", []),
        ([rule("a", "x", turn=1), rule("b", "x", turn=2)], "x", []),
        ([rule("a", "x", turn=1)], "x", ["missing-rule x"]),
        ([rule("a", "x", turn=1, supplies={"x"})], "x", []),
        ([END, rule("a", "x")], "x", ["unreachable-rule a"]),
        ([rule("a", "x", turn=9), END], "x", ["unreachable-rule a"]),
        ([rule("a", "x", supplied={"y"}), END], "x", ["unreachable-rule a"]),
        ([rule("a", "x"), rule("a", "y"), END], "xy", ["doubled-rule a"]),
        ([rule("a", "q"), END], "x", ["unknown-requirement a"]),
        ([rule("a", "x", reply="I also lack y."), END], "x", ["leaks-requirement a"]),
        ([rule("a", "x", reply="x is attached."), END], "x", []),
        ([rule("a", "x", reply="Please approve it."), END], "x", ["leaks-decision a"]),
        ([rule("a", "x", reply="It was disapproved."), END], "x", []),
    ],
)
def test_what_a_lint_says_of_a_script(rules: list[ScriptRule], unmet: str, codes: list[str]) -> None:
    gold = Gold("decline", frozenset(unmet))
    found = script_faults(rules, gold, NAMES, ("approve", "decline"), max_turns=3)
    told = [f"{fault.code} {fault.rule or fault.message.split(' for ')[1].split(' in ')[0]}" for fault in found]
    assert told == codes
