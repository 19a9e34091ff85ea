"""What a coordinator's process is built from: small, so that it starts quickly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evalfleet.api.budgets import budget_policy
from evalfleet.clock import SystemClock
from evalfleet.scheduling.coordinator import Coordinator
from evalfleet.scheduling.state import STALL_LIMIT, RunPolicy
from evalfleet.store.failpoints import Failpoints
from evalfleet.store.replay import KEEP_BYTES
from evalfleet.store.writer import PostgresRecorder

if TYPE_CHECKING:
    from evalfleet.api.blueprint import RunBlueprint


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorBlueprint:
    """A run as its coordinator sees it: where it is recorded, and the limits it is scheduled under.

    `replay_limit` is in bytes."""

    run: str
    database_url: str
    policy: RunPolicy
    replay_limit: int
    failpoint: str | None = None

    def coordinator(self, kill: Callable[[str, str], None]) -> Coordinator:
        """The run's coordinator, not yet started. Must be called within the loop it lives in."""
        failpoint = Failpoints(self.failpoint)
        recorder = PostgresRecorder(self.database_url, self.run, failpoint, replay_limit=self.replay_limit)
        return Coordinator(recorder, SystemClock(), self.policy, kill=kill, failpoint=failpoint)


def coordinator_blueprint(run: RunBlueprint) -> CoordinatorBlueprint:
    """The part of a run's blueprint that its coordinator needs."""
    return CoordinatorBlueprint(
        run=run.run,
        database_url=run.database_url,
        policy=run_policy(run),
        replay_limit=0 if run.embedded else KEEP_BYTES,  # the embedded server has no standby to fail over to
        failpoint=run.failpoint,
    )


def run_policy(run: RunBlueprint) -> RunPolicy:
    """The limits a coordinator schedules under; while someone debugs no attempt has a deadline.

    An attempt that is being judged is past its own deadline and not overdue.
    """
    experiment = run.experiment
    limits = experiment.limits
    attempt_timeout = limits.attempt_timeout + (limits.grading_timeout if run.judges else 0.0)
    return RunPolicy(
        concurrency=limits.concurrency,
        per_arm=dict(limits.per_arm),
        max_attempts=experiment.retry.max_attempts,
        retry_on=frozenset(experiment.retry.on),
        max_failures=limits.max_failures,
        sandboxed=frozenset(run.sandboxed),
        sandboxes=limits.sandboxes,
        sandbox_starts=limits.sandbox_starts_per_second,
        isolated=experiment.isolation == "process",
        outage=limits.outage,
        wall=None if run.debugging else experiment.budget.wall,
        budget=budget_policy(run),
        cycle=run.cases // experiment.repetitions if experiment.stop.early_exit else None,
        attempt_timeout=None if run.debugging else attempt_timeout,
        stall_limit=float("inf") if run.debugging else STALL_LIMIT,
    )
