"""What an adapter and a Python agent see of the attempt: `ctx`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from evalfleet.errors import ConfigurationError
from evalfleet.execution.state import TIMER_SLACK, AttemptState
from evalfleet.execution.waiting import Stopwatch
from evalfleet.model.suite import DeclaredScenario
from evalfleet.model.tool import Tool
from evalfleet.ports import Clock, ModelCalls, Secrets
from evalfleet.sandbox_ports import Sandbox
from evalfleet.suites.matrix import step_of, thread_id, turn_id

S = TypeVar("S")


class LineState:
    """What one conversation line keeps between sends. Fresh for every session."""

    __slots__ = ("_id", "_values")

    def __init__(self) -> None:
        self._id: str | None = None
        self._values: dict[str, Any] = {}

    @property
    def id(self) -> str | None:
        return self._id

    def capture(self, session_id: str | None) -> None:
        """Keep the backend's session id: the first writer wins, None is ignored."""
        if self._id is None:
            self._id = session_id

    def get(self, key: str, kind: type[S]) -> S | None:
        """The value kept under `key`, None without one. Raises TypeError when it is not a `kind`."""
        value = self._values.get(key)
        if value is not None and not isinstance(value, kind):
            raise TypeError(f"session value {key!r} is a {type(value).__name__}, not a {kind.__name__}")
        return value

    def set(self, key: str, value: Any) -> None:
        self._values[key] = value


class LineContext:
    """The `AdapterContext` of one conversation line; `turn_ends_at`, `wait` and `place` are set for each send.

    `wait` is what the send has waited for its model calls, by which its deadline moves. `place` is where its turn
    stands: the line's number, the turn's index in it, its number in the attempt.
    """

    __slots__ = ("_calls", "_state", "place", "session", "turn_ends_at", "wait")

    def __init__(self, state: AttemptState) -> None:
        self._state = state
        self.session = LineState()
        self.turn_ends_at: float | None = None
        self.wait: Stopwatch | None = None
        self._calls: ModelCalls | None = None
        self.place: tuple[int, int, int] = (0, 0, 0)

    @property
    def deadline(self) -> float | None:
        """Seconds left for this send, by the turn's and the attempt's limit; None without either."""
        turn, attempt = self.turn_left, self._state.remaining()
        if turn is None or attempt is None:
            return attempt if turn is None else turn
        return min(turn, attempt)

    @property
    def turn_left(self) -> float | None:
        """Seconds until the turn's own deadline, never below 0; None without one."""
        if self.turn_ends_at is None:
            return None
        now = self.clock.monotonic()
        return max(0.0, self.turn_ends_at + self.waited(now) - now)

    def waited(self, now: float) -> float:
        """Seconds that the send's model calls have waited until `now`."""
        return 0.0 if self.wait is None else self.wait.seconds(now)

    @property
    def calls(self) -> ModelCalls:
        if self._calls is None:
            self.wait = Stopwatch()
            self._calls = self._state.gates(self.wait)
        return self._calls

    @property
    def is_due(self) -> bool:
        """Whether the deadline is reached, as near as timers that were set for it can tell."""
        left = self.deadline
        return left is not None and left < TIMER_SLACK

    @property
    def cancelled(self) -> bool:
        return self._state.broken_off is not None

    @property
    def secrets(self) -> Secrets:
        return self._state.secrets

    @property
    def sandbox(self) -> Sandbox:
        if self._state.sandbox is None:
            raise ConfigurationError("this attempt has no sandbox: give the arm or the eval a `sandbox`")
        return self._state.sandbox

    @property
    def tools(self) -> Sequence[Tool]:
        return self._state.tools

    @property
    def model(self) -> str | None:
        return self._state.job.arm.model

    @property
    def flags(self) -> Mapping[str, Any]:
        return self._state.job.arm.flags

    @property
    def arm(self) -> str:
        return self._state.job.arm.name

    @property
    def case(self) -> str:
        return self._state.job.case.eval_id

    @property
    def attempt(self) -> int:
        return self._state.job.attempt

    @property
    def thread_id(self) -> str:
        job = self._state.job
        return thread_id(job.run, job.begun_by or job.attempt)

    @property
    def step_id(self) -> str:
        body = self._state.job.definition.body
        steps = body.scenario.steps if isinstance(body, DeclaredScenario) else ()
        return step_of([step.id for step in steps], *self.place)

    @property
    def turn_id(self) -> str:
        return turn_id(self.thread_id, self.step_id)

    @property
    def repetition(self) -> int:
        return self._state.job.case.repetition

    @property
    def variants(self) -> Mapping[str, str]:
        return self._state.job.case.variants

    @property
    def seed(self) -> int:
        return self._state.job.seed

    @property
    def clock(self) -> Clock:
        return self._state.services.clock

    @property
    def traceparent(self) -> str | None:
        return None if self._state.outlet is None else self._state.outlet.traceparent

    def otel_env(self) -> Mapping[str, str]:
        return {} if self._state.outlet is None else self._state.outlet.environment()

    def log(self, message: str) -> None:
        self._state.note(f"{message}")
