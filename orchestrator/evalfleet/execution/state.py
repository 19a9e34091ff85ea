"""What one attempt has gathered so far, and whether its author may still add to it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from evalfleet.errors import Acceptance, AttemptFailure, AuthoringError, FailureKind, SendFailure, describe
from evalfleet.execution.job import AttemptControl, AttemptJob, AttemptServices
from evalfleet.execution.known_secrets import KnownSecrets
from evalfleet.execution.model_calls import FREE_CALLS
from evalfleet.execution.paid_calls import PaidCalls
from evalfleet.execution.signals import AttemptEnded, BodyEnd
from evalfleet.execution.tracebacks import Place, caller, place_text, traceback_text
from evalfleet.execution.waiting import Stopwatch, WaitingCalls, Waits
from evalfleet.model.changes import Attribution
from evalfleet.model.judge import JudgeCall
from evalfleet.model.tool import Tool
from evalfleet.model.turn import TurnRecord
from evalfleet.model.usage import Usage
from evalfleet.ports import ModelCalls
from evalfleet.redact import DIAGNOSTIC_LIMIT
from evalfleet.sandbox_ports import App, OpenGateway, Sandbox

if TYPE_CHECKING:
    from evalfleet.execution.attribution import WorkdirWatch
    from evalfleet.execution.outlets import SpanOutlet
    from evalfleet.execution.probing import SandboxProbe
    from evalfleet.execution.sandbox_stay import SandboxStay
    from evalfleet.execution.seen_calls import SeenCalls
    from evalfleet.execution.sessions import SessionLine
    from evalfleet.execution.threads import Bridge

C = TypeVar("C", bound=Coroutine[Any, Any, Any])

#: Seconds by which two timers set for the same moment may differ.
TIMER_SLACK = 0.05

#: Seconds until a deadline that stands still is looked at again, at least.
LOOK_AGAIN = 0.1

#: Seconds to the next attempt that an adapter may ask for: a case that waits longer looks like one that hangs.
WAIT_LIMIT = 86_400.0

#: Diagnostic lines kept of one attempt; what comes after is counted.
DIAGNOSTICS_LIMIT = 1_000

#: Failures that a sandbox which went away explains.
_OF_A_LOST_SANDBOX = frozenset({FailureKind.AGENT, FailureKind.ADAPTER, FailureKind.AUTHORING})


class AttemptState:
    """The attempt's evidence while it grows.

    The body may add to it until it ends: by returning (`end`), by a signal of its own (`latch`), or because
    the attempt is broken off (`break_off`). The first failure is the attempt's failure, whoever catches it.
    """

    def __init__(self, job: AttemptJob, services: AttemptServices) -> None:
        self.job = job
        self.services = services
        self.secrets = KnownSecrets(services.secrets, services.hidden)
        self.stay: SandboxStay | None = None
        self.probe: SandboxProbe | None = None
        self.gateway: OpenGateway | None = None
        self.outlet: SpanOutlet | None = None
        self.seen: SeenCalls | None = None
        self.routes: dict[str, App] = {}
        self.watch: WorkdirWatch | None = None
        self.bridge: Bridge | None = None
        self.lines: list[SessionLine] = []
        self.turns: list[TurnRecord] = []
        self.judge_calls: list[JudgeCall] = []
        self.tools: tuple[Tool, ...] = ()
        self.records: Callable[[], Mapping[str, Mapping[str, Any]]] | None = None
        self.attachments: dict[str, Any] = {} if job.recorded is None else dict(job.recorded.attachments)
        self.failure: AttemptFailure | None = None
        self.cleanup_failure: AttemptFailure | None = None
        self.retry_after: float | None = None
        self.skip_reason: str | None = None
        self.broken_off: str | None = None
        self.deadline_at: float | None = None
        self.on_stuck: Callable[[AttemptFailure], None] | None = None
        self.on_lost: Callable[[AttemptFailure], None] | None = None
        self.control: AttemptControl | None = None
        self._waits: Waits | None = None
        self._sends = 0
        self._rejected = 0
        self._promised: list[tuple[Coroutine[Any, Any, Any], Place]] = []
        self._signal: BodyEnd | None = None
        self._closed = False
        self._sealed = False
        self._diagnostics: list[str] = []
        self._unkept = 0

    def gates(self, line: Stopwatch | None = None) -> ModelCalls:
        """What the attempt's model calls pass, or those of one of its lines, which waits by a watch of its own."""
        governor = self.services.governor
        if self.job.purse is not None and self._waits is None:
            governor = PaidCalls(self.job.purse, governor, self.services.clock)
        if governor is not None and self._waits is None:  # most attempts make no calls of ours
            self._waits = Waits(self.services.clock, governor, self._sends_under_way, self.clearance, self.note_once)
            self._waits.lane = None if self.control is None else self.control.lane
            self._waits.paced = self.services.governor is not None
        return FREE_CALLS if self._waits is None else WaitingCalls(self._waits, line)

    @property
    def calls(self) -> ModelCalls:
        """What admits the model calls of the attempt that are no line's."""
        return self.gates()

    @property
    def waited(self) -> float:
        """Seconds that model calls have waited until now, which count for no deadline and no duration."""
        return 0.0 if self._waits is None else self._waits.seconds

    async def open_outlet(self) -> None:
        """Have a place where the agent may send its spans, where the run takes any."""
        if self.services.spans is not None and self.job.recorded is None:
            secrets = self.secrets  # which is known for longer than the attempt
            self.outlet = await self.services.spans.open(self.job, lambda: secrets.redactor)

    def end_outlet(self) -> None:
        if self.outlet is not None:
            self.outlet.end()

    def end_calls(self) -> None:
        """End all model calls whose end nobody told."""
        if self._waits is not None:
            self._waits.close()

    def _sends_under_way(self) -> int:
        return sum(line.in_flight for line in self.lines)

    @property
    def sandbox(self) -> Sandbox | None:
        """The attempt's sandbox while it has one."""
        return None if self.stay is None else self.stay.sandbox

    @property
    def attribution(self) -> Attribution | None:
        """Who changed what in the workdir so far, or on the record; None when nobody followed it."""
        if self.job.recorded is not None:
            return self.job.recorded.attribution
        return None if self.watch is None else self.watch.record

    # --- may the author go on? --------------------------------------------------------------------------------

    def check_open(self, what: str) -> None:
        """Raise when the body may not do `what` any more: the signal that ended it, or an AuthoringError."""
        if self.broken_off is not None:
            raise AttemptEnded
        if self._closed:
            raise self.refuse(f"{what} after the test body has ended", "AFTER_THE_END")
        if self._signal is not None:
            raise type(self._signal)

    async def clearance(self) -> None:
        """Wait while new sends are held back."""
        while self.control is not None and (held := self.control.held) is not None:
            await held.wait()

    def promise(self, coroutine: C, depth: int = 2) -> C:
        """Watch a coroutine handed to the author, who wrote its call `depth` calls further out.

        One that was never awaited must not look like an agent that did nothing.
        """
        self._promised.append((coroutine, caller(depth)))
        return coroutine

    def forsaken(self) -> list[str]:
        """The places of calls that nobody awaited; they can't be awaited any more."""
        places: list[str] = []
        for coroutine, place in self._promised:
            if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
                coroutine.close()
                places.append(place_text(place, self.job.arm.project))
        return places

    @property
    def signal(self) -> BodyEnd | None:
        """The signal by which the body ended itself, which nobody can take back."""
        return self._signal

    def latch(self, signal: BodyEnd) -> BodyEnd:
        """Let `signal` end the body, now and at every later attempt to go on."""
        self._signal = self._signal or signal
        return self._signal

    def end(self, unfinished: str) -> None:
        """The body has ended: nothing is added any more; sends under way are recorded as failed, `unfinished`."""
        if self._closed:
            return
        self._closed = True
        if self.bridge is not None:
            self.bridge.close()
        for line in self.lines:
            line.abort(unfinished)

    def break_off(self, reason: str) -> None:
        """Something from outside ends the attempt: nothing is added any more, and whoever tries is told to end."""
        self.broken_off = self.broken_off or reason

    def seal(self) -> None:
        """Nothing changes any more. Lets go of the lines, so that no cycle keeps the evidence in memory."""
        self._closed = self._sealed = True
        self.lines = []
        self.on_stuck = self.on_lost = None

    # --- facts ------------------------------------------------------------------------------------------------

    def next_sequence(self) -> int:
        self._sends += 1
        return self._sends - 1

    @property
    def may_have_written(self) -> bool:
        """Whether an external effect may have happened: a send was started that was not provably refused."""
        return self.job.case.external and self._sends > self._rejected

    def estimate(self, usage: Usage | None, model: str | None = None) -> float | None:
        """The US dollars of `usage` of the arm's or another model by the price list; None when either is unknown."""
        price = self.services.price
        if price is None or usage is None:
            return None
        try:
            return price(model or self.job.arm.model, usage)
        except Exception as error:  # noqa: BLE001 - a price list that breaks costs the estimate, not the attempt
            self.note(f"no estimate of the cost: {type(error).__name__}: {describe(error)}")
            return None

    def remaining(self) -> float | None:
        """Seconds until the attempt's deadline, never below 0; None without one. What model calls wait moves it."""
        if self.deadline_at is None:
            return None
        return max(0.0, self.deadline_at + self.waited - self.services.clock.monotonic())

    @property
    def is_due(self) -> bool:
        """Whether the attempt's deadline is reached, as near as timers that were set for it can tell."""
        left = self.remaining()
        return left is not None and left < TIMER_SLACK

    def out_of_time(self) -> AttemptFailure:
        """The failure of an attempt that reached its deadline."""
        message = f"the attempt took longer than {self.job.attempt_timeout:g} s"
        return AttemptFailure(FailureKind.DEADLINE, "ATTEMPT_TIMEOUT", message)

    def fail(self, failure: AttemptFailure, cause: BaseException | None = None) -> AttemptFailure:
        """Make `failure` the attempt's failure unless an earlier one is; keep the traceback of its cause."""
        if self.failure is None and not self._sealed:
            self.failure = failure
        if cause is not None:
            self.note_error(cause)
        return failure

    def lose_sandbox(self, failure: AttemptFailure) -> None:
        """The sandbox went away: that is why the attempt failed, whatever its agent and its author made of it."""
        if not self._sealed and (self.failure is None or self.failure.kind in _OF_A_LOST_SANDBOX):
            self.failure = failure

    def fail_cleanup(self, failure: AttemptFailure, cause: BaseException | None = None) -> None:
        """Keep the first failure of cleaning up, beside the attempt's own."""
        self.cleanup_failure = self.cleanup_failure or failure
        if cause is not None:
            self.note_error(cause)

    def note_error(self, error: BaseException) -> None:
        """Keep the traceback of an error as a diagnostic."""
        self.note(traceback_text(error, self.job.arm.project))

    def refuse(self, message: str, code: str) -> AuthoringError:
        """The error for a misuse of the author's API. The attempt is errored by it even when somebody catches it."""
        error = AuthoringError(message, code)
        self.fail(AttemptFailure(FailureKind.AUTHORING, code, message))
        return error

    def learn(self, failure: SendFailure) -> None:
        """Keep what a failed send says about repeating it."""
        if failure.acceptance is Acceptance.REJECTED:
            self._rejected += 1
        after = failure.retry_after
        if type(after) in (int, float) and 0 <= cast("float", after) < float("inf"):
            self.retry_after = float(min(cast("float", after), WAIT_LIMIT))

    def note(self, text: str) -> None:
        """Keep a diagnostic, redacted and shortened. Never evidence, never in a report."""
        if self._sealed:
            return
        if len(self._diagnostics) < DIAGNOSTICS_LIMIT:
            self._diagnostics.append(self.secrets.redactor.safe(text, DIAGNOSTIC_LIMIT))
        else:
            self._unkept += 1

    def note_once(self, text: str) -> None:
        """As `note`, unless it is kept already."""
        if self.secrets.redactor.safe(text, DIAGNOSTIC_LIMIT) not in self._diagnostics:
            self.note(text)

    def diagnostics(self) -> tuple[str, ...]:
        """What was noted. Secrets that were resolved only later are replaced here too."""
        lines = tuple(self.secrets.redactor.safe(text, DIAGNOSTIC_LIMIT) for text in self._diagnostics)
        return (*lines, f"{self._unkept} more diagnostics were not kept") if self._unkept else lines
