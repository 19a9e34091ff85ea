"""The seams of the engine as Protocols: everything that does I/O is reached through one of these."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from evalfleet.errors import AttemptFailure
from evalfleet.model.coverage import Coverage
from evalfleet.model.events import ModelRequest, ModelResponse
from evalfleet.model.judge import JudgeReply, JudgeRequest
from evalfleet.model.model_call import CallEnd, ModelCall
from evalfleet.model.model_route import ModelUpstream
from evalfleet.model.money import Spending
from evalfleet.model.record import Claim, CommitBatch, Committed, PendingCase
from evalfleet.model.turn import Turn, TurnInput
from evalfleet.sandbox_ports import Sandbox

if TYPE_CHECKING:
    # Only named in annotations: a coordinator's process starts without pydantic.
    from pydantic import BaseModel

    from evalfleet.model.tool import Tool

S = TypeVar("S")


class Clock(Protocol):
    """Time, injected. `wall` is seconds since the epoch, `monotonic` seconds that never step back."""

    def wall(self) -> float: ...

    def monotonic(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class Random(Protocol):
    """Randomness, injected."""

    def bits(self, count: int) -> int: ...

    def uniform(self, low: float, high: float) -> float: ...


class Secrets(Protocol):
    """Resolves the *name* of a secret; values are never recorded, logged or sent as an argument."""

    def resolve(self, name: str) -> str:
        """The value of the secret. Raises ConfigurationError naming it when it is not set."""
        ...


# --- model calls ----------------------------------------------------------------------------------------------


class AdmittedCall(Protocol):
    """A call that may be made now."""

    def end(self, end: CallEnd) -> None:
        """Say how it ended; the first word counts. One that is never ended holds its place as long as its attempt."""
        ...


class ModelCalls(Protocol):
    """Who lets model calls happen: a governor of rates, the purse of a budget, or both in a row."""

    @property
    def governed(self) -> bool:
        """Whether `admit` waits as long as the provider asks after a refusal, so that who repeats one need not."""
        ...

    async def admit(self, call: ModelCall) -> AdmittedCall:
        """Wait until `call` may be made; one call of this for each request, repeated ones too.

        Raises AttemptFailure when it may never be.
        """
        ...


class Governor(Protocol):
    """Who rations the model calls of one worker. `trouble` says what keeps it from doing so well, if anything does."""

    @property
    def trouble(self) -> str | None: ...

    def at_once(self, call: ModelCall) -> AdmittedCall | None:
        """The call when it may be made without waiting."""
        ...

    async def admit(self, call: ModelCall, ready: Callable[[], bool]) -> AdmittedCall:
        """Wait until the call may be made; `ready` is asked last, and is to be taken at its word when it agrees."""
        ...


# --- adapters -------------------------------------------------------------------------------------------------


class SessionState(Protocol):
    """What one conversation line keeps between sends."""

    @property
    def id(self) -> str | None: ...

    def capture(self, session_id: str | None) -> None:
        """Keep the backend's session id; the first writer wins, None is ignored."""
        ...

    def get(self, key: str, kind: type[S]) -> S | None: ...

    def set(self, key: str, value: Any) -> None: ...


class AdapterContext(Protocol):
    """What an adapter and a Python agent get beside the turn.

    `deadline` is seconds left for this send; `cancelled` becomes true when the attempt should end;
    `seed` is stable per case and repetition. `thread_id` names the conversation as reports do: new in each attempt, but
    kept by one that goes on with it. `turn_id` names this send in it and is the same when it is repeated after a loss,
    `step_id` the step of a suite, else the turn's place.
    """

    @property
    def session(self) -> SessionState: ...
    @property
    def deadline(self) -> float | None: ...
    @property
    def cancelled(self) -> bool: ...
    @property
    def secrets(self) -> Secrets: ...
    @property
    def calls(self) -> ModelCalls:
        """Where each request to a model is admitted, before it is sent."""
        ...

    @property
    def sandbox(self) -> Sandbox: ...
    @property
    def tools(self) -> Sequence[Tool]:
        """Tools that the eval gives to the agent, beside the arm's own."""
        ...

    @property
    def model(self) -> str | None: ...
    @property
    def flags(self) -> Mapping[str, Any]: ...
    @property
    def arm(self) -> str: ...
    @property
    def case(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def thread_id(self) -> str: ...
    @property
    def step_id(self) -> str: ...
    @property
    def turn_id(self) -> str: ...
    @property
    def repetition(self) -> int: ...
    @property
    def variants(self) -> Mapping[str, str]: ...
    @property
    def seed(self) -> int: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def traceparent(self) -> str | None:
        """The W3C header that makes what the agent sends by OTLP a part of the attempt's trace; None without."""
        ...

    def otel_env(self) -> Mapping[str, str]:
        """Where an agent on this machine sends spans, as OpenTelemetry's SDKs read it; empty where none are taken.

        Commands in a sandbox find their own in their environment.
        """
        ...

    def log(self, message: str) -> None:
        """Keep a diagnostic line with the attempt."""
        ...


class Session(Protocol):
    """One conversation line with the agent under test."""

    async def send(self, turn: TurnInput, ctx: AdapterContext) -> Turn:
        """Send one input. Raises SendFailure when no trustworthy turn came back."""
        ...

    async def close(self) -> None: ...


class Adapter(Protocol):
    """Translates one agent's protocol into turns; owns sessions; judges nothing."""

    @property
    def coverage(self) -> Coverage: ...

    @property
    def sandboxed(self) -> bool: ...

    async def open(self, ctx: AdapterContext) -> Session:
        """Open a fresh conversation line that shares nothing with any other."""
        ...

    async def close(self) -> None:
        """Release what all sessions shared (connection pools)."""
        ...


@runtime_checkable
class Resumes(Protocol):
    """What an adapter has beside `Adapter` when it can open a session again, in another process too."""

    async def reopen(self, state: Mapping[str, Any], ctx: AdapterContext) -> Session:
        """The session whose last turn left `state` as its `session_state`."""
        ...


@runtime_checkable
class AsksByGateway(Protocol):
    """What an adapter has beside `Adapter` when its agent, in a sandbox, asks its model by the gateway."""

    @property
    def upstream(self) -> ModelUpstream:
        """Where the route `/model/<arm>` leads."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDesk:
    """What the route of an attempt's model has of its attempt.

    `note` keeps a diagnostic; `fail` is told why a call may never be made, which fails the attempt; `observe` is told
    of each call that is made, and of its end.
    """

    secrets: Secrets
    calls: ModelCalls
    note: Callable[[str], None]
    fail: Callable[[AttemptFailure], object]
    observe: Callable[[ModelRequest | ModelResponse], None]
    clock: Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmSettings:
    """One arm as its adapter sees it. `options` is an instance of the factory's options model."""

    name: str
    model: str | None
    flags: Mapping[str, Any]
    options: BaseModel
    project: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentIdentity:
    """What identifies the agent itself. Without `sources` and `digest` the arm is never carried.

    `sources` are Python files whose import closure is hashed at planning; `digest` any stable text beside it;
    `reason` says why nothing identifies the agent.
    """

    version: str
    sources: tuple[Path, ...] = ()
    digest: str | None = None
    reason: str | None = None


@runtime_checkable
class AdapterFactory(Protocol):
    """What the entry point `evalfleet.adapters` names: validates an arm's options and builds its adapter."""

    @property
    def name(self) -> str: ...

    @property
    def options(self) -> type[BaseModel]:
        """A strict pydantic model (extra fields forbidden) of the arm's own fields in experiment.yaml."""
        ...

    def identify(self, arm: ArmSettings) -> AgentIdentity:
        """What identifies the agent, without calling it."""
        ...

    def build(self, arm: ArmSettings) -> Adapter:
        """The adapter. Raises ConfigurationError when the arm can't be used as configured."""
        ...


def shows_calls(factory: AdapterFactory, options: BaseModel) -> bool:
    """Whether every model call of an arm with these options is admitted before it is made.

    A factory says so by `shows_calls = True`, or by a method of that name that takes the options.
    """
    told: Any = getattr(factory, "shows_calls", False)
    return told(options) is True if callable(told) else told is True


# --- judges ---------------------------------------------------------------------------------------------------


class JudgeModel(Protocol):
    """A model that judges: one call, with its own retries, within the request's timeout."""

    async def ask(self, request: JudgeRequest, key: str | None, calls: ModelCalls | None = None) -> JudgeReply:
        """Raises JudgeFailure when no answer came. Each request of it is admitted by `calls` before it is sent."""
        ...

    async def close(self) -> None: ...


class JudgeCache(Protocol):
    """Replies that were given before."""

    async def find(self, request: str, repetition: int, vote: int) -> JudgeReply | None:
        """The reply to this draw of a request, in any run; None when there is none. Raises StoreError."""
        ...

    async def close(self) -> None: ...


# --- the record store -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who claims a run: `id` is the coordinator's identity, stable over its restarts; the rest is for people."""

    id: str
    host: str
    pid: int


class Recorder(Protocol):
    """The coordinator's side of the record store, for one run."""

    async def claim(self, holder: Holder, *, takeover: bool, steal: bool = False) -> Claim:
        """Raise the epoch and hold the run. Raises RunHeld naming the holder, StoreError when unreachable."""
        ...

    async def commit(self, batch: CommitBatch) -> Committed:
        """Write one batch under the claimed epoch. Raises Fenced, or StoreError when the store can't be reached."""
        ...

    async def page(self, after: int, limit: int) -> Sequence[PendingCase]:
        """Unsettled cases with an ordinal above `after`, in order, at most `limit`."""
        ...

    async def spending(self) -> Mapping[str, Spending]:
        """What each arm has spent by now, by its name; asked once after a claim, in a run that has a budget."""
        ...

    async def solved(self, cycle: int) -> Sequence[int]:
        """The pass-style cases that have passed, by ordinal modulo `cycle`; asked after a claim, with early exit."""
        ...

    async def beat(self, progress: Mapping[str, Any]) -> bool:
        """Renew the run's heartbeat and progress; False when the epoch is no longer ours."""
        ...

    async def cancel_requested(self) -> bool:
        """Whether someone asked for the run to be cancelled."""
        ...

    async def finish(self, status: str, reason: str | None) -> None:
        """Set the run's final status and release the hold. Raises Fenced."""
        ...

    async def close(self) -> None: ...


class ArtifactStore(Protocol):
    """Large bodies by content hash, below one prefix a run."""

    async def put(self, run: str, data: bytes) -> str:
        """Store `data` under its SHA-256 and return it; storing the same bytes twice is one object."""
        ...

    async def get(self, run: str, sha256: str) -> bytes:
        """The bytes, verified against their hash. Raises StoreError when absent or damaged."""
        ...

    async def delete_run(self, run: str) -> None: ...

    def list_run(self, run: str) -> AsyncIterator[str]: ...


Execute = Callable[..., Awaitable[Any]]
