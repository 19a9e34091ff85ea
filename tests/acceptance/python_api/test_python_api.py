"""The Python API as scripts and notebooks use it: in a process of its own, on the shipped example."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from evalfleet.api.programmatic import CaseResult, Run, RunOptions
from evalfleet.model.report import RunProgress

if TYPE_CHECKING:
    from tests.acceptance.cli.conftest import Orchestrate


class Python:
    """`python("…")` runs a script at the root of the repository with the environment of the command."""

    def __init__(self, orchestrate: Orchestrate, root: Path) -> None:
        self._orchestrate = orchestrate
        self._root = root

    def __call__(self, script: str) -> str:
        """What the script printed. It fails the test by an exception, or by writing to stderr."""
        ended = subprocess.run(
            [sys.executable, "-W", "error", "-c", textwrap.dedent(script)],
            cwd=self._root,
            env=self._orchestrate.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert (ended.returncode, ended.stderr) == (0, "")
        return ended.stdout


@pytest.fixture(scope="module")
def python(orchestrate: Orchestrate, root: Path) -> Python:
    return Python(orchestrate, root)


@pytest.fixture(scope="module")
def finished(python: Python) -> str:
    """The id of a run of two orders' questions, made by a plain script that the API adds no output to."""
    return python("""
        import evalfleet

        seen = []
        with evalfleet.run_sync(
            "evals/quickstart/experiment.yaml",
            select=["order_status", "unknown_order"],
            overrides={"repetitions": "2"},
            on_progress=seen.append,
        ) as run:
            assert run.status == "completed"
            assert run.accepted is True
            assert seen[-1].settled == seen[-1].total == 8
            print(run.id, end="")
    """)


def test_a_script_runs_an_experiment_and_nothing_else_is_printed(orchestrate: Orchestrate, finished: str) -> None:
    (status,) = orchestrate("status", finished, "--json").values
    assert (status["totals"]["passed"], status["totals"]["failed"]) == (6, 2)


def test_a_recorded_run_is_opened_by_the_beginning_of_its_id_and_read(python: Python, finished: str) -> None:
    printed = python(f"""
        import evalfleet

        with evalfleet.open({finished[:6]!r}) as run:
            assert run.id == {finished!r}
            (first, second) = run.cases(status="failed")
            assert (first.eval_id, first.arm, first.view.repetition) == ("unknown_order", "hasty", 0)
            assert first.turns[0].input.text == "Where is my order 9999?"
            assert [row.label for row in first.assertions] == [None, "admits it", "makes nothing up"]
            print(first.first_divergence().label)
            (passed,) = [case for case in run.cases(arm="careful", prefix="order") if case.view.repetition == 1]
            assert passed.status == "passed" and passed.first_divergence() is None
            assert passed.turns[1].usage.total_tokens == 9
            whole = list(run.cases(evidence=True))
            assert [(case.view, case.detail) for case in whole] == [(case.view, case.detail) for case in run.cases()]
            assert len(whole) == 8 and len(list(run.cases("failed", evidence=True))) == 2
            assert [arm["classes"]["failed"] for arm in run.summary["arms"]] == [0, 2]
            assert run.is_accepted(lambda report: report["summary"]["failed"] <= 2)
            assert not run.is_accepted(lambda report: report["summary"]["failed"] <= 1)
            hasty = run.report(arm="hasty")
            assert run.report()["arms"] == {{"careful": run.report("careful"), "hasty": hasty}}
            assert [case["status"] for case in hasty["cases"]].count("failed") == 2
        run.close()
    """)
    assert printed == "admits it\n"


def test_a_run_is_watched_to_its_end_and_shows_itself_in_a_notebook(python: Python, finished: str) -> None:
    printed = python(f"""
        import asyncio
        import evalfleet

        async def cell():
            async for progress in evalfleet.watch({finished!r}):
                print(progress.settled, "of", progress.total)
            with evalfleet.open({finished!r}) as run:
                print(run._repr_markdown_().splitlines()[0])
                print(next(run.cases(status="failed")))

        asyncio.run(cell())
    """)
    assert printed.splitlines() == [
        "8 of 8",
        "### ✅ `quickstart`: accepted",
        "<case 3 hasty/unknown_order #1: failed>",
    ]


def test_the_page_names_all_that_a_run_and_a_case_have(root: Path) -> None:
    page = (root / "docs/python-api.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", page))))
    members = {name for kind in (Run, CaseResult) for name in vars(kind) if not name.startswith("_")}
    assert members | set(RunOptions.__annotations__) | set(RunProgress.__slots__) <= named


def test_reuse_carries_from_python_too(python: Python) -> None:
    printed = python("""
        import evalfleet

        def asked(repetitions, reuse):
            return evalfleet.run_sync(
                "evals/quickstart/experiment.yaml",
                select=["baskets/two-teapots-and-6-spoons"],
                arms=["careful"],
                overrides={"repetitions": str(repetitions)},
                reuse=reuse,
            )

        with asked(1, reuse=False) as first, asked(2, reuse=True) as second:
            (carried, executed) = second.cases()
            assert carried.view.carried_from[0] == first.id and executed.view.carried_from is None
            assert carried.turns[0].reply == executed.turns[0].reply
            print(carried.turns[0].reply)
    """)
    assert printed == "That is €64.40.\n"


def test_what_failed_runs_anew_from_python(python: Python, finished: str) -> None:
    printed = python(f"""
        import evalfleet

        experiment = "evals/quickstart/experiment.yaml"
        with evalfleet.open({finished!r}) as run, evalfleet.run_sync(
            experiment, arms=["hasty"], overrides={{"repetitions": "1"}}, reuse=True, affected_by=run
        ) as affected:
            print([(case.eval_id, case.status.value, case.view.carried_from) for case in affected.cases()])
    """)
    assert printed == "[('unknown_order', 'failed', None)]\n"


def test_what_is_wrong_is_raised_with_a_code_and_problems_and_exits_nothing(python: Python) -> None:
    printed = python("""
        import evalfleet

        try:
            evalfleet.run_sync("evals/quickstart/experiment.yaml", select=["order_statis"])
        except evalfleet.DefinitionError as error:
            print(error.code, len(error.problems))
        try:
            evalfleet.open("0000000000")
        except evalfleet.EvalfleetError as error:
            print(error)
    """)
    assert printed.splitlines() == ["UNKNOWN_PREFIX 1", "there is no run '0000000000'; `orchestrate runs` lists them"]
