"""Waiting until a task's sandbox is healthy: a command is run until it succeeds, as an image's HEALTHCHECK would be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.harbor.task_toml import HealthTable

if TYPE_CHECKING:
    from evalfleet.execution.context import T


def wait_after(check: HealthTable, elapsed: float, failures: int) -> tuple[float | None, int]:
    """Seconds until the next try after one that failed, None when it was the last; and the failures that count now.

    `elapsed` are the seconds between the first try and the beginning of this one. Within the start period no failure
    counts.
    """
    if elapsed < check.start_period_sec:
        return check.start_interval_sec, failures
    failures += 1
    return (None if failures >= check.retries else check.interval_sec), failures


async def become_healthy(t: T, check: HealthTable | None, what: str) -> None:
    """Wait until the check succeeds. Raises AttemptFailure SANDBOX_SETUP_FAILED when it does not."""
    if check is None:
        return
    clock = t.author.state.services.clock
    began, failures = clock.monotonic(), 0
    while True:
        elapsed = clock.monotonic() - began
        result = await t.sandbox.run("bash", "-c", check.command, timeout=check.timeout_sec)
        if result.ok:
            return
        wait, failures = wait_after(check, elapsed, failures)
        if wait is None:
            said = result.stderr.decode("utf-8", "replace").strip()[-300:]
            how = "took too long" if result.timed_out else f"ended with exit code {result.exit_code}: {said}"
            message = f"{what} is not healthy: its check failed {failures} times, and {how}"
            raise AttemptFailure(FailureKind.SANDBOX, "SANDBOX_SETUP_FAILED", message)
        await clock.sleep(wait)
