"""A plain assert of an eval file: what the row shows, that nothing is evaluated twice, and that lines stay true."""

from __future__ import annotations

import asyncio
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from evalfleet.model.assertion import AssertionRow, Result
from evalfleet.model.coverage import COMPLETE_COVERAGE, Channel, partial
from evalfleet.model.events import MISSING
from evalfleet.model.turn import Turn
from evalfleet.model.verdict import Verdict
from evalfleet.planning.eval_module import import_eval
from evalfleet.reports.assertion_tree import assertion_lines
from evalfleet.testing.fakes import FakeAdapter

Load = Callable[[str], ModuleType]


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    """Import a source as the eval file it would be."""
    known = set(sys.modules)

    def import_source(source: str) -> ModuleType:
        file = tmp_path / "demo.eval.py"
        file.write_text(textwrap.dedent(source), encoding="utf-8")
        module = import_eval(tmp_path, file)
        assert isinstance(module, ModuleType), module
        return module

    yield import_source
    for name in set(sys.modules) - known:
        if name.startswith("_evalfleet_"):
            del sys.modules[name]


async def failed(attempt: Any, load: Load, statement: str, given: str = "") -> AssertionRow:
    """The row of an assert that fails, after some statements."""
    body = textwrap.indent(textwrap.dedent(f"{given}\n{statement}"), "    ")
    module = load(f"async def body(t):\n    turn = await t.send('rain')\n{body}\n")
    evidence = await attempt(module.body)
    assert evidence.summary.verdict is Verdict.FAILED, evidence.summary.message
    [row] = evidence.assertions
    return row


def parts(row: AssertionRow) -> dict[str, Any]:
    return {child.expected["part"]: child.actual for child in row.outcome.children}


@pytest.mark.parametrize(
    ("statement", "actual", "expected", "inside"),
    [
        ("assert turn.reply == 'sun'", "rain", "sun", {}),
        ("assert len(turn.reply) > 2 * 8", 4, 16, {"turn.reply": "rain"}),
        ("assert 'sun' in turn.reply.upper()", "sun", "RAIN", {"turn.reply": "rain"}),
        ("assert 'rain' not in turn.reply", "rain", "rain", {}),
        ("assert {'a': [1]}['a'] == [2]", [1], [2], {"{'a': [1]}": {"a": [1]}}),
        ("assert not [1, 2]", [1, 2], MISSING, {}),
        ("assert not 1 + 1 == 2", 2, 2, {}),
        ("assert 1 < len(turn.reply) < 3 < no_such_name", 4, 3, {"turn.reply": "rain"}),
        ("assert len(turn.reply) == 4 and turn.reply == 'sun'", "rain", "sun", {"len(turn.reply)": 4}),
        ("assert len(turn.reply) == 5 and no_such_name", 4, 5, {"turn.reply": "rain"}),
        ("assert turn.reply == 'a' or not turn.reply or len(turn.reply) > 9", 4, 9, {"turn.reply": "rain"}),
        ("assert (await t.send('x')).reply == 'y'", "x", "y", {}),
        ("assert [n for n in (1, 2) if n > 2]", [], MISSING, {}),
        ("assert (lambda: 0)()", 0, MISSING, {}),
        ("assert sum(*[[1, 2]]) == 4", 3, 4, {}),
        ("assert dict(a=len('ab')) == {}", {"a": 2}, {}, {"len('ab')": 2}),
        ("assert (found := len('abc')) == 4", 3, 4, {}),
        ("assert f'{1 + 1}' == '3'", "2", "3", {}),
        ("assert (1 if turn else 2) == 3", 1, 3, {}),
        ("assert -len('ab') == 2 ** 2", -2, 4, {"len('ab')": 2}),
        ("assert 'abc'[1:] == 'x'", "bc", "x", {}),
        ("assert isinstance(turn.reply, int)", False, MISSING, {"turn.reply": "rain"}),
    ],
)
async def test_both_sides_and_what_they_are_made_of(
    attempt: Any, load: Load, statement: str, actual: Any, expected: Any, inside: dict[str, Any]
) -> None:
    row = await failed(attempt, load, statement)
    assert (row.outcome.actual, row.outcome.expected) == (actual, expected)
    assert parts(row).items() >= inside.items()
    assert str(row.source).endswith("/demo.eval.py:4")


async def test_the_message_stands_beside_the_values(attempt: Any, load: Load) -> None:
    row = await failed(attempt, load, "assert 1 == 2, f'it was {turn.reply}'")
    assert (row.outcome.reason, row.criterion["expression"]) == ("it was rain", "1 == 2")


async def test_nothing_is_evaluated_twice_or_in_another_order(attempt: Any, load: Load) -> None:
    module = load("""
        asked = []
        def say(value):
            asked.append(value)
            return value
        async def body(t):
            assert say(1) < say(2) and (say(0) or say(3)) == say(3) and say([4]) != [4] and say(5)
    """)
    evidence = await attempt(module.body)
    assert module.asked == [1, 2, 0, 3, 3, [4]]
    [row] = evidence.assertions
    assert (row.outcome.actual, row.outcome.expected) == ([4], [4])


async def test_what_an_earlier_round_saw_is_not_taken_for_this_ones(attempt: Any, load: Load) -> None:
    module = load("""
        async def body(t):
            for name, number in (("a", 1), ("", 2)):
                assert name and number == len("a")
    """)
    [row] = (await attempt(module.body)).assertions
    assert (row.outcome.actual, row.outcome.expected, parts(row)) == ("", MISSING, {})


async def test_a_plain_body_and_a_nested_function_and_a_class(attempt: Any, load: Load) -> None:
    module = load("""
        class Check:
            assert len("ab") == 2

            def run(self, text):
                def inner():
                    assert len(text) == 5
                inner()

        def body(t):
            Check().run(t.send("abc").reply)
    """)
    [row] = (await attempt(module.body)).assertions
    assert (row.outcome.actual, row.outcome.expected) == (3, 5)
    assert str(row.source).endswith("/demo.eval.py:7")


async def test_a_value_is_shown_as_it_was_when_it_was_compared(attempt: Any, load: Load) -> None:
    module = load("""
        def step(state):
            state["n"] += 1
            return state["n"]
        async def body(t):
            state = {"n": 0}
            first = 1
            assert (first := first + 1) == 3 and first
    """)
    [row] = (await attempt(module.body)).assertions
    assert (row.outcome.actual, row.outcome.expected) == (2, 3)


async def test_tracebacks_and_frames_show_the_authors_lines(load: Load) -> None:
    module = load("""
        async def body():
            value = {
                "a": 1,
            }
            assert (
                value["a"]
                == value["missing"]
            )
    """)
    with pytest.raises(KeyError) as raised:
        await module.body()
    frame = traceback.extract_tb(raised.value.__traceback__)[-1]
    assert (frame.lineno, frame.line) == (8, '== value["missing"]')


async def test_an_import_of_the_file_fails_on_an_assert_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "broken.eval.py"
    file.write_text("limit = 3\nassert limit > 4, 'too low'\n")
    problem = import_eval(tmp_path, file)
    assert not isinstance(problem, ModuleType)
    assert (problem.code, problem.line) == ("IMPORT_FAILED", 2)


async def test_asserts_of_two_tasks_keep_their_own_values(attempt: Any, load: Load) -> None:
    module = load("""
        import asyncio

        async def check(value):
            assert value + await asyncio.sleep(0, 0) == 9

        async def body(t):
            async with asyncio.TaskGroup() as group:
                group.create_task(check(1))
                group.create_task(check(2))
    """)
    rows = (await attempt(module.body)).assertions
    assert [row.outcome.actual for row in rows] == [1, 2]


async def test_the_tree_shows_the_values(attempt: Any, load: Load) -> None:
    row = await failed(attempt, load, "assert len(found) > 2, 'too few'", "found = [1]")
    assert [line.strip() for line in assertion_lines(row, None)][1:] == [
        'expected "len(found) > 2"',
        "mismatched: too few",
        "actual   1",
        "where    found is [1]",
    ]


# --- what is missing proves nothing -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "result"),
    [
        ("assert 'sun' in turn.reply", "unavailable"),
        ("assert turn.reply == 'sun'", "unavailable"),
        ("assert turn.reply and len(turn.reply) > 3 and turn.reply == 'sun'", "unavailable"),
        ("assert 'rain' not in turn.reply", "mismatched"),
        ("assert turn.reply != 'rain'", "mismatched"),
        ("assert not turn.reply", "mismatched"),
        ("assert f'{turn.reply}' == 'sun'", "mismatched"),
        ("assert turn.status == 'failed'", "mismatched"),
    ],
)
async def test_an_assert_on_a_value_that_may_be_incomplete(
    attempt: Any, load: Load, statement: str, result: str
) -> None:
    module = load(f"async def body(t):\n    turn = await t.send('rain')\n    {statement}\n")
    lossy = COMPLETE_COVERAGE.downgrade({Channel.MESSAGES: partial("a lossy stream")})
    adapter = FakeAdapter(lambda turn, ctx: Turn(reply=turn.text), coverage=lossy)
    evidence = await attempt(module.body, adapter)
    [row] = evidence.assertions
    assert row.outcome.result.value == result
    if row.outcome.result is Result.UNAVAILABLE:
        assert row.outcome.reason == "coverage:messages=partial (a lossy stream)"
        assert (evidence.summary.verdict, evidence.summary.code) == (Verdict.ERRORED, "ASSERTION_UNAVAILABLE")


async def test_cancelling_is_not_touched(load: Load) -> None:
    module = load("""
        import asyncio
        async def body():
            assert await asyncio.sleep(1000)
    """)
    task = asyncio.ensure_future(module.body())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
