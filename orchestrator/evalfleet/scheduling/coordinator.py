"""The coordinator: a shell around `decide`. Every input is an event, one place carries every decision out."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass, replace
from typing import Any

from evalfleet.errors import Fenced
from evalfleet.model.record import CommitBatch
from evalfleet.model.report import RunProgress
from evalfleet.model.verdict import RunStatus, Verdict
from evalfleet.ports import Clock, Holder, Recorder
from evalfleet.scheduling import admission, spending
from evalfleet.scheduling.decide import decide
from evalfleet.scheduling.events import (
    CommitDone,
    Decision,
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
from evalfleet.scheduling.messages import ExchangeReply, ExchangeRequest
from evalfleet.scheduling.state import Adoption, RunPolicy, RunState, begin

#: Seconds between heartbeats of a run, which also carry its progress.
BEAT = 1.0
#: Why a run ended whose task was cancelled without a reason.
INTERRUPTED = "interrupted by the user"
#: Seconds for which attempts in flight may end by themselves once the run is cancelled.
DRAIN = 3.0
_RATE_WINDOW = 10


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How a coordinator ended: the run's final status, or `fenced` when another one holds the run now."""

    status: RunStatus | None
    reason: str | None = None
    fenced: bool = False


class AtOnce(str):
    """A reason for cancelling a run of which nothing in flight is waited for: the message of the cancellation."""

    __slots__ = ()


def drained_for(cancelled: asyncio.CancelledError) -> tuple[str, float]:
    """Why a run was cancelled, and the seconds that its attempts in flight have to end by themselves."""
    reason = cancelled.args[0] if cancelled.args else ""
    return str(reason) or INTERRUPTED, 0.0 if isinstance(reason, AtOnce) else DRAIN


class Coordinator:
    """Schedules one run over whatever workers call `exchange`.

    `kill` ends a worker by name; its death comes back as `worker_gone`. `failpoint` is passed the places
    `before_reply` and those of the recorder. Belongs to one event loop.
    """

    def __init__(
        self,
        recorder: Recorder,
        clock: Clock,
        policy: RunPolicy,
        *,
        kill: Callable[[str, str], None],
        failpoint: Callable[[str], None],
    ) -> None:
        self._recorder = recorder
        self._clock = clock
        self._policy = policy
        self._kill = kill
        self._failpoint = failpoint
        self._polls: dict[tuple[str, int], asyncio.Future[ExchangeReply]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._settled_at: deque[tuple[float, int]] = deque(maxlen=_RATE_WINDOW)
        self._ended: asyncio.Future[RunEnd] = asyncio.get_running_loop().create_future()
        self._state: RunState | None = None

    async def start(self, holder: Holder, adoption: Adoption, *, takeover: bool = False, steal: bool = False) -> int:
        """Claim the run and begin; the store's number of the run. Raises RunHeld, or StoreError."""
        claim = await self._recorder.claim(holder, takeover=takeover, steal=steal)
        if self._policy.budget is not None:
            claim = replace(claim, spending=await self._recorder.spending())
        if self._policy.cycle is not None:
            claim = replace(claim, solved=tuple(await self._recorder.solved(self._policy.cycle)))
        self._state = begin(claim, self._policy, self._clock.monotonic(), self._clock.wall(), adoption=adoption)
        self._spawn(self._tick())
        self._spawn(self._beat())
        self._handle(Tick())
        return claim.run_key

    async def exchange(self, request: ExchangeRequest) -> ExchangeReply:
        """One worker's whole present state in, acknowledgements, grants and commands out; parks up to 5 s."""
        place = (request.worker, request.seq)
        poll = self._polls[place] = asyncio.get_running_loop().create_future()
        try:
            self._handle(Exchanged(request))
            return await poll
        finally:
            self._polls.pop(place, None)

    def worker_gone(self, worker: str, how: Departure) -> None:
        self._handle(WorkerGone(worker, how))

    def roster(self, workers: tuple[str, ...]) -> None:
        """Say which workers exist now; the owner of the workers calls this about once a second."""
        self._handle(Roster(workers))

    def stop(self, status: RunStatus, reason: str, *, cancel: bool) -> None:
        """Grant nothing more; with `cancel` also end what is in flight. The run ends as `status`."""
        self._handle(StopAsked(status, reason, cancel))

    async def ended(self) -> RunEnd:
        """Wait for the end. Raises StoreError when the record store stayed away for too long."""
        return await asyncio.shield(self._ended)

    @property
    def is_over(self) -> bool:
        return self._ended.done()

    async def close(self) -> None:
        """Stop every task; answers no poll any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for poll in self._polls.values():
            poll.cancel()
        if not self._ended.done():
            self._ended.cancel()
        await self._recorder.close()

    def progress(self) -> RunProgress:
        """The live counters of this moment."""
        state = self._required()
        now = self._clock.monotonic()
        if not self._settled_at or now - self._settled_at[-1][0] >= BEAT / 2:
            self._settled_at.append((now, state.settled))
        since, before = self._settled_at[0]
        rate = (state.settled - before) / (now - since) if now > since else 0.0
        return RunProgress(
            at=self._clock.wall(),
            total=state.total,
            settled=state.settled,
            passed=state.tallies.get(Verdict.PASSED.value, 0),
            failed=state.tallies.get(Verdict.FAILED.value, 0),
            errored=state.tallies.get(Verdict.ERRORED.value, 0),
            running=state.leased,
            rate=rate,
            cost_usd=state.spent_usd,
            judge_usd=state.judge_usd,
            unknown_judge_cost=state.unknown_judge_cost,
            failures_by_kind=dict(state.kinds),
            paused=admission.paused(state),
            rates=tuple(asdict(use) for use in state.rates),
            budget=spending.shown(state),
        )

    # --- events in, decisions out -----------------------------------------------------------------------------

    def _required(self) -> RunState:
        if self._state is None:
            raise RuntimeError("the coordinator was used before `start`")
        return self._state

    def _handle(self, event: Event) -> None:
        for decision in decide(self._required(), event, self._clock.monotonic()):
            self._carry_out(decision)

    def _carry_out(self, decision: Decision) -> None:
        match decision:
            case Reply():
                self._failpoint("before_reply")
                poll = self._polls.get((decision.worker, decision.seq))
                if poll is not None and not poll.done():
                    poll.set_result(decision.reply)
            case Write():
                self._spawn(self._commit(decision.batch))
            case LoadPage():
                self._spawn(self._load(decision))
            case KillWorker():
                self._kill(decision.worker, decision.reason)
            case Finish():
                self._spawn(self._finish(decision))
            case Leave():
                self._end(RunEnd(None, fenced=True))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, Fenced):
            self._handle(FencedOff())
        elif not self._ended.done():
            self._ended.set_exception(error)

    def _end(self, end: RunEnd) -> None:
        if not self._ended.done():
            self._ended.set_result(end)

    async def _commit(self, batch: CommitBatch) -> None:
        asked_at = self._clock.monotonic()
        result = await self._recorder.commit(batch)
        self._handle(CommitDone(result, asked_at))

    async def _load(self, wanted: LoadPage) -> None:
        cases = await self._recorder.page(wanted.after, wanted.limit)
        self._handle(PageRead(tuple(cases), last=len(cases) < wanted.limit))

    async def _finish(self, finish: Finish) -> None:
        await self._recorder.beat(_as_json(self.progress()))
        await self._recorder.finish(finish.status.value, finish.reason)
        self._end(RunEnd(finish.status, finish.reason))

    async def _tick(self) -> None:
        while not self._required().over:
            await self._clock.sleep(self._policy.tick)
            self._handle(Tick())

    async def _beat(self) -> None:
        while not self._required().over:
            asked_at = self._clock.monotonic()
            if not await self._recorder.beat(_as_json(self.progress())):
                self._handle(FencedOff())
                return
            self._handle(EpochConfirmed(asked_at))
            if await self._recorder.cancel_requested():
                self.stop(RunStatus.CANCELLED, "cancelled by request", cancel=True)
            await self._clock.sleep(BEAT)


def _as_json(progress: RunProgress) -> dict[str, Any]:
    return {name: getattr(progress, name) for name in RunProgress.__slots__}
