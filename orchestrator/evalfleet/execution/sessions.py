"""Conversation lines: one adapter session each, one send in flight, every send on the record."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from evalfleet.errors import AttemptFailure, AuthoringError, FailureKind, SendFailure
from evalfleet.execution.adapter_context import LineContext
from evalfleet.execution.blame import blame
from evalfleet.execution.seen_calls import NOTHING_SEEN, metered
from evalfleet.execution.signals import AttemptEnded, BodyEnd
from evalfleet.execution.state import LOOK_AGAIN, TIMER_SLACK, AttemptState
from evalfleet.execution.turn_check import checked_turn, without_invalid_state
from evalfleet.model.changes import turn_label
from evalfleet.model.coverage import Coverage, unavailable
from evalfleet.model.events import InputRequested, Message, Role
from evalfleet.model.turn import Turn, TurnInput, TurnRecord, TurnStatus
from evalfleet.ports import Adapter, Session
from evalfleet.redact import Redactor
from evalfleet.redacted_values import redacted

_NOTHING = unavailable("the adapter declared no coverage")
_UNDECLARED = Coverage(
    events=_NOTHING, actions=_NOTHING, messages=_NOTHING, usage=_NOTHING, status=_NOTHING, data=_NOTHING
)


@dataclass(slots=True)
class _Flight:
    """A send under way."""

    sequence: int
    input: TurnInput
    started_at: float
    began: float
    task: asyncio.Task[Any] | None
    cancels: int


class SessionLine:
    """One conversation line of an attempt. `number` counts from 0; line 0 is the one `t` itself speaks on."""

    def __init__(self, state: AttemptState, number: int) -> None:
        self.number = number
        self.turns: list[TurnRecord] = []
        self._state = state
        self._context = LineContext(state)
        self._session: Session | None = None
        self._flight: _Flight | None = None
        self._failure: AttemptFailure | None = None
        self._declared = _UNDECLARED
        self._over = False

    @property
    def started(self) -> bool:
        """Whether anything was ever sent."""
        return bool(self.turns) or self._flight is not None

    @property
    def in_flight(self) -> bool:
        return self._flight is not None

    @property
    def pending_requests(self) -> tuple[InputRequested, ...]:
        """The questions the last turn left open."""
        if not self.turns or self.turns[-1].status is not TurnStatus.WAITING:
            return ()
        return tuple(event for event in self.turns[-1].events if isinstance(event, InputRequested))

    async def send(self, given: TurnInput) -> TurnRecord:
        """Send one input and record what came back; in a workdir that is followed, one send at a time.

        Raises AttemptFailure when no trustworthy turn did; the line is then failed for ever. Raises
        AuthoringError when a send of this line is still in flight.
        """
        await self._cleared()
        watch = self._state.watch
        if watch is None:
            return await self._send(given)
        async with watch.turn():
            await self._cleared()  # much may have happened while another send had the workdir
            return await self._send(given)

    async def _cleared(self) -> None:
        """Wait while sends are held back; raises when there may be none."""
        if self._state.control is not None and self._state.control.held is not None:
            await self._state.clearance()
        self._state.check_open("a send")
        if self._flight is not None:
            raise AuthoringError(
                "a send on this session is still in flight; await it first, or use t.new_session()",
                code="SEND_IN_FLIGHT",
            )
        if self._failure is not None:
            raise AttemptFailure(self._failure.kind, self._failure.code, str(self._failure))

    async def _send(self, given: TurnInput) -> TurnRecord:
        clock = self._state.services.clock
        task = asyncio.current_task()
        cancels = 0 if task is None else task.cancelling()
        flight = _Flight(self._state.next_sequence(), given, clock.wall(), clock.monotonic(), task, cancels)
        if self._context.wait is not None:
            self._context.wait.reset()
        self._flight = flight
        self._context.place = (self.number, len(self.turns), flight.sequence)
        if self._state.seen is not None:
            self._state.seen.send_began()
        watch = self._watch(flight)
        try:
            turn = await self._exchange(given)
            if watch is not None and watch.expired:
                raise asyncio.CancelledError  # the adapter swallowed it and answered too late
        except BaseException as error:
            self._land_failed(flight, error, watch)
            raise
        finally:
            if watch is not None:
                watch.stop()
        return self._land(flight, turn)

    def abort(self, failure: str) -> None:
        """Record the send under way, if any, as failed: the attempt does not wait for it any more."""
        flight = self._flight
        if flight is not None:
            self._record(flight, Turn(status=TurnStatus.FAILED), self._declared, self._redactor.safe(failure))
            if flight.task is not None:
                flight.task.cancel()

    async def close(self) -> None:
        """Close the adapter's session, if it was opened."""
        self._over = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _exchange(self, given: TurnInput) -> Turn:
        session = self._session
        if session is None:
            adapter = self._state.job.adapter
            self._declared = _declaration(adapter.coverage)
            session = await self._open(adapter)
            if self._over:  # the adapter ignored its cancellation: nobody else would close this session
                await session.close()
                raise AttemptEnded
            self._session = session
        if self._state.watch is not None:  # after `open`: what an adapter lays out for its agent is not the agent's
            await self._state.watch.opened(turn_label(self.number, len(self.turns)))
        turn, problem = without_invalid_state(await session.send(given, self._context))
        if problem is not None:
            self._state.note(f"this conversation can't be continued after a loss: {problem}")
        return checked_turn(turn)

    async def _open(self, adapter: Adapter) -> Session:
        return await adapter.open(self._context)

    def _watch(self, flight: _Flight) -> _TurnWatch | None:
        seconds = self._state.job.turn_timeout
        if seconds is None:
            self._context.turn_ends_at = None
            return None
        self._context.turn_ends_at = flight.began + seconds
        failure = AttemptFailure(FailureKind.DEADLINE, "TURN_TIMEOUT", f"the turn took longer than {seconds:g} s")
        return _TurnWatch(self._context, failure, flight, self._state)

    def _land(self, flight: _Flight, turn: Turn) -> TurnRecord:
        if self._flight is not flight:
            raise AttemptEnded
        coverage = self._declared
        if turn.coverage:
            coverage = coverage.downgrade(turn.coverage)
            for channel, entry in turn.coverage.items():
                if coverage.entry(channel).state is not entry.state:
                    self._state.note(f"turn {flight.sequence}: an upgrade of {channel} coverage was clamped")
        return self._record(flight, turn, coverage, None)

    def _land_failed(self, flight: _Flight, error: BaseException, watch: _TurnWatch | None) -> None:
        """Record the failed send, and raise what it means when that is not `error` itself."""
        if isinstance(error, (KeyboardInterrupt, GeneratorExit)):
            return
        if self._flight is not flight:
            if isinstance(error, asyncio.CancelledError):
                return
            raise AttemptEnded from None
        failure = self._meaning(flight, error, watch)
        self._failure = failure or AttemptFailure(
            FailureKind.AUTHORING, "SEND_CANCELLED", "a send of this session was cancelled; it can not go on"
        )
        turn = Turn(status=TurnStatus.FAILED)
        if isinstance(error, SendFailure):
            self._state.learn(error)
            turn = _salvaged(error.partial) or turn
        text = self._state.broken_off or f"{self._failure.code}: {self._failure}"
        self._record(flight, turn, self._declared, self._redactor.safe(text))
        if failure is None:
            return
        self._state.fail(failure, None if isinstance(error, asyncio.CancelledError) else error)
        if failure is not error:
            raise failure from error

    def _meaning(self, flight: _Flight, error: BaseException, watch: _TurnWatch | None) -> AttemptFailure | None:
        """What `error` says about the attempt; None when the send was only broken off from outside."""
        if isinstance(error, BodyEnd) or self._state.broken_off is not None:
            return None
        if watch is not None and watch.expired and watch.absorbs():
            return watch.failure
        if isinstance(error, asyncio.CancelledError):
            if flight.task is not None and flight.task.cancelling() > flight.cancels:
                return None
            return AttemptFailure(FailureKind.ADAPTER, "ADAPTER_CANCELLED", "the adapter cancelled its own send")
        if isinstance(error, SendFailure) and error.kind is FailureKind.DEADLINE and self._context.is_due:
            return self._state.out_of_time() if watch is None or self._state.is_due else watch.failure
        return blame(error, FailureKind.ADAPTER, "SESSION_OPEN_FAILED" if self._session is None else "ADAPTER_RAISED")

    @property
    def _redactor(self) -> Redactor:
        return self._state.secrets.redactor

    def _as_kept(self, given: TurnInput) -> TurnInput:
        """An input as the record of its turn has it."""
        return redacted(given, self._redactor)

    def _record(self, flight: _Flight, turn: Turn, coverage: Coverage, failure: str | None) -> TurnRecord:
        self._flight = None
        now = self._state.services.clock.monotonic()
        waited = self._context.waited(now)
        seen = NOTHING_SEEN if self._state.seen is None else self._state.seen.send_ended()
        usage, coverage = metered(seen, turn.usage, coverage)
        record = TurnRecord(
            session=self.number,
            index=len(self.turns),
            sequence=flight.sequence,
            input=flight.input,
            status=turn.status,
            events=(Message(Role.USER, flight.input.text), *turn.all_events(), *seen.events),
            data=turn.data,
            usage=usage,
            coverage=coverage,
            started_at=flight.started_at,
            duration=now - flight.began - waited,
            waited=waited,
            failure=failure,
            observation=turn.observation,
            session_state=turn.session_state,
            stop=turn.stop,
        )
        self.turns.append(record)
        self._state.turns.append(record)
        return record


async def close_lines(state: AttemptState) -> None:
    """Close the sessions of all lines, each whatever becomes of the others. Raises the first failure."""
    if len(state.lines) == 1:
        await state.lines[0].close()
        return
    ends = await asyncio.gather(*(line.close() for line in state.lines), return_exceptions=True)
    for end in ends:
        if end is not None:
            raise end


class _TurnWatch:
    """Cancels a send at the turn's deadline, and gives the whole attempt up when it ignores that."""

    __slots__ = ("_context", "_flight", "_handle", "_state", "expired", "failure")

    def __init__(self, context: LineContext, failure: AttemptFailure, flight: _Flight, state: AttemptState) -> None:
        self.expired = False
        self.failure = failure
        self._context = context
        self._flight = flight
        self._state = state
        self._handle = asyncio.get_running_loop().call_later(context.turn_left or 0.0, self._expire)

    def absorbs(self) -> bool:
        """Take the deadline's own cancellation back; False when the task was also cancelled by somebody else."""
        task = self._flight.task
        return task is not None and task.uncancel() <= self._flight.cancels

    def stop(self) -> None:
        self._handle.cancel()

    def _expire(self) -> None:
        left = self._context.turn_left
        if left is not None and left > TIMER_SLACK:  # it waited meanwhile, and may still
            self._handle = asyncio.get_running_loop().call_later(max(left, LOOK_AGAIN), self._expire)
            return
        self.expired = True
        grace = self._state.services.patience.grace
        self._handle = asyncio.get_running_loop().call_later(grace, self._give_up)
        if self._flight.task is not None:
            self._flight.task.cancel()

    def _give_up(self) -> None:
        if self._state.on_stuck is not None:
            self._state.on_stuck(self.failure)


def _declaration(coverage: object) -> Coverage:
    if type(coverage) is not Coverage:
        raise SendFailure(f"the adapter declares no Coverage but a {type(coverage).__name__}", code="NO_COVERAGE")
    return coverage


def _salvaged(partial: object) -> Turn | None:
    """What came back before a send failed: its events and usage are evidence, but it is no turn."""
    if partial is None:
        return None
    try:
        turn = checked_turn(partial)
    except SendFailure:
        return None
    return Turn(status=TurnStatus.FAILED, events=turn.all_events(), usage=turn.usage)
