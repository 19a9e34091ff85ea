"""Coordinator, workers, store and network in virtual time. One seed is one schedule of faults.

The product's `decide` and `WorkerState` run unchanged; this file is only the world around them, and the
invariants it checks. A broken one raises `Violation`.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from evalfleet.errors import FailureKind
from evalfleet.execution.allowance import Allowance
from evalfleet.model.case import Case
from evalfleet.model.record import CommitBatch, EncodedRows, Recording, SealedAttempt
from evalfleet.model.verdict import Outcome, RunStatus, Style, Verdict
from evalfleet.scheduling import decide as decide_module
from evalfleet.scheduling.events import (
    CommitDone,
    Departure,
    EpochConfirmed,
    Event,
    Exchanged,
    FencedOff,
    Finish,
    KillWorker,
    Leave,
    LoadPage,
    PageRead,
    Reply,
    Roster,
    StopAsked,
    Tick,
    WorkerGone,
    Write,
)
from evalfleet.scheduling.messages import CommandKind, ExchangeReply, ExchangeRequest, Grant, MadeSandbox
from evalfleet.scheduling.state import Adoption, RunPolicy, RunState, begin
from evalfleet.scheduling.worker_state import Contact, WorkerState
from tests.simulation import spending, waiting
from tests.simulation.repeating import Repetitions
from tests.simulation.store import SimStore
from tests.simulation.weather import Weather

HOLD = 5.0
ATTEMPT_TIMEOUT = 60.0


class Violation(AssertionError):
    """An invariant of the protocol does not hold."""


@dataclass
class Agent:
    """How one case behaves when it is executed; `judged` is how long judging it takes, None when nothing judges.

    A conversation of several `turns` can be continued after each; `sent` counts how often each was sent.
    """

    seconds: float
    errors: int = 0
    crashes: bool = False
    starts: int = 0
    judged: float | None = None
    turns: int = 1
    sent: Counter[int] = field(default_factory=Counter[int])


@dataclass
class WorkerProcess:
    """A worker: the product's state machine, its running attempts, and whether it is alive or paused."""

    state: WorkerState
    generation: int
    alive: bool = True
    paused_until: float = 0.0
    cut_until: float = 0.0
    was_silent: bool = False
    faulted: bool = False
    running: dict[int, Grant] = field(default_factory=dict)
    since: dict[int, float] = field(default_factory=dict)
    at: dict[int, int] = field(default_factory=dict)
    allowances: dict[int, Allowance] = field(default_factory=dict)
    outstanding: int | None = None
    flush_due: bool = False
    deferred: list[Callable[[], None]] = field(default_factory=list)


@dataclass(frozen=True)
class Transaction:
    """A batch on its way to the store, under the epoch and by the incarnation that sent it."""

    batch: CommitBatch
    epoch: int
    incarnation: int
    sent_at: float


@dataclass
class CoordinatorProcess:
    """A coordinator: the product's state, alive or paused, with what waits for it meanwhile."""

    holder: str
    generation: int
    state: RunState | None = None
    epoch: int = 0
    paused_until: float = 0.0
    waiting: list[Event] = field(default_factory=list)
    incarnation: int = 0
    ended: bool = False
    kept: list[tuple[float, Any]] = field(default_factory=list)
    highest: dict[str, int] = field(default_factory=dict)
    failed_over: bool = False
    replayed: bool = False


class World:
    """One simulated run. `run()` returns when it has finished, or raises Violation."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now = 0.0
        self.heap: list[tuple[float, int, Callable[[], None]]] = []
        self.order = itertools.count()
        count = self.random.randint(4, 36)
        arms = ["a", "b"][: self.random.randint(1, 2)]
        self.cases = [self._case(i, arms) for i in range(count)]
        self.agents = [self._agent() for _ in self.cases]
        self.weather = Weather.of(seed)
        self.throttle = waiting.Throttle.of(seed)
        self.market = spending.Market.of(seed, count)
        if self.weather.outage is not None:
            self._add_sandboxed_cases()
        self.repetitions = Repetitions.of(seed, len(self.cases))
        self.store = SimStore(self.cases, self.repetitions.cycle)
        self.policy = RunPolicy(
            concurrency=self.random.choice([2, 5, 100]),
            per_arm={"a": self.random.choice([1, 3])} if self.random.random() < 0.3 else {},
            page_size=self.random.choice([3, 8, 2000]),
            max_attempts=3,
            attempt_timeout=ATTEMPT_TIMEOUT,
            sandboxed=self.weather.sandboxed,
            sandboxes=self.weather.sandboxes,
            sandbox_starts=self.weather.starts,
            budget=self.market.policy,
            cycle=self.repetitions.cycle,
        )
        if self.weather.outage is not None:
            # With a small window the same few cases would have to stand the whole outage.
            self.policy = replace(self.policy, page_size=2000)
        self.lanes = self.random.randint(1, 4)
        self.workers: dict[str, WorkerProcess] = {}
        self.coordinator: CoordinatorProcess | None = None
        self.retired: list[CoordinatorProcess] = []
        self.generation = 0
        self.names = itertools.count()
        self.drop = self.random.choice([0.0, 0.0, 0.02, 0.1])
        self.repeat = self.random.choice([0.0, 0.0, 0.05])
        self.slow = self.random.choice([0.0, 0.1])
        self.started: dict[int, str] = {}
        self.dropped: dict[int, tuple[int, Outcome, bool]] = {}
        self.calm_after = 150.0

    def _case(self, ordinal: int, arms: list[str]) -> Case:
        return Case(
            ordinal=ordinal,
            arm=self.random.choice(arms),
            eval_id=f"e/{ordinal:04d}",
            definition="e",
            style=Style.PASS,
            repetition=0,
            content=str(ordinal),
            fingerprint=None,
            external=self.random.random() < 0.15,
        )

    def _add_sandboxed_cases(self) -> None:
        """Enough cases to notice an outage by, and enough that none is tried twice before."""
        for ordinal in range(len(self.cases), len(self.cases) + 24):
            plain = replace(self.cases[0], arm="a", external=False, eval_id=f"e/{ordinal:04d}", content=str(ordinal))
            self.cases.append(replace(plain, ordinal=ordinal))
            self.agents.append(Agent(self.weather.dice.choice([0.01, 0.5, 3.0])))

    def _agent(self) -> Agent:
        roll = self.random.random()
        seconds = self.random.choice([0.01, 0.5, 3.0, 12.0, 25.0]) * self.random.uniform(0.5, 1.5)
        if roll < 0.1:
            return Agent(seconds, crashes=True, turns=self.random.choice([1, 3]))
        judged = self.random.choice([None, None, 0.1, 5.0, 20.0])
        turns = self.random.choice([1, 1, 1, 3])
        return Agent(seconds, errors=1 if roll < 0.25 else 0, judged=judged, turns=turns)

    # --- time and the network ---------------------------------------------------------------------------------

    def after(self, delay: float, action: Callable[[], None]) -> None:
        heapq.heappush(self.heap, (self.now + delay, next(self.order), action))

    def send(self, worker: WorkerProcess, action: Callable[[], None]) -> None:
        """Carry a message between a worker and its coordinator: late, twice or never."""
        if self.now < worker.cut_until or (self.now < self.calm_after and self.random.random() < self.drop):
            return
        delay = self.random.uniform(0.001, 0.02)
        if self.random.random() < self.slow:
            delay += self.random.uniform(0, 3)
        self.after(delay, action)
        if self.random.random() < self.repeat:
            self.after(delay + self.random.uniform(0, 4), action)

    # --- running ----------------------------------------------------------------------------------------------

    def run(self) -> None:
        limit = 3000.0 if self.throttle.share == 0.0 and self.market.policy is None else 10_000.0
        self.launch_driver(takeover=False)
        for _ in range(self.random.randint(0, 6)):
            self.after(self.random.uniform(0, 100), self.random.choice(self._faults()))
        for delay in self.weather.restarts:
            self.after(delay, self.crash_coordinator)
        while self.store.tables.finished is None:
            if not self.heap:
                raise Violation("nothing is left to happen and the run has not ended")
            self.now, _, action = heapq.heappop(self.heap)
            if self.now > limit:
                raise Violation(f"the run has not ended after {limit} s")
            action()
            if (problem := spending.exceeded(self.market, self.store)) is not None:
                raise Violation(problem)
        self.check_end()

    def _faults(self) -> list[Callable[[], None]]:
        return [
            self.crash_worker,
            self.pause_worker,
            self.cut_worker,
            self.crash_coordinator,
            self.pause_coordinator,
            self.pause_after_restart,
            self.kill_driver,
            self.stop_store,
            self.fail_over,
        ]

    def launch_driver(self, *, takeover: bool) -> None:
        """A driver starts a coordinator and workers; a second driver takes the run over."""
        if self.store.tables.finished is not None:
            return
        process = CoordinatorProcess(holder=f"driver-{self.generation}", generation=self.generation)
        adoption = Adoption.LEASE if takeover else Adoption.NONE
        if self.now < self.store.down_until or not self.claim(process, takeover=takeover, adoption=adoption):
            self.after(5.0, lambda: self.launch_driver(takeover=takeover))
            return
        if self.coordinator is not None:
            self.retired.append(self.coordinator)
        self.coordinator = process
        generation, self.generation = self.generation, self.generation + 1
        for _ in range(self.random.randint(1, 3)):
            self.add_worker(generation)
        self.roster(process, process.incarnation)

    def claim(self, process: CoordinatorProcess, *, takeover: bool, adoption: Adoption) -> bool:
        claim = self.store.claim(process.holder, self.now, takeover=takeover)
        if claim is None:
            return False
        newest = max((p.generation for p in [*self.retired, self.coordinator] if p is not None), default=-1)
        if process.generation < newest:
            raise Violation("a restarted coordinator took over the run of a newer one")
        process.state = begin(claim, self.policy, self.now, self.now, adoption=adoption)
        self.weather.claimed(self.now, claim.epoch, restart=adoption is Adoption.ROSTER)
        process.epoch = claim.epoch
        process.kept, process.highest, process.waiting = [], {}, []
        process.incarnation += 1
        self.tick(process, process.incarnation)
        self.beat(process, process.incarnation)
        return True

    def add_worker(self, generation: int) -> None:
        name = f"w{next(self.names)}"
        worker = WorkerProcess(WorkerState(name, self.lanes, self.policy.lease_ttl, self.now), generation)
        self.workers[name] = worker
        self.exchange(worker)
        self.watch_contact(worker)

    def coordinator_of(self, worker: WorkerProcess) -> CoordinatorProcess | None:
        for process in (self.coordinator, *self.retired):
            if process is not None and process.generation == worker.generation:
                return process
        return None

    def _alive(self, process: CoordinatorProcess, incarnation: int) -> bool:
        return process.incarnation == incarnation and process.state is not None and not process.ended

    def tick(self, process: CoordinatorProcess, incarnation: int) -> None:
        if not self._alive(process, incarnation):
            return
        if self.now < process.paused_until:
            self.after(process.paused_until - self.now, lambda: self.tick(process, incarnation))
            return
        self.deliver(process, Tick())
        self.after(self.policy.tick, lambda: self.tick(process, incarnation))

    def beat(self, process: CoordinatorProcess, incarnation: int) -> None:
        if not self._alive(process, incarnation):
            return
        if self.now >= process.paused_until and self.now >= self.store.down_until:
            if self.store.holds(process.epoch):
                self.store.tables.beat = self.now
                self.deliver(process, EpochConfirmed(self.now))
            else:
                self.deliver(process, FencedOff())
        self.after(2.0, lambda: self.beat(process, incarnation))

    def roster(self, process: CoordinatorProcess, incarnation: int) -> None:
        if not self._alive(process, incarnation):
            return
        names = tuple(n for n, w in self.workers.items() if w.alive and w.generation == process.generation)
        self.deliver(process, Roster(names))
        self.after(1.0, lambda: self.roster(process, incarnation))

    # --- the coordinator's shell ------------------------------------------------------------------------------

    def deliver(self, process: CoordinatorProcess, event: Event) -> None:
        if process.state is None or process.ended:
            return
        if self.now < process.paused_until:
            process.waiting.append(event)
            return
        if not process.waiting:
            self._decide(process, event)
            return
        # A process that wakes finds its timers due and its sockets full, and either may come first.
        waiting, process.waiting = process.waiting, []
        self.random.shuffle(waiting)
        waiting.insert(0 if self.random.random() < 0.5 else self.random.randint(0, len(waiting)), event)
        for each in waiting:
            self._decide(process, each)

    def _decide(self, process: CoordinatorProcess, event: Event) -> None:
        if process.state is None or process.ended:
            return
        if isinstance(event, Exchanged):
            request = event.request
            process.highest[request.worker] = max(process.highest.get(request.worker, -1), request.seq)
            if not self.workers[request.worker].alive:
                # Watching the handle of a dead actor fails at once.
                gone = WorkerGone(request.worker, Departure.CRASHED)
                self.after(0.02, lambda: self.deliver(process, gone))
        leased = process.state.leased
        for decision in decide_module.decide(process.state, event, self.now):
            match decision:
                case Reply():
                    self.reply(process, decision)
                case Write():
                    self.write(process, Transaction(decision.batch, process.epoch, process.incarnation, self.now))
                case LoadPage():
                    self.load(process, decision, process.incarnation)
                case KillWorker():
                    self.kill_worker(decision.worker)
                case Finish():
                    self.finish(process, decision)
                case Leave():
                    process.ended, process.state = True, None
                    return
        self.check_limits(process, leased)

    def reply(self, process: CoordinatorProcess, decision: Reply) -> None:
        worker = self.workers[decision.worker]
        if decision.reply.grants and decision.seq < process.highest.get(decision.worker, -1):
            raise Violation("a grant was put into the reply to an overtaken poll")
        newer = [at for at, epoch in self.store.claimed if epoch > process.epoch]
        if decision.reply.grants and newer and self.now - newer[0] > self.policy.lease_ttl / 2:
            raise Violation("a fenced coordinator granted a lease")
        self.send(worker, lambda: self.receive(worker, decision.seq, decision.reply))

    def write(self, process: CoordinatorProcess, txn: Transaction) -> None:
        for lost in txn.batch.lost:
            holder = self.workers[lost.worker]
            if lost.code == "LEASE_EXPIRED" and holder.alive and not self.faulty(holder):
                raise Violation(f"a lease of {lost.worker} expired although the worker was never silent")
        if self.now < self.store.down_until:
            self.after(0.5, lambda: self.write(process, txn))
            return
        if not self.begins(process, txn):
            self.after(0.01, lambda: self._hand_back(process, txn, FencedOff()))
            return
        stuck = self.random.random() < 0.05
        delay = self.random.uniform(0, 4) if stuck else self.random.uniform(0.001, 0.05)
        self.after(delay, lambda: self.apply(process, txn))

    def begins(self, process: CoordinatorProcess, txn: Transaction) -> bool:
        """The check at the start of a transaction; the one that counts is at its end."""
        return self.store.holds(txn.epoch) or process.failed_over

    def apply(self, process: CoordinatorProcess, txn: Transaction) -> None:
        if self.now < self.store.down_until:
            if self._alive(process, txn.incarnation):
                self.write(process, txn)
            return
        if process.failed_over and self._alive(process, txn.incarnation):
            self.replay(process)
            txn = Transaction(txn.batch, process.epoch, txn.incarnation, self.now)
        if not self.fence(txn):
            self._hand_back(process, txn, FencedOff())
            return
        if txn.epoch < self.store.tables.epoch:
            raise Violation("a fenced coordinator wrote")
        result = self.store.commit(txn.batch, txn.epoch, self.now)
        process.kept = [(t, b) for t, b in process.kept if self.now - t < 60] + [(self.now, txn.batch)]
        self.after(
            self.random.uniform(0.001, 0.02), lambda: self._hand_back(process, txn, CommitDone(result, txn.sent_at))
        )

    def fence(self, txn: Transaction) -> bool:
        return self.store.holds(txn.epoch)

    def _hand_back(self, process: CoordinatorProcess, txn: Transaction, event: Event) -> None:
        if self._alive(process, txn.incarnation):
            self.deliver(process, event)

    def replay(self, process: CoordinatorProcess) -> None:
        """The recorder saw an older commit number after a reconnect: claim anew and repeat what it kept."""
        process.failed_over, process.replayed = False, True
        if self.store.tables.holder != process.holder or self.store.tables.epoch > process.epoch:
            return
        process.epoch = max(self.store.tables.epoch, process.epoch) + 1
        self.store.tables.epoch = process.epoch
        for _, batch in process.kept:
            self.store.commit(batch, process.epoch, self.now)

    def load(self, process: CoordinatorProcess, decision: LoadPage, incarnation: int) -> None:
        def read() -> None:
            if self.now < self.store.down_until:
                self.after(0.5, read)
                return
            cases, last = self.store.page(decision.after, decision.limit)
            if self._alive(process, incarnation):
                self.deliver(process, PageRead(cases, last))

        self.after(self.random.uniform(0.001, 0.03), read)

    def finish(self, process: CoordinatorProcess, decision: Finish) -> None:
        if process.failed_over:
            self.replay(process)
        if not self.store.holds(process.epoch):
            process.ended, process.state = True, None
            return
        for worker in self.workers.values():
            ours = worker.alive and worker.generation == process.generation and not worker.was_silent
            if ours and (worker.state.sealed or worker.running):
                raise Violation("the run finished while a worker held a sealed attempt")
        counted = (0.0, 0.0) if process.state is None else (process.state.spent_usd, process.state.judge_usd)
        recorded = (self.store.spent(), self.store.spent_on_judges())
        if not all(map(math.isclose, counted, recorded)) and not process.replayed:
            raise Violation(f"cost counted {counted}, recorded {recorded}")
        self.store.tables.finished = decision.status.value

    # --- workers ----------------------------------------------------------------------------------------------

    def defer(self, worker: WorkerProcess, action: Callable[[], None]) -> bool:
        """Keep an action for the time after the worker's pause."""
        if self.now < worker.paused_until:
            self.after(worker.paused_until - self.now + 0.001, action)
            return True
        return False

    def exchange(self, worker: WorkerProcess) -> None:
        if not worker.alive or worker.state.stopped or self.defer(worker, lambda: self.exchange(worker)):
            return
        worker.flush_due = False
        request = worker.state.request(self.now)
        worker.outstanding = request.seq
        self.send(worker, lambda: self.arrive(worker, request))
        self.after(HOLD + 10, lambda: self.time_out(worker, request.seq))

    def time_out(self, worker: WorkerProcess, seq: int) -> None:
        if worker.outstanding == seq:
            self.exchange(worker)

    def arrive(self, worker: WorkerProcess, request: ExchangeRequest) -> None:
        process = self.coordinator_of(worker)
        if process is not None and process.state is not None:
            self.deliver(process, Exchanged(request))
        elif process is not None and worker.outstanding == request.seq:
            self.after(0.2, lambda: self.time_out(worker, request.seq))

    def receive(self, worker: WorkerProcess, seq: int, reply: ExchangeReply) -> None:
        if not worker.alive or self.defer(worker, lambda: self.receive(worker, seq, reply)):
            return
        self.check_contact(worker)
        before = dict(worker.state.sealed)
        received = worker.state.receive(seq, reply, self.now)
        for attempt, seal in before.items():
            if attempt not in worker.state.sealed:
                self.dropped[attempt] = (seal.case, seal.outcome, self.faulty(worker))
                if attempt not in self.store.tables.attempts and not self.failing_over():
                    raise Violation(f"attempt {attempt:#x} was acknowledged before it was durable")
        for grant in received.grants:
            self.grant(worker, grant)
        if (problem := waiting.lanes_exceeded(worker)) is not None:
            raise Violation(problem)
        for attempt in received.durable:
            turn = worker.at.get(attempt, 0)
            agent = self.agents[worker.running[attempt].case.ordinal]
            if turn < agent.turns:
                self.check_beginning(worker, attempt, turn)
                self.converse(worker, attempt, turn + 1)
            else:
                self.judge(worker, worker.running[attempt])
        for top_up in received.top_ups:
            if not spending.is_durable(self.store, top_up.attempt, top_up.total) and not self.failing_over():
                raise Violation(f"attempt {top_up.attempt:#x} was given money before that was durable")
            spending.topped_up(self, worker, top_up.attempt, top_up.total)
        for command in received.commands:
            if command.kind is CommandKind.CANCEL and command.attempt in worker.running:
                self.seal(worker, command.attempt, Outcome.CANCELLED)
        if worker.outstanding == seq:
            worker.outstanding = None
            self.exchange(worker)

    def failing_over(self) -> bool:
        """Whether a commit was lost that its coordinator has yet to replay."""
        return self.coordinator is not None and self.coordinator.failed_over

    def grant(self, worker: WorkerProcess, grant: Grant) -> None:
        self.check_start(worker, grant)
        worker.running[grant.attempt], worker.since[grant.attempt] = grant, self.now
        if grant.allowance is not None:
            if not spending.is_durable(self.store, grant.attempt, grant.allowance) and not self.failing_over():
                raise Violation(f"attempt {grant.attempt:#x} began before what it may spend was durable")
            worker.allowances[grant.attempt] = Allowance(grant.allowance)
        if grant.attempt in worker.state.parked:
            waiting.take_lane(self, worker, grant.attempt, lambda: self.start(worker, grant))
        else:
            self.start(worker, grant)

    def start(self, worker: WorkerProcess, grant: Grant) -> None:
        agent = self.agents[grant.case.ordinal]
        attempt = grant.attempt
        if grant.recorded:
            self.judge(worker, grant)
            return
        making, fails = self.weather.start(grant.case.arm, self.now)
        self.after(making, lambda: self.sandbox_ready(worker, attempt, making, fails=fails))
        if fails:
            return
        agent.starts += 1
        turns = self.store.tables.beginnings.get(grant.case.ordinal, 0) if grant.begun else 0
        self.after(making, lambda: self.converse(worker, attempt, turns + 1))

    def converse(self, worker: WorkerProcess, attempt: int, turn: int) -> None:
        """Send a turn; when it is the last, the attempt ends with it."""
        if not worker.alive or attempt not in worker.running:
            return
        grant = worker.running[attempt]
        agent = self.agents[grant.case.ordinal]
        agent.sent[turn] += 1
        worker.at[attempt] = turn

        def answer() -> None:
            if (problem := waiting.lanes_exceeded(worker)) is not None:
                raise Violation(problem)
            self.after(agent.seconds / agent.turns, end)

        def end() -> None:
            if not worker.alive or attempt not in worker.running:
                return
            if self.defer(worker, end) or self.check_contact(worker) is Contact.LOST:
                return
            if turn < agent.turns:
                if grant.isolated or grant.case.external:  # which record no beginning
                    self.converse(worker, attempt, turn + 1)
                    return
                worker.state.recorded[attempt] = Recording(attempt, grant.case.ordinal, b"x" * 100, turns=turn)
                self.flush(worker)
            elif agent.crashes and not grant.isolated:
                self.end_worker(worker.state.id)
            elif agent.crashes:
                self.seal(worker, attempt, Outcome.ERRORED, FailureKind.WORKER, "WORKER_CRASHED")
            elif agent.errors > 0:
                agent.errors -= 1
                self.seal(worker, attempt, Outcome.ERRORED, FailureKind.PROVIDER, "PROVIDER_DOWN")
            elif agent.judged is not None:
                worker.state.recorded[attempt] = Recording(attempt, grant.case.ordinal, b"x" * 100)
                self.flush(worker)
            else:
                self.seal(worker, attempt, Outcome.COMPLETED)

        def paid() -> None:
            wait = None if grant.isolated else self.throttle.wait()
            if wait is None:
                answer()
            else:
                waiting.wait(self, worker, attempt, wait, answer)

        spending.buy(self, worker, attempt, paid)

    def check_beginning(self, worker: WorkerProcess, attempt: int, turn: int) -> None:
        """A turn that is said to be durable is."""
        ordinal, tables = worker.running[attempt].case.ordinal, self.store.tables
        kept = tables.beginnings.get(ordinal, 0) >= turn or ordinal in tables.recordings
        if not kept and ordinal not in tables.settlements and not self.failing_over():
            raise Violation(f"case {ordinal} went on before its turn {turn} was durable")

    def sandbox_ready(self, worker: WorkerProcess, attempt: int, seconds: float, *, fails: bool) -> None:
        if not worker.alive or attempt not in worker.running:
            return
        if self.defer(worker, lambda: self.sandbox_ready(worker, attempt, seconds, fails=fails)):
            return
        if self.check_contact(worker) is Contact.LOST:
            return
        if fails:
            self.seal(worker, attempt, Outcome.ERRORED, FailureKind.SANDBOX, "SANDBOX_FAILED")
        elif worker.running[attempt].case.arm in self.weather.sandboxed:
            worker.state.made.append(MadeSandbox(attempt, seconds))
            self.flush(worker)

    def judge(self, worker: WorkerProcess, grant: Grant) -> None:
        """The recording is durable, or was before this attempt: judge it, then seal."""
        ordinal, tables = grant.case.ordinal, self.store.tables
        if ordinal not in tables.recordings and ordinal not in tables.settlements and not self.failing_over():
            raise Violation(f"case {ordinal} was judged before its recording was durable")

        def end() -> None:
            if not worker.alive or grant.attempt not in worker.running or self.defer(worker, end):
                return
            if self.check_contact(worker) is not Contact.LOST:
                self.seal(worker, grant.attempt, Outcome.COMPLETED)

        self.after(self.agents[ordinal].judged or 0.0, end)

    def seal(
        self,
        worker: WorkerProcess,
        attempt: int,
        outcome: Outcome,
        kind: FailureKind | None = None,
        code: str | None = None,
    ) -> None:
        grant = worker.running.pop(attempt)
        del worker.since[attempt]
        verdict = self.repetitions.verdict(attempt) if outcome is Outcome.COMPLETED else Verdict.ERRORED
        rows = EncodedRows(b"x" * 100)
        sealed = SealedAttempt(attempt, grant.case.ordinal, outcome, verdict, rows, kind, code)
        worker.state.seal(spending.paid(worker, replace(sealed, cost_usd=1.0, judge_usd=0.25)))
        self.flush(worker)

    def flush(self, worker: WorkerProcess) -> None:
        if not worker.flush_due:
            worker.flush_due = True
            self.after(0.05, lambda: self.exchange(worker))

    def watch_contact(self, worker: WorkerProcess) -> None:
        if not worker.alive or worker.state.stopped:
            return
        if not self.defer(worker, lambda: self.watch_contact(worker)):
            self.check_contact(worker)
            self.after(1.0, lambda: self.watch_contact(worker))

    def check_contact(self, worker: WorkerProcess) -> Contact:
        contact = worker.state.contact(self.now)
        if contact is Contact.LOST:
            worker.was_silent = True
            for attempt in list(worker.running):
                self.seal(worker, attempt, Outcome.CANCELLED)
        return contact

    def kill_worker(self, name: str) -> None:
        worker = self.workers[name]
        overdue = waiting.overdue(worker, self.now, ATTEMPT_TIMEOUT)
        if not overdue and not self.faulty(worker) and worker.state.contact(self.now) is Contact.FRESH:
            raise Violation(f"{name} was killed although it did nothing wrong")
        self.end_worker(name)

    def faulty(self, worker: WorkerProcess) -> bool:
        """Whether a silence of this worker may be its own or the network's doing."""
        return worker.faulted or self.drop > 0 or self.slow > 0

    def end_worker(self, name: str) -> None:
        worker = self.workers[name]
        if not worker.alive:
            return
        worker.alive = False
        worker.running.clear()
        worker.since.clear()
        process = self.coordinator_of(worker)
        if process is None:
            return
        self.after(0.02, lambda: self.deliver(process, WorkerGone(name, Departure.CRASHED)))
        self.after(1.0, lambda: self._replace(process, worker.generation))

    def _replace(self, process: CoordinatorProcess, generation: int) -> None:
        if process is self.coordinator and not process.ended:
            self.add_worker(generation)

    # --- faults -----------------------------------------------------------------------------------------------

    def _some_worker(self) -> WorkerProcess | None:
        alive = [worker for worker in self.workers.values() if worker.alive]
        return self.random.choice(alive) if alive else None

    def crash_worker(self) -> None:
        if worker := self._some_worker():
            self.end_worker(worker.state.id)

    def pause_worker(self) -> None:
        if worker := self._some_worker():
            worker.paused_until = self.now + self.random.choice([2, 20, 50])
            worker.was_silent = worker.faulted = True

    def cut_worker(self) -> None:
        if worker := self._some_worker():
            worker.cut_until = self.now + self.random.choice([2, 20, 60])
            worker.was_silent = worker.faulted = True

    def crash_coordinator(self) -> None:
        process = self.coordinator
        if process is None or process.ended or process.state is None or process.failed_over:
            return
        process.state, process.incarnation = None, process.incarnation + 1
        process.paused_until = 0.0
        self.after(1.0, lambda: self.restart_coordinator(process))

    def restart_coordinator(self, process: CoordinatorProcess) -> None:
        if process.ended or process.state is not None or self.store.tables.finished:
            return
        if self.now < self.store.down_until:
            self.after(1.0, lambda: self.restart_coordinator(process))
            return
        if not self.claim(process, takeover=False, adoption=Adoption.ROSTER):
            process.ended = True
            return
        incarnation = process.incarnation
        self.after(self.random.uniform(0, 2), lambda: self.roster(process, incarnation))

    def pause_coordinator(self) -> None:
        process = self.coordinator
        if process is None or process.state is None or process.failed_over:
            return
        process.paused_until = self.now + self.random.choice([3, 18, 40, 70])
        if self.random.random() < 0.5:
            self.after(self.random.uniform(16, 40), lambda: self.launch_driver(takeover=True))
            # Ray restarts a coordinator that was killed while paused; the restart may not take over.
            self.after(self.random.uniform(41, 80), lambda: self._kill_old(process))

    def pause_after_restart(self) -> None:
        """A restarted coordinator is paused before it knows who lives."""
        self.crash_coordinator()
        self.after(self.random.uniform(1.0, 1.6), self._pause_for_long)

    def _pause_for_long(self) -> None:
        process = self.coordinator
        if process is not None and process.state is not None and not process.failed_over:
            process.paused_until = self.now + self.random.choice([33, 45])

    def _kill_old(self, process: CoordinatorProcess) -> None:
        if process.ended or process.state is None or process is self.coordinator:
            return
        process.state, process.incarnation = None, process.incarnation + 1
        self.after(1.0, lambda: self.restart_coordinator(process))

    def kill_driver(self) -> None:
        process = self.coordinator
        if process is None or process.ended or process.failed_over:
            return
        process.ended, process.state = True, None
        for worker in self.workers.values():
            if worker.generation == process.generation:
                worker.alive = False
                worker.running.clear()
                worker.since.clear()
        self.after(self.random.uniform(1, 20), lambda: self.launch_driver(takeover=True))

    def stop_store(self) -> None:
        self.store.down_until = max(self.store.down_until, self.now + self.random.choice([1, 10, 25]))

    def fail_over(self) -> None:
        process = self.coordinator
        if process is None or process.state is None or self.store.tables.holder != process.holder:
            return
        if self.now < process.paused_until:
            # Lost for good, should another coordinator claim meanwhile: no protocol helps against that.
            return
        if self.store.fail_over(self.now):
            process.failed_over = True

    # --- invariants -------------------------------------------------------------------------------------------

    def check_start(self, worker: WorkerProcess, grant: Grant) -> None:
        ordinal = grant.case.ordinal
        if grant.attempt in self.started:
            raise Violation(f"attempt id {grant.attempt:#x} was granted twice")
        self.started[grant.attempt] = worker.state.id
        for other in self.workers.values():
            if not other.alive or self.now < other.paused_until or other.state.contact(self.now) is Contact.LOST:
                continue
            if any(held.case.ordinal == ordinal for held in other.running.values()):
                raise Violation(f"case {ordinal} was granted while {other.state.id} may act on it")
        self.check_sandboxes(grant)
        if (problem := self.repetitions.granted_too_much(self.store, ordinal, grant.attempt)) is not None:
            raise Violation(problem)
        agent = self.agents[ordinal]
        if grant.case.external and agent.starts > 0 and not grant.recorded:
            raise Violation(f"external case {ordinal} was executed again")
        if ordinal in self.store.tables.recordings and not grant.recorded:
            raise Violation(f"the agent of case {ordinal} ran again although it was recorded")
        if ordinal in self.store.tables.beginnings and not grant.begun and not grant.recorded:
            raise Violation(f"the conversation of case {ordinal} began anew although its beginning was recorded")
        rows = self.store.tables.attempts.values()
        blamed = sum(1 for row in rows if row.case == ordinal and (row.blamed or row.crashed))
        if blamed >= self.policy.crash_limit:
            raise Violation(f"case {ordinal} was granted again after {blamed} blamed crashes")

    def check_sandboxes(self, grant: Grant) -> None:
        limit = self.policy.sandboxes
        if limit is None or grant.case.arm not in self.policy.sandboxed:
            return
        acting = [w for w in self.workers.values() if w.alive and w.state.contact(self.now) is not Contact.LOST]
        others = [g for w in acting for g in w.running.values() if g.case.arm in self.policy.sandboxed]
        if len(others) >= limit:
            raise Violation(f"a sandbox more than the limit of {limit}")

    def check_limits(self, process: CoordinatorProcess, leased_before: int) -> None:
        state = process.state
        if state is None:
            return
        if (problem := self.weather.granted(state, self.store, self.now)) is not None:
            raise Violation(problem)
        if (problem := waiting.concurrency_exceeded(state, self.policy, leased_before)) is not None:
            raise Violation(problem)
        for arm, limit in self.policy.per_arm.items():
            if state.leased_by_arm.get(arm, 0) > limit + self.lanes * len(self.workers):
                raise Violation(f"more leases than arm {arm} allows")

    def check_end(self) -> None:
        tables = self.store.tables
        limited = tables.finished == RunStatus.LIMITED.value
        if tables.finished != RunStatus.COMPLETED.value and not limited:
            raise Violation(f"the run ended {tables.finished}")
        if (problem := spending.wrong_end(self.market, self.store, limited=limited)) is not None:
            raise Violation(problem)
        if (problem := self.repetitions.wrong_end(self.store)) is not None:
            raise Violation(problem)
        unsettled = [case.ordinal for case in self.cases if case.ordinal not in tables.settlements]
        if unsettled and not limited:
            raise Violation(f"unsettled cases at the end: {unsettled}")
        for attempt, (case, outcome, silent) in self.dropped.items():
            row = tables.attempts.get(attempt)
            if row is None:
                raise Violation(f"acknowledged attempt {attempt:#x} of case {case} is not in the store")
            if outcome is Outcome.COMPLETED and row.outcome is Outcome.INTERRUPTED and not silent:
                raise Violation(f"attempt {attempt:#x} ran to completion and was recorded as lost")
        if lost := self.weather.lost_to_it(self.store, self.cases):
            raise Violation(f"an outage settled cases as errored: {lost}")
        if counted := self.weather.counted(self.store, self.cases):
            raise Violation(f"a failed probe counts for its case: {counted}")
        for case, attempt in tables.settlements.items():
            if attempt is not None and tables.attempts[attempt].case != case:
                raise Violation(f"case {case} was settled by an attempt of another case")


def ask_to_stop(process: CoordinatorProcess, world: World, *, cancel: bool) -> None:
    world.deliver(process, StopAsked(RunStatus.CANCELLED, "asked", cancel))
