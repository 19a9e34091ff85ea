"""When a worker calls: its seals go out together, each once, and never wait for a parked call."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable

from evalfleet.clock import SystemClock
from evalfleet.model.case import Case
from evalfleet.model.record import EncodedRows, SealedAttempt
from evalfleet.model.verdict import Outcome, Style, Verdict
from evalfleet.scheduling.messages import (
    CommandKind,
    ExchangeReply,
    ExchangeRequest,
    Grant,
    MadeSandbox,
    WorkerCommand,
)
from evalfleet.scheduling.worker import Worker, WorkerEnd, WorkerTimes

PATIENT = WorkerTimes(hold=60.0, flush=60.0, flush_share=1000.0, busy=60.0)
STOP = ExchangeReply(1, commands=(WorkerCommand(CommandKind.STOP),))


class Desk:
    """The coordinator's side of one worker: its calls, each answered when the test says so."""

    def __init__(self) -> None:
        self.calls: asyncio.Queue[tuple[ExchangeRequest, asyncio.Future[ExchangeReply]]] = asyncio.Queue()
        self.ended = defaultdict[int, asyncio.Event](asyncio.Event)
        self.holds: asyncio.Queue[bool] = asyncio.Queue()

    async def exchange(self, request: ExchangeRequest) -> ExchangeReply:
        reply = asyncio.get_running_loop().create_future()
        self.calls.put_nowait((request, reply))
        return await reply

    def begin(self, grant: Grant) -> Attempt:
        return Attempt(grant, self.ended[grant.attempt], self.holds)

    def end(self, *attempts: int) -> None:
        for attempt in attempts:
            self.ended[attempt].set()


class Attempt:
    def __init__(self, grant: Grant, ended: asyncio.Event, told: asyncio.Queue[bool]) -> None:
        self._told = told
        self._grant = grant
        self._ended = ended

    async def run(self) -> SealedAttempt:
        await self._ended.wait()
        return SealedAttempt(
            attempt=self._grant.attempt,
            case=self._grant.case.ordinal,
            outcome=Outcome.COMPLETED,
            verdict=Verdict.PASSED,
            rows=EncodedRows(attempt=b"row", assertions=b"", tool_calls=b"", pages=b""),
        )

    def cancel(self, reason: str) -> None:
        self._ended.set()

    def hold(self, *, back: bool) -> None:
        self._told.put_nowait(back)


def grants(*attempts: int) -> tuple[Grant, ...]:
    return tuple(Grant(attempt, _case(attempt)) for attempt in attempts)


def _case(ordinal: int) -> Case:
    return Case(
        ordinal=ordinal,
        arm="a",
        eval_id=f"e/{ordinal:04}",
        definition="e",
        style=Style.PASS,
        repetition=0,
        content=f"{ordinal:064x}",
        fingerprint=None,
    )


def played(lanes: int, play: Callable[[Desk], Awaitable[None]], times: WorkerTimes = PATIENT) -> WorkerEnd:
    """Let a worker run against a desk; waits long where it may wait, so that only what is at once happens at once."""

    async def run() -> WorkerEnd:
        desk = Desk()
        worker = Worker("w", lanes, desk.exchange, desk.begin, SystemClock(), times)
        playing = asyncio.create_task(worker.run())
        await asyncio.wait_for(asyncio.ensure_future(play(desk)), 30)
        return await asyncio.wait_for(playing, 30)

    return asyncio.run(run())


def sent(request: ExchangeRequest) -> set[int]:
    return {seal.attempt for seal in request.sealed}


def test_seals_that_come_while_others_are_committed_are_the_next_calls() -> None:
    async def play(desk: Desk) -> None:
        _, reply = await desk.calls.get()
        reply.set_result(ExchangeReply(1, grants=grants(1, 2, 3, 4)))
        desk.end(1, 2)
        request, reply = await desk.calls.get()
        assert sent(request) == {1, 2}
        desk.end(3, 4)
        for _ in range(20):
            await asyncio.sleep(0)
        assert desk.calls.empty(), "a call that carries seals was overtaken, and they were sent twice"
        reply.set_result(ExchangeReply(1, acks=(1, 2)))
        request, reply = await desk.calls.get()
        assert sent(request) == {3, 4}
        reply.set_result(STOP)

    assert played(4, play) is WorkerEnd.STOPPED


def test_seals_do_not_wait_for_a_parked_call() -> None:
    async def play(desk: Desk) -> None:
        _, reply = await desk.calls.get()
        reply.set_result(ExchangeReply(1, grants=grants(1)))
        parked, _ = await desk.calls.get()
        assert not parked.sealed and parked.want == 3
        desk.end(1)
        request, reply = await desk.calls.get()
        assert sent(request) == {1} and request.seq > parked.seq
        reply.set_result(STOP)

    assert played(4, play) is WorkerEnd.STOPPED


def test_an_unacknowledged_seal_is_carried_again() -> None:
    async def play(desk: Desk) -> None:
        _, reply = await desk.calls.get()
        reply.set_result(ExchangeReply(1, grants=grants(1)))
        await desk.calls.get()
        desk.end(1)
        _, reply = await desk.calls.get()
        reply.set_result(ExchangeReply(1))
        request, reply = await desk.calls.get()
        assert sent(request) == {1}
        reply.set_result(STOP)

    assert played(2, play) is WorkerEnd.STOPPED


def test_a_made_sandbox_is_told_at_once_and_until_a_call_is_answered() -> None:
    async def play(desk: Desk, worker: Worker) -> None:
        _, reply = await desk.calls.get()
        reply.set_result(ExchangeReply(1, grants=grants(1)))
        await desk.calls.get()
        worker.made(1, 0.5)
        request, reply = await desk.calls.get()
        assert request.made == (MadeSandbox(1, 0.5),)
        worker.made(2, 0.7)
        request, reply = await desk.calls.get()
        assert request.made == (MadeSandbox(1, 0.5), MadeSandbox(2, 0.7))
        reply.set_result(ExchangeReply(1))
        request, reply = await desk.calls.get()
        assert request.made == ()
        reply.set_result(STOP)

    async def run() -> WorkerEnd:
        desk = Desk()
        worker = Worker("w", 4, desk.exchange, desk.begin, SystemClock(), PATIENT)
        playing = asyncio.create_task(worker.run())
        await asyncio.wait_for(play(desk, worker), 30)
        return await asyncio.wait_for(playing, 30)

    assert asyncio.run(run()) is WorkerEnd.STOPPED


def test_a_silent_coordinator_holds_new_sends_back_and_an_answer_lets_them_go() -> None:
    async def play(desk: Desk) -> None:
        _, reply = await desk.calls.get()
        reply.set_result(ExchangeReply(1, grants=grants(1)))
        _, reply = await desk.calls.get()
        assert await desk.holds.get() is True
        # That call took too long for its reply to count: only the answer to the next one tells that all is well.
        reply.set_result(ExchangeReply(1))
        _, reply = await desk.calls.get()
        reply.set_result(ExchangeReply(1))
        _, reply = await desk.calls.get()
        while await desk.holds.get():
            pass
        reply.set_result(STOP)

    times = WorkerTimes(hold=60.0, flush=0.0, busy=60.0, look=0.05, lease_ttl=4.0)
    assert played(2, play, times) is WorkerEnd.STOPPED


def test_the_first_of_many_attempts_is_at_work_before_the_last_begins() -> None:
    """Each has some steps to take before it waits for its agent; in lockstep none would be there before all are."""
    log: list[tuple[str, int]] = []

    class Stepping(Attempt):
        def __init__(self, grant: Grant, ended: asyncio.Event, told: asyncio.Queue[bool]) -> None:
            super().__init__(grant, ended, told)
            self._number = grant.attempt

        async def run(self) -> SealedAttempt:
            log.append(("begins", self._number))
            for _ in range(5):
                await asyncio.sleep(0)
            log.append(("at work", self._number))
            return await super().run()

    class Steps(Desk):
        def begin(self, grant: Grant) -> Attempt:
            return Stepping(grant, self.ended[grant.attempt], self.holds)

    async def run() -> None:
        desk = Steps()
        playing = asyncio.create_task(Worker("w", 100, desk.exchange, desk.begin, SystemClock(), PATIENT).run())
        _, reply = await desk.calls.get()
        reply.set_result(ExchangeReply(1, grants=grants(*range(1, 101))))
        desk.end(*range(1, 101))
        _, reply = await desk.calls.get()
        reply.set_result(STOP)
        await playing

    asyncio.run(asyncio.wait_for(run(), 30))
    assert [number for what, number in log if what == "at work"] == list(range(1, 101))
    assert log.index(("at work", 1)) < log.index(("begins", 40)), "a few at a time"
