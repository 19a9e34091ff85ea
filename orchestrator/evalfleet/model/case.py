"""Planned cases and the attempts that happened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evalfleet.errors import FailureKind
from evalfleet.model.sandbox import SandboxUse
from evalfleet.model.usage import Usage
from evalfleet.model.verdict import Outcome, ScoreState, Style, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One place in a run's fixed denominator: arm × eval × variants × repetition.

    `ordinal` counts from 0 in planned order. `eval_id` includes the row (`sql/0000`); `definition` is the id
    of the eval that the row fanned out (`sql`), equal to `eval_id` without a dataset. `row` is the row as
    canonical JSON bytes, None without a dataset. `repetition` counts from 0. `content` is the digest that
    identifies the case by content whatever its position; `fingerprint` what makes a past attempt reusable,
    None when the arm's agent can't be fingerprinted.
    """

    ordinal: int
    arm: str
    eval_id: str
    definition: str
    style: Style
    repetition: int
    content: str
    fingerprint: str | None
    row: bytes | None = None
    variants: Mapping[str, str] = field(default_factory=dict[str, str])
    tags: tuple[str, ...] = ()
    external: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSummary:
    """The facts of an attempt that scheduling, counters and listings need.

    Times are seconds since the epoch and seconds. `reply` is the start of the last reply, for listings.
    `cost_usd` is observed, `estimated_usd` priced from usage; None is unknown. `contradicted` says that the turns
    contradict the coverage that the adapter declares. `sandbox` is None without one.
    """

    attempt: int
    case: int
    outcome: Outcome
    verdict: Verdict
    kind: FailureKind | None = None
    code: str | None = None
    message: str | None = None
    score_state: ScoreState | None = None
    earned: float | None = None
    skip_reason: str | None = None
    usage: Usage | None = None
    estimated_usd: float | None = None
    started_at: float = 0.0
    duration: float = 0.0
    turns: int = 0
    events: int = 0
    assertions: int = 0
    reply: str | None = None
    retry_after: float | None = None
    contradicted: bool = False
    #: adapters say when a send may have had an outside effect; such a case is never repeated by kind
    acceptance_unknown: bool = False
    sandbox: SandboxUse | None = None
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
