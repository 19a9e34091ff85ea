"""What one attempt is given: the job, the services it may use, its time limits, and its control."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalfleet.execution.git import GitTool
from evalfleet.execution.outlets import SpanOutlets
from evalfleet.execution.paid_calls import AttemptPurse
from evalfleet.execution.recorded_agent import RecordedAgent
from evalfleet.execution.threads import AuthorThreads
from evalfleet.execution.waiting import Lane
from evalfleet.grading.judge_prompts import Question
from evalfleet.model.case import Case
from evalfleet.model.definition import EvalDefinition, SandboxSpec
from evalfleet.model.judge import JudgeConfig
from evalfleet.model.model_route import ModelUpstream
from evalfleet.model.record import AttemptEvidence
from evalfleet.model.sandbox import KeepSandbox
from evalfleet.model.turn import TurnRecord
from evalfleet.model.usage import Usage
from evalfleet.ports import Adapter, ArmSettings, Clock, Governor, JudgeModel, ModelDesk, Secrets
from evalfleet.redact import Redactor
from evalfleet.sandbox_ports import App, Gateway, SandboxLedger, SandboxProvider

if TYPE_CHECKING:
    from evalfleet.execution.judging import Judging


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptJob:
    """One attempt to run. `row` is the decoded dataset row, None without a dataset; timeouts are in seconds.

    `seed` is stable per case and repetition. With `recorded` nothing is sent: its turns are the answers. `judge` is
    None when the eval declares that it asks none; else `grading_timeout` bounds the evaluation of its assertions.
    `keep_sandbox` says after which ends its sandbox stays. `begun` are the turns of an earlier attempt that this one
    continues, `begun_by` the attempt that began their conversation. `purse` is what it may spend, None
    without a hard budget.
    """

    run: str
    attempt: int
    case: Case
    definition: EvalDefinition
    row: Any
    arm: ArmSettings
    adapter: Adapter
    sandbox: tuple[SandboxProvider, SandboxSpec] | None
    attempt_timeout: float | None
    turn_timeout: float | None
    seed: int
    recorded: RecordedAgent | None = None
    judge: JudgeConfig | None = None
    grading_timeout: float = 600.0
    keep_sandbox: KeepSandbox = KeepSandbox.NONE
    begun: tuple[TurnRecord, ...] = ()
    begun_by: int | None = None
    purse: AttemptPurse | None = None

    @property
    def folder(self) -> Path:
        """What relative paths in the eval start from: the folder of its file."""
        place = self.definition.place
        return self.arm.project if place is None else place.file.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long, in seconds, code that was told to stop is waited for before it is left behind.

    `grace`: author and agent code, and the last look at a sandbox; `evaluation`: matchers and graders; `cleanup`:
    closing sessions and the sandbox, each attempt; `recording`: the record store, before a judge is asked.
    """

    grace: float = 3.0
    evaluation: float = 10.0
    cleanup: float = 30.0
    recording: float = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptServices:
    """What attempts of one worker share. `price` gives the US dollars of a usage, None when unknown.

    `hidden` is what nothing that is kept of an attempt shows, beside the secrets that it resolves.
    `judging` is None in a run that asks no judge; `git`, by which workdirs are followed, where nothing runs; without a
    `gateway` nothing leads out of a closed sandbox; `spans` is where agents send theirs, if the run takes any;
    `model_app` makes the route of an agent's model. Without a `governor` model calls are made as they come.
    `models` asks models that are neither agent nor judge, as those that play users. `sandbox_ledger` is None where no
    sandbox is to outlive anything.
    """

    clock: Clock
    secrets: Secrets
    threads: AuthorThreads
    price: Callable[[str | None, Usage], float | None] | None = None
    patience: Patience = field(default_factory=Patience)
    hidden: Redactor = field(default_factory=Redactor)
    judging: Judging | None = None
    gateway: Gateway | None = None
    spans: SpanOutlets | None = None
    model_app: Callable[[ModelUpstream, ModelDesk], App] | None = None
    models: JudgeModel | None = None
    governor: Governor | None = None
    git: GitTool | None = None
    sandbox_ledger: SandboxLedger | None = None


class Stage(StrEnum):
    """How far an attempt has come."""

    PLANNED = "planned"
    OPENING = "opening"
    RUNNING = "running"
    RECORDED = "recorded"
    SEALED = "sealed"


#: Makes what an attempt gathered durable; told which questions are open.
Record = Callable[[AttemptEvidence, Mapping[int, Sequence[Question]]], Awaitable[None]]

#: Makes the beginning of a conversation durable, from which another attempt can go on.
RecordBeginning = Callable[[AttemptEvidence], Awaitable[None]]


class AttemptControl:
    """A worker's hold on one running attempt: to watch its stage, and to cancel it.

    `started_at` is in seconds since the epoch, None before the attempt began. While `held` is an event, no new send
    begins until it is set. `record` makes the evidence durable before the judge is asked what is still open, by the
    index of the assertion; without it nothing is recorded before the end. `record_beginning` does so after a turn that
    can be continued. `sandbox_made` is told the seconds that its sandbox took to be made; `lane` is its lane, which it
    may leave while it waits, `purse` what it may spend. For the attempt's loop only.
    """

    def __init__(self) -> None:
        self.stage = Stage.PLANNED
        self.started_at: float | None = None
        self.reason: str | None = None
        self.held: asyncio.Event | None = None
        self.record: Record | None = None
        self.record_beginning: RecordBeginning | None = None
        self.sandbox_made: Callable[[float], None] | None = None
        self.lane: Lane | None = None
        self.purse: AttemptPurse | None = None
        self._listener: Callable[[], None] | None = None

    def cancel(self, reason: str) -> None:
        """Ask the attempt to end as cancelled; the first reason stays. Without effect once it is sealed."""
        if self.reason is not None or self.stage is Stage.SEALED:
            return
        self.reason = reason
        if self._listener is not None:
            self._listener()

    def hold(self, *, back: bool) -> None:
        """Hold new sends back, or let them go: the lease may be over before such a send is."""
        if back:
            self.held = self.held or asyncio.Event()
        elif self.held is not None:
            self.held.set()
            self.held = None

    def listen(self, listener: Callable[[], None] | None) -> None:
        """Have `listener` called at once when the attempt is cancelled; None ends it."""
        self._listener = listener
