from __future__ import annotations

import io

import pytest
from rich.console import Console

from evalfleet.cli.progress import ProgressDisplay, counters, progress_line
from evalfleet.model.report import RunProgress
from tests.unit.cli.fake_api import progress


@pytest.mark.parametrize(
    ("live", "text"),
    [
        (progress(0, rate=0.0), "0 passed · 0 failed · 0 errored · 2 running · 0.0/s"),
        (progress(4), "4 passed · 0 failed · 0 errored · 2 running · 2.0/s · 3.0 s left"),
        (progress(10), "10 passed · 0 failed · 0 errored · 2 running · 2.0/s"),
        (
            progress(5, passed=1, failed=2, errored=2, cost_usd=1.5, failures_by_kind={"judge": 1, "agent": 3}),
            "1 passed · 2 failed · 2 errored · 2 running · 2.0/s · 2.5 s left · $1.50 · agent 3 · judge 1",
        ),
        (
            progress(10, cost_usd=1.5, judge_usd=0.25),
            "10 passed · 0 failed · 0 errored · 2 running · 2.0/s · $1.50 · judges $0.2500",
        ),
        (
            progress(10, judge_usd=0.25, unknown_judge_cost=1),
            "10 passed · 0 failed · 0 errored · 2 running · 2.0/s · judges ≥ $0.2500",
        ),
        (
            progress(4, paused={"mine": "10 of the last 10 attempts ended with sandbox: SANDBOX_FAILED"}),
            "4 passed · 0 failed · 0 errored · 2 running · 2.0/s · 3.0 s left · arm mine paused: "
            "10 of the last 10 attempts ended with sandbox: SANDBOX_FAILED",
        ),
        (progress(10, unknown_judge_cost=2), "10 passed · 0 failed · 0 errored · 2 running · 2.0/s · judges –"),
    ],
)
def test_counters(live: RunProgress, text: str) -> None:
    assert counters(live) == text
    assert progress_line(live) == f"{live.settled}/10 settled · {text}"


def shown(*updates: RunProgress, terminal: bool, hidden: bool = False) -> str:
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=140, markup=False, highlight=False)
    with ProgressDisplay(hidden=hidden, console=console) as display:
        for update in updates:
            display.update(update)
    return file.getvalue()


def test_a_terminal_gets_a_bar_that_leaves_nothing_behind() -> None:
    text = shown(progress(3), terminal=True)
    assert "3/10" in text
    assert "3 passed" in text
    assert text.rstrip().endswith("\x1b[2K")


def test_a_pipe_gets_a_line_now_and_then() -> None:
    text = shown(*(progress(n, at=n * 4.0) for n in range(8)), terminal=False)
    assert [line.split(" ")[0] for line in text.splitlines()] == ["0/10", "3/10", "6/10"]


@pytest.mark.parametrize("terminal", [True, False])
def test_nothing_is_shown_when_hidden(terminal: bool) -> None:
    assert shown(progress(3), terminal=terminal, hidden=True) == ""
