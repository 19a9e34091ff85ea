"""The log in which an agent leaves a line `nanoseconds pid row` at each execution."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Execution:
    at: float
    pid: int
    row: str


def executions(log: Path) -> list[Execution]:
    """All of them in the order they were written; a line that is being written is not one yet."""
    if not log.exists():
        return []
    text = log.read_text()
    found: list[Execution] = []
    for line in text[: text.rfind("\n") + 1].splitlines():
        at, pid, row = line.split(" ", 2)
        found.append(Execution(int(at) / 1e9, int(pid), row))
    return found


def wait_lines(log: Path, count: int, going_on: Callable[[], bool], timeout: float = 1800) -> None:
    """Wait until the log has `count` lines. Raises RuntimeError when the command ends before."""
    deadline = time.monotonic() + timeout
    while not log.exists() or log.read_bytes().count(b"\n") < count:
        if not going_on() or time.monotonic() > deadline:
            raise RuntimeError(f"the agent was executed less than {count} times")
        time.sleep(0.02)


def told_of_kill(found: Sequence[Execution], killed_at: float, n: int) -> dict[str, float]:
    """What the executions say of a killed and resumed run.

    `orphans` were executed after the kill by processes of before it, the last of them `orphans_last` seconds after.
    """
    before = {item.pid for item in found if item.at <= killed_at}
    orphans = [item for item in found if item.at > killed_at and item.pid in before]
    times = Counter(item.row for item in found)
    return {
        "executed": len(found),
        "executed_twice": sum(count > 1 for count in times.values()),
        "never_executed": n - len(times),
        "before_kill": sum(item.at <= killed_at for item in found),
        "orphans": len(orphans),
        "orphans_last": max((item.at - killed_at for item in orphans), default=0.0),
    }
