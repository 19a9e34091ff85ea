"""Read-side values: what the record store's reader returns and every renderer takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evalfleet.errors import FailureKind
from evalfleet.model.assertion import AssertionRow
from evalfleet.model.changes import Attribution
from evalfleet.model.grading import Basis
from evalfleet.model.judge import JudgeCall
from evalfleet.model.sandbox import SandboxUse
from evalfleet.model.turn import TurnRecord
from evalfleet.model.usage import Usage
from evalfleet.model.verdict import CaseStatus, Outcome, RunKind, RunStatus, ScoreState, Settlement, Style, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """One run as listed. Times are seconds since the epoch; `beat` is the coordinator's last heartbeat.

    `interrupted` is derived: the run says running while its heartbeat is stale or nobody holds it.
    `experiment` is the snapshot that was planned; `lock` the versions and digests it ran with. `grading` is the one
    that is read: the run's current one unless another was asked for.
    """

    id: str
    kind: RunKind
    name: str
    project: str
    status: RunStatus
    total: int
    created_at: float
    started_at: float | None = None
    finished_at: float | None = None
    beat: float | None = None
    holder: Mapping[str, Any] | None = None
    interrupted: bool = False
    stop_reason: str | None = None
    derived_from: str | None = None
    digest: str = ""
    experiment: Mapping[str, Any] = field(default_factory=dict[str, Any])
    lock: Mapping[str, Any] = field(default_factory=dict[str, Any])
    grading: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeCounts:
    """The judge calls of one arm, and what they used. `failed` gave no ruling.

    `unknown_usage` and `unknown_cost` count calls without a figure; cached ones used nothing.
    """

    calls: int
    cached: int
    failed: int
    input_tokens: int
    output_tokens: int
    unknown_usage: int
    cost_usd: float
    unknown_cost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmCounts:
    """The cases of one arm by what became of them; the classes are exclusive and sum to `planned`.

    `errored_own` are errored by the agent's own doing (kinds agent, deadline), `errored_other` all other
    errored ones. `seconds` are the settled attempts' duration percentiles (`p50`, `p95`, `max`).
    `cost_usd` sums what is known over *all* attempts, `unknown_cost` counts attempts without a figure.
    `contradicted` counts attempts whose turns contradict the coverage that the adapter declares.
    `retried_verdict` counts cases whose headline verdict is their first, before a `resume --retry failed`.
    `by_eval` counts evals (eval id × variants) by (counted, answered, passed) repetitions: counted are all but
    skipped and not needed, answered are passed, failed and `errored_own`; None when nobody grouped.
    `judge` is what judges were asked before the attempts were sealed, `judge_again` what the grading that is read asked
    them itself, both kept apart from what the agent used; None when no judge was asked.
    """

    arm: str
    style: Style
    planned: int
    passed: int = 0
    failed: int = 0
    errored_own: int = 0
    errored_other: int = 0
    skipped: int = 0
    blocked: int = 0
    not_needed: int = 0
    cancelled: int = 0
    pending: int = 0
    carried: int = 0
    retried_verdict: int = 0
    by_eval: Mapping[tuple[int, int, int], int] | None = None
    attempts: int = 0
    failures_by_kind: Mapping[str, int] = field(default_factory=dict[str, int])
    input_tokens: int = 0
    output_tokens: int = 0
    unknown_usage: int = 0
    contradicted: int = 0
    cost_usd: float = 0.0
    unknown_cost: int = 0
    earned_sum: float = 0.0
    score_complete: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])
    judge: JudgeCounts | None = None
    judge_again: JudgeCounts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAggregate:
    """A run with its arms in experiment order.

    `budget` is as `RunProgress` has it. `suite_results` holds what the criteria of whole suites came to, by suite and
    arm, as reports show them.
    """

    run: RunInfo
    arms: tuple[ArmCounts, ...]
    budget: Mapping[str, Any] = field(default_factory=dict[str, Any])
    suite_results: Mapping[tuple[str, str], Sequence[Mapping[str, Any]]] = field(
        default_factory=dict[tuple[str, str], Sequence[Mapping[str, Any]]]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseView:
    """One case as listed: its derived status and the facts of the attempt that settled it, if any."""

    ordinal: int
    arm: str
    eval_id: str
    style: Style
    repetition: int
    status: CaseStatus
    settlement: Settlement | None = None
    verdict: Verdict | None = None
    kind: FailureKind | None = None
    code: str | None = None
    message: str | None = None
    score_state: ScoreState | None = None
    earned: float | None = None
    attempt: int | None = None
    attempts: int = 0
    duration: float | None = None
    usage: Usage | None = None
    cost_usd: float | None = None
    reply: str | None = None
    tags: tuple[str, ...] = ()
    variants: Mapping[str, str] = field(default_factory=dict[str, str])
    carried_from: tuple[str, int] | None = None
    carried_grading: int = 0

    @property
    def has_evidence(self) -> bool:
        """Whether an attempt was made of it, here or in the run that it is carried from."""
        return self.attempts > 0 or self.carried_from is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptView:
    """One attempt of a case; `number` counts from 1, `settles` says that it decided the case."""

    attempt: int
    case: int
    number: int
    outcome: Outcome
    settles: bool
    worker: str
    started_at: float
    duration: float
    verdict: Verdict | None = None
    kind: FailureKind | None = None
    code: str | None = None
    message: str | None = None
    usage: Usage | None = None
    cost_usd: float | None = None
    reply: str | None = None
    text_sanitised: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptDetail:
    """An attempt with all its evidence, decoded exactly as the agent produced it.

    `basis` is what a grading after its own stands on, None without one; `kept_because` why it kept what stood.
    `outcome_before_cleanup` is the verdict, or the outcome of one that did not complete, that a failed cleanup hides.
    `waited` are seconds that its model calls waited for their rate, which its duration leaves out.
    `begun_by` is the attempt that began its conversation, None when that is itself.
    """

    view: AttemptView
    turns: tuple[TurnRecord, ...]
    assertions: tuple[AssertionRow, ...]
    diagnostics: tuple[str, ...] = ()
    judge_calls: tuple[JudgeCall, ...] = ()
    sandbox: SandboxUse | None = None
    attribution: Attribution | None = None
    attachments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    basis: Basis | None = None
    kept_because: str | None = None
    outcome_before_cleanup: str | None = None
    waited: float = 0.0
    begun_by: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """The live counters of a run, at most one write a second.

    `judge_usd` is what its judge calls cost, apart from the agents' `cost_usd`; `unknown_judge_cost` counts calls
    without a figure. `paused` says of each arm that is paused why. `rates` is the run's use of accounts whose rate is
    governed, each as the fields of an `AccountUse`. `budget` holds the `limit` of `usd` and of
    `tokens`, what is `spent`, `possible` and `reserved` of it, and the same below `arms`.
    """

    at: float
    total: int
    settled: int
    passed: int
    failed: int
    errored: int
    running: int
    rate: float
    cost_usd: float
    judge_usd: float = 0.0
    unknown_judge_cost: int = 0
    failures_by_kind: Mapping[str, int] = field(default_factory=dict[str, int])
    paused: Mapping[str, str] = field(default_factory=dict[str, str])
    rates: Sequence[Mapping[str, Any]] = ()
    budget: Mapping[str, Any] = field(default_factory=dict[str, Any])
