"""An adapter's `ctx` without an engine: for adapter tests and the conformance suite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from evalfleet.clock import SystemClock
from evalfleet.errors import ConfigurationError
from evalfleet.model.model_call import CallEnd, ModelCall
from evalfleet.model.tool import Tool
from evalfleet.ports import AdmittedCall, Clock, ModelCalls, Secrets
from evalfleet.sandbox_ports import Sandbox

S = TypeVar("S")


class FakeSecrets:
    """Secrets from a mapping."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def resolve(self, name: str) -> str:
        """The value. Raises ConfigurationError naming the secret when it is not in the mapping."""
        if name not in self._values:
            raise ConfigurationError(f"the secret {name} is not set")
        return self._values[name]


class FakeSessionState:
    """What a conversation line keeps, in memory."""

    def __init__(self) -> None:
        self._id: str | None = None
        self._values: dict[str, Any] = {}

    @property
    def id(self) -> str | None:
        return self._id

    def capture(self, session_id: str | None) -> None:
        if self._id is None:
            self._id = session_id

    def get(self, key: str, kind: type[S]) -> S | None:
        value = self._values.get(key)
        if value is not None and not isinstance(value, kind):
            raise TypeError(f"session value {key!r} is a {type(value).__name__}, not a {kind.__name__}")
        return value

    def set(self, key: str, value: Any) -> None:
        self._values[key] = value


class FakeModelCalls:
    """Lets every call through; `made` holds each with its end, None while it runs. `governed` may be set."""

    def __init__(self) -> None:
        self.made: list[tuple[ModelCall, CallEnd | None]] = []
        self.governed = False

    async def admit(self, call: ModelCall) -> AdmittedCall:
        self.made.append((call, None))
        return _FakeCall(self.made, len(self.made) - 1)


class _FakeCall:
    def __init__(self, made: list[tuple[ModelCall, CallEnd | None]], index: int) -> None:
        self._made = made
        self._index = index

    def end(self, end: CallEnd) -> None:
        call, before = self._made[self._index]
        self._made[self._index] = (call, before or end)


class FakeContext:
    """One conversation line's `AdapterContext`. Every attribute may be set; `logged` keeps what was logged.

    `limit` is the time for all sends from now on, in seconds; `deadline` is what is left of it.
    """

    def __init__(self, *, limit: float | None = None, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or SystemClock()
        self.session = FakeSessionState()
        self.secrets: Secrets = FakeSecrets({})
        self.calls: ModelCalls = FakeModelCalls()
        self.model: str | None = None
        self.flags: Mapping[str, Any] = {}
        self.arm = "arm"
        self.case = "case"
        self.attempt = 0
        self.thread_id = "run:0"
        self.step_id = "turn/0/0"
        self.turn_id = "eval.0"
        self.repetition = 0
        self.variants: Mapping[str, str] = {}
        self.seed = 0
        self.cancelled = False
        self.tools: Sequence[Tool] = ()
        self.traceparent: str | None = None
        self.logged: list[str] = []
        self.given_sandbox: Sandbox | None = None
        self._ends_at: float | None = None
        self.limit(limit)

    def limit(self, seconds: float | None) -> None:
        """Give all sends from now on so many seconds together; None for no limit."""
        self._ends_at = None if seconds is None else self.clock.monotonic() + seconds

    @property
    def deadline(self) -> float | None:
        return None if self._ends_at is None else max(0.0, self._ends_at - self.clock.monotonic())

    @property
    def sandbox(self) -> Sandbox:
        if self.given_sandbox is None:
            raise ConfigurationError("this attempt has no sandbox")
        return self.given_sandbox

    def otel_env(self) -> Mapping[str, str]:
        return {}

    def log(self, message: str) -> None:
        self.logged.append(message)
