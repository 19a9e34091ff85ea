"""What travels from a worker to the record store, and what the store answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from evalfleet.errors import FailureKind
from evalfleet.model.assertion import AssertionRow
from evalfleet.model.case import AttemptSummary, Case
from evalfleet.model.changes import Attribution
from evalfleet.model.judge import JudgeCall
from evalfleet.model.money import Money, Spending
from evalfleet.model.turn import TurnRecord
from evalfleet.model.verdict import Outcome, Settlement, Verdict

#: The attachment that holds a workdir whose judging came to no verdict; no author's can have this name.
KEPT_WORKDIR = "kept-workdir"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEvidence:
    """Everything an attempt left behind, before it is encoded.

    `diagnostics` holds redacted tracebacks and author diagnostics, one text each; never shown in a report.
    `attribution` is None where no workdir was followed. `attachments` are JSON documents of the body, by name.
    `begun_by` is the attempt that began its conversation, None when that is itself.
    """

    summary: AttemptSummary
    turns: tuple[TurnRecord, ...]
    assertions: tuple[AssertionRow, ...]
    diagnostics: tuple[str, ...] = ()
    judge_calls: tuple[JudgeCall, ...] = ()
    attribution: Attribution | None = None
    attachments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    begun_by: int | None = None


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """An attempt's rows, encoded once in the worker: concatenated binary COPY tuples per table.

    The coordinator streams them into staging tables without looking inside.
    """

    attempt: bytes
    assertions: bytes = b""
    tool_calls: bytes = b""
    pages: bytes = b""
    judge_calls: bytes = b""

    @property
    def size(self) -> int:
        parts = (self.attempt, self.assertions, self.tool_calls, self.pages, self.judge_calls)
        return sum(map(len, parts))


@dataclass(frozen=True, slots=True)
class SealedAttempt:
    """What `decide` and the counters need of a sealed attempt, beside its encoded rows.

    `tokens` is input plus output; `cost_usd` what is known of the price; None is unknown. `judge_usd` is what its judge
    calls cost, apart from the agent's, `unknown_judge_cost` the number of them without a figure. `spending` is what its
    allowance says that it came to, None without a hard budget.
    """

    attempt: int
    case: int
    outcome: Outcome
    verdict: Verdict
    rows: EncodedRows
    kind: FailureKind | None = None
    code: str | None = None
    retry_after: float | None = None
    acceptance_unknown: bool = False
    cost_usd: float | None = None
    tokens: int | None = None
    judge_usd: float = 0.0
    unknown_judge_cost: int = 0
    spending: Spending | None = None


@dataclass(frozen=True, slots=True)
class LostAttempt:
    """A lease that ended without a seal: becomes an attempts row `interrupted(kind, code)`.

    `started_at` is seconds since the epoch; `blamed` counts against the case (its worker crashed).
    """

    attempt: int
    case: int
    worker: str
    kind: FailureKind
    code: str
    started_at: float
    blamed: bool
    pages_complete: bool = True


@dataclass(frozen=True, slots=True)
class Recording:
    """An attempt whose agent is done and that nothing has judged yet: its case needs no agent any more.

    `body` is its evidence as the store keeps it. With `turns` it is only the beginning of a conversation, of so many
    turns, from which another attempt can go on.
    """

    attempt: int
    case: int
    body: bytes
    turns: int | None = None


@dataclass(frozen=True, slots=True)
class AttemptWrite:
    """A sealed attempt to commit; `settles` says that it decides its case if none did before.

    An `excused` one failed while its arm was paused for such failures, and does not count as an attempt of its case.
    """

    sealed: SealedAttempt
    worker: str
    settles: bool
    excused: bool = False


@dataclass(frozen=True, slots=True)
class SettleWithout:
    """A case decided without a sealed attempt: blocked, carried, not needed, or errored by quarantine.

    A quarantined case names the attempt that decides it (`how` is `attempt`), whose row says why when `kind` is
    None; the others name none.
    """

    case: int
    how: Settlement
    verdict: Verdict | None = None
    kind: FailureKind | None = None
    code: str | None = None
    attempt: int | None = None


class IntentKind(StrEnum):
    LEASE = "lease"
    EXTERNAL = "external"
    SPEND = "spend"


@dataclass(frozen=True, slots=True)
class Intent:
    """A row written before the act it announces: with what is `reserved` for it, where the run has a hard budget.

    A later one of the same attempt raises what is reserved.
    """

    attempt: int
    case: int
    worker: str
    kind: IntentKind
    reserved: Money = field(default_factory=Money)


@dataclass(frozen=True, slots=True)
class Charge:
    """Closes the intent of an attempt with what it has spent; what a lost one may have spent is all that it had."""

    attempt: int
    spending: Spending


@dataclass(frozen=True, slots=True)
class CommitBatch:
    """One write transaction of a coordinator: all of it or nothing, under the epoch it was claimed with.

    `spent_recordings` names cases whose recording an attempt of this batch was judged from, or made worthless.
    """

    attempts: tuple[AttemptWrite, ...] = ()
    lost: tuple[LostAttempt, ...] = ()
    settled: tuple[SettleWithout, ...] = ()
    intents: tuple[Intent, ...] = ()
    closed_intents: tuple[int, ...] = ()
    recordings: tuple[Recording, ...] = ()
    spent_recordings: tuple[int, ...] = ()
    charges: tuple[Charge, ...] = ()


@dataclass(frozen=True, slots=True)
class Committed:
    """What a commit did, from returned rows only: a repeated batch inserts and settles nothing.

    `inserted` holds attempt ids whose row is new; `settled` attempt ids that decided their case;
    `epoch` is higher than the claimed one when the store lost commits and the run was claimed anew to replay
    them. `settled_cases` the ordinals decided by a `SettleWithout`; `rejected` attempts the database can't hold.
    """

    commit_seq: int
    epoch: int
    inserted: frozenset[int] = frozenset()
    settled: frozenset[int] = frozenset()
    settled_cases: frozenset[int] = frozenset()
    rejected: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class PendingCase:
    """An unsettled case as the coordinator's window reads it.

    `attempts` counts its errored attempts but the excused ones, `crashes` interrupted ones blamed on it and errored
    ones with code WORKER_CRASHED, `lost` the other interrupted ones; `last_attempt` is the latest of all of them.
    Attempts from before the case was last reopened do not count. `recorded` says that a recording of it waits to be
    judged, `begun` that the beginning of a conversation waits to be continued. `unreconciled` says that it writes
    outside and was reopened after an attempt: nobody has said yet that it may be sent again.
    """

    case: Case
    attempts: int = 0
    crashes: int = 0
    lost: int = 0
    last_attempt: int | None = None
    recorded: bool = False
    begun: bool = False
    unreconciled: bool = False


@dataclass(frozen=True, slots=True)
class OpenIntent:
    """An intent of an older epoch that nobody has closed; `recorded` says that a recording of its case waits.

    `reserved` is what its attempt may spend, out of the budget of `arm`.
    """

    attempt: int
    case: int
    worker: str
    kind: IntentKind
    created_at: float
    recorded: bool = False
    reserved: Money = field(default_factory=Money)
    arm: str = ""


@dataclass(frozen=True, slots=True)
class EndedAttempt:
    """How an attempt of an arm ended, as far as it tells whether what is around the arm works."""

    arm: str
    kind: FailureKind | None
    code: str | None


@dataclass(frozen=True, slots=True)
class Claim:
    """A successful claim of a run: the new epoch, the last commit number, what stands open.

    `run_key` is the store's internal number of the run; `total` its denominator; `settled` and `failures`
    count settled cases and those among them that are errored, which `max_failures` limits; `tallies` counts settled
    cases by verdict, or by how they were settled without one. All verdicts are those of the run's current grading.
    `judge_usd` is what judges cost so far, later gradings included, `unknown_judge_cost` the number of their calls
    without a figure. `recent` holds how the last attempts of the run ended, the oldest first. `age` is how many seconds
    ago the run began, by the store's clock. `spending` is what each arm has spent, in a run with a budget; `solved`
    the cases of a repetition that have passed in any, in one with early exit.
    """

    run_key: int
    epoch: int
    commit_seq: int
    total: int
    settled: int
    failures: int = 0
    spent_usd: float = 0.0
    judge_usd: float = 0.0
    unknown_judge_cost: int = 0
    open_intents: tuple[OpenIntent, ...] = ()
    tallies: Mapping[str, int] = field(default_factory=dict[str, int])
    recent: tuple[EndedAttempt, ...] = ()
    age: float = 0.0
    spending: Mapping[str, Spending] = field(default_factory=dict[str, Spending])
    solved: tuple[int, ...] = ()
