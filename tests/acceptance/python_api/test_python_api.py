"""The Python API as scripts and notebooks use it: in a process of its own, on the shipped example."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

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
            on_event=seen.append,
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
            assert [arm["classes"]["failed"] for arm in run.summary["arms"]] == [0, 2]
            assert run.is_accepted(lambda report: report.not_passed <= 2)
            assert not run.is_accepted(lambda report: report.not_passed <= 1)
        run.close()
    """)
    assert printed == "admits it\n"


def test_a_notebook_awaits_at_the_top_and_reads_inside_its_running_loop(python: Python) -> None:
    printed = python("""
        import ast, asyncio

        CELLS = [
            '''
            import evalfleet
            run = await evalfleet.run(
                "evals/quickstart/experiment.yaml",
                select=["unknown_order"],
                arms=["hasty"],
                overrides={"repetitions": "1"},
            )
            ''',
            '''
            print(run.status.value, run.accepted)
            [case] = run.cases()
            print(case)
            print(case.turns[0].reply)
            ''',
            '''
            async for progress in evalfleet.watch(run.id):
                print(progress.settled, "of", progress.total)
            ''',
            '''
            print(run._repr_markdown_().splitlines()[0])
            run.close()
            ''',
        ]

        async def notebook():
            import inspect, textwrap
            names = {}
            for cell in CELLS:
                code = compile(textwrap.dedent(cell), "cell", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
                ended = eval(code, names)
                if inspect.isawaitable(ended):
                    await ended

        asyncio.run(notebook())
    """)
    assert printed.splitlines() == [
        "completed False",
        "<case 0 hasty/unknown_order #1: failed>",
        "Order 9999 is packed and arrives soon.",
        "1 of 1",
        "### ❌ `quickstart`: not accepted",
    ]


def test_reuse_carries_from_python_too(python: Python, finished: str) -> None:
    printed = python("""
        import evalfleet

        with evalfleet.run_sync(
            "evals/quickstart/experiment.yaml", select=["unknown_order"], overrides={"repetitions": "3"}, reuse=True
        ) as run:
            for case in run.cases(arm="careful"):
                print(case.view.repetition, case.view.carried_from[0] if case.view.carried_from else "executed")
    """)
    assert printed.splitlines() == [f"0 {finished}", f"1 {finished}", "2 executed"]


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
