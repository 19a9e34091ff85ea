"""`orchestrate compare` on recorded runs: arms of one run, two runs, and a run that replays another's answers."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.acceptance.cli.conftest import Orchestrate

ROWS = 24
FILES = {
    "evals/sums.eval.py": """
        from evalfleet import Dataset, define_eval, equals

        @define_eval(dataset=Dataset.jsonl("sums.jsonl"))
        async def sums(t, row):
            t.check((await t.send(row["ask"])).reply, equals(row["answer"]))
        """,
    "agents.py": """
        from evalfleet import COMPLETE_COVERAGE, Turn, agent

        @agent(coverage=COMPLETE_COVERAGE)
        async def adder(turn, ctx):
            first, second = map(int, turn.text.split("+"))
            return Turn(reply=str(first + second) if first >= ctx.flags["from"] else "?")
        """,
    "experiment.yaml": """
        schema_version: 1
        name: sums
        arms:
          old: {adapter: python, entry: "agents:adder", flags: {from: 12}}
          new: {adapter: python, entry: "agents:adder", flags: {from: 2}}
        """,
    "points.yaml": """
        schema_version: 1
        name: points
        evals: {select: [points]}
        arms:
          old: {adapter: python, entry: "agents:adder", flags: {from: 12}}
        """,
}
POINTS = """
    from evalfleet import define_score_eval, equals

    @define_score_eval
    async def points(t):
        t.check((await t.send("20+1")).reply, equals("21")).score(3)
"""
ROWS_OF = [json.dumps({"ask": f"{n}+{n}", "answer": str(2 * n)}) for n in range(ROWS)]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "evals").mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(textwrap.dedent(text), encoding="utf-8")
    rows(folder, ROWS_OF)
    return folder


def rows(project: Path, lines: list[str]) -> None:
    (project / "evals/sums.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def submitted(orchestrate: Orchestrate, project: Path, *arguments: str) -> str:
    ended = orchestrate("submit", *(arguments or ("experiment.yaml",)), "--inline", "--json", cwd=project)
    assert ended.code in (0, 1), ended.err
    return ended.values[-1]["run"]["id"]


@pytest.fixture(scope="module")
def run(orchestrate: Orchestrate, project: Path) -> str:
    return submitted(orchestrate, project)


def compared(orchestrate: Orchestrate, *arguments: str) -> list[dict[str, Any]]:
    ended = orchestrate("compare", *arguments, "--json")
    assert ended.code == 0, ended.err
    return ended.values[0]["comparisons"]


def test_the_arms_of_a_run_are_held_against_each_other(orchestrate: Orchestrate, run: str) -> None:
    (found,) = compared(orchestrate, run)
    assert (found["first"]["arm"], found["second"]["arm"], found["finding"]) == ("old", "new", "better")
    assert (found["pairs"]["compared"], found["pairs"]["missing"], found["shared_responses"]["shared"]) == (ROWS, 0, 0)
    assert (found["tested"]["second_better"], found["tested"]["first_better"]) == (10, 0)
    assert found["tested"]["p"] == pytest.approx(2 / 2**10)
    assert {flip["eval"] for flip in found["flips"]} == {f"sums/{n:04}" for n in range(2, 12)}


def test_a_run_that_replays_anothers_answers_gets_no_figure_of_chance(
    orchestrate: Orchestrate, project: Path, run: str
) -> None:
    replayed, again = (submitted(orchestrate, project, "experiment.yaml", "--reuse") for _ in range(2))
    for first, second in ((run, replayed), (replayed, again), (run, run)):
        for found in compared(orchestrate, first, second):
            assert found["shared_responses"] == {"shared": ROWS, "paired": ROWS}
            assert found["tested"] is None
            assert "100.0 % shared responses, not independent" in found["headline"]
    ended = orchestrate("compare", run, replayed, "--gate")
    assert ended.code == 5
    assert "p = " not in ended.out


def test_a_run_that_was_made_anew_is_another_even_if_it_ends_the_same(
    orchestrate: Orchestrate, project: Path, run: str
) -> None:
    shuffled = [*ROWS_OF]
    random.Random(3).shuffle(shuffled)
    rows(project, shuffled)
    try:
        anew = submitted(orchestrate, project)
    finally:
        rows(project, ROWS_OF)
    for found in compared(orchestrate, run, anew):
        assert (found["pairs"]["compared"], found["pairs"]["alone_first"]) == (ROWS, 0)
        assert found["shared_responses"]["shared"] == 0
        assert (found["finding"], found["flips"], found["tested"]["p"]) == ("no_difference_found", [], 1)
    assert orchestrate("compare", f"{anew}:new", f"{run}:old", "--gate").code == 1


def test_an_edited_eval_is_another_question_until_the_run_is_judged_again(
    orchestrate: Orchestrate, project: Path, run: str
) -> None:
    source = project / "evals/sums.eval.py"
    before = source.read_text(encoding="utf-8")
    source.write_text(f"{before}\n# edited\n", encoding="utf-8")
    try:
        edited = submitted(orchestrate, project)
        for found in compared(orchestrate, run, edited):
            assert (found["pairs"]["pairs"], found["pairs"]["changed"]) == (0, {"sums": ["source"]})
            assert found["finding"] == "inconclusive"
        assert orchestrate("rescore", run, cwd=project).code in (0, 1)
        for found in compared(orchestrate, run, edited):
            assert (found["pairs"]["compared"], found["pairs"]["changed"]) == (ROWS, {})
    finally:
        source.write_text(before, encoding="utf-8")


def test_scores_and_verdicts_are_not_compared(orchestrate: Orchestrate, project: Path, run: str) -> None:
    source = project / "evals/points.eval.py"
    source.write_text(textwrap.dedent(POINTS), encoding="utf-8")
    try:
        points = submitted(orchestrate, project, "points.yaml")
    finally:
        source.unlink()
    ended = orchestrate("compare", f"{run}:old", points)
    assert ended.code == 2
    assert ended.err.endswith("hold evals of pass and of score style, which can't be compared\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("RUN:nwe", "RUN"), "error: run RUN has no arm 'nwe'; did you mean 'new'?"),
        (("RUN:new",), "error: run RUN alone gives one arm, and nothing to hold it against: name another run"),
        (("RUNx",), "error: there is no run 'RUNx': did you mean RUN?"),
    ],
)
def test_what_is_not_there_is_answered_with_what_is(
    orchestrate: Orchestrate, run: str, arguments: tuple[str, ...], message: str
) -> None:
    ended = orchestrate("compare", *(each.replace("RUN", run) for each in arguments))
    assert (ended.code, ended.err.splitlines()) == (2, [message.replace("RUN", run)])


def test_scripts_compare_with_and_without_a_loop(orchestrate: Orchestrate, run: str) -> None:
    script = f"""
        import asyncio

        import evalfleet

        (plain,) = evalfleet.compare_sync({run!r})
        print(plain.finding, round(plain.difference, 3))

        async def main():
            with evalfleet.open({run!r}) as opened:
                (found,) = await evalfleet.compare("{run}:old", "{run}:new")
                same = await evalfleet.compare(opened, opened)
                assert found == plain and [each.tested for each in same] == [None, None]
                try:
                    evalfleet.compare_sync(opened)
                except evalfleet.EvalfleetError as error:
                    print(error)

        asyncio.run(main())
    """
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script)],
        env=orchestrate.environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (ended.stderr, ended.returncode) == ("", 0)
    assert ended.stdout.splitlines() == [
        "better 0.417",
        "an event loop runs here already: use `await evalfleet.compare(…)`",
    ]
