"""Whose fault it was, as data: failure kinds, error classes and the one place that attributes."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evalfleet.model.turn import Turn


class FailureKind(StrEnum):
    """Who is to blame for an attempt that formed no verdict. Flat; drives retry and reports."""

    AGENT = "agent"
    ADAPTER = "adapter"
    PROVIDER = "provider"
    SANDBOX = "sandbox"
    GRADER = "grader"
    JUDGE = "judge"
    AUTHORING = "authoring"
    DEADLINE = "deadline"
    CANCELLED = "cancelled"
    WORKER = "worker"
    INFRASTRUCTURE = "infrastructure"


#: Errored by the agent's own doing: counts as not passed. Every other kind is *missing* (semantics D5).
AGENT_OWN_KINDS = frozenset({FailureKind.AGENT, FailureKind.DEADLINE})

#: Kinds an experiment may name in `retry.on`; judge and grader outages are retried by their own call.
RETRYABLE_KINDS = frozenset(FailureKind) - {FailureKind.JUDGE, FailureKind.GRADER, FailureKind.CANCELLED}


class EvalfleetError(Exception):
    """An error of evalfleet. The message defaults to the class's docstring."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or type(self).__name__).strip())


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong in a batch of definitions: where, what, and what to do about it.

    `line` and `column` count from 1; `field` is a dotted path (`arms.small.model`).
    """

    code: str
    message: str
    file: str | None = None
    line: int | None = None
    column: int | None = None
    field: str | None = None
    hint: str | None = None

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        head = f"{place}: " if place else ""
        field = f"{self.field}: " if self.field else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{head}{field}{self.message}{hint} [{self.code}]"


class DefinitionError(EvalfleetError):
    """The definitions are invalid. Everything wrong in a batch is reported together; exit code 2."""

    def __init__(self, code: str, problems: tuple[Problem, ...] | list[Problem]) -> None:
        self.code = code
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems) or code)


class ConfigurationError(EvalfleetError):
    """Something about this machine or this call is not usable; exit code 2."""


class StoreError(EvalfleetError):
    """The record store cannot be used; exit code 4."""


class InfrastructureError(EvalfleetError):
    """A service the run needs (Ray, a sandbox engine) cannot be used; exit code 4."""


class Fenced(StoreError):
    """A newer coordinator holds the run; this one may not write any more."""


class RunHeld(ConfigurationError):
    """Another coordinator works on the run; exit code 2."""


class ObserverFailed(EvalfleetError):
    """The observer of a run raised or took too long. What the run settled stays; exit code 4."""

    code = "EVALUATION_OBSERVER_FAILED"

    def __init__(self, message: str, *, run: str) -> None:
        self.run = run
        super().__init__(message)


class AuthoringError(EvalfleetError):
    """The eval itself is wrong: an unknown option, an assertion after the end, a misuse of a handle."""

    def __init__(self, message: str, code: str = "AUTHORING_ERROR") -> None:
        self.code = code
        super().__init__(message)


class AttemptFailure(EvalfleetError):
    """An attempt ended without a verdict, attributed once: kind, code and a message safe to show."""

    def __init__(self, kind: FailureKind, code: str, message: str) -> None:
        self.kind = kind
        self.code = code
        super().__init__(message)


class Acceptance(StrEnum):
    """What is known about a send that raised: decides whether it may be repeated."""

    REJECTED = "rejected"
    STARTED = "started"
    UNKNOWN = "unknown"


class SendFailure(EvalfleetError):
    """A send ended without a turn: transport broke, the process crashed, the provider refused.

    Raised by adapters; `retry_after` is in seconds. `partial` holds what came back until it failed: events stay
    as evidence and usage is paid, but it is no turn. The message must not hold secrets.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: FailureKind = FailureKind.ADAPTER,
        code: str = "SEND_FAILED",
        acceptance: Acceptance = Acceptance.UNKNOWN,
        retry_after: float | None = None,
        partial: Turn | None = None,
    ) -> None:
        self.kind = kind
        self.code = code
        self.acceptance = acceptance
        self.retry_after = retry_after
        self.partial = partial
        super().__init__(message)


class JudgeFailure(EvalfleetError):
    """A judge's model gave no answer. `code` is stable, `tries` counts requests sent, `status` is the last HTTP status.

    `latency` is in seconds for all tries together. The message must not hold secrets.
    """

    def __init__(self, code: str, message: str, *, tries: int = 0, status: int | None = None) -> None:
        self.code = code
        self.tries = tries
        self.status = status
        self.latency = 0.0
        super().__init__(message)


def attribute(error: Exception, kind: FailureKind, code: str) -> AttemptFailure:
    """The attempt failure that `error` means when it escapes from a stage blamed on `kind`."""
    if isinstance(error, AttemptFailure):
        return error
    if isinstance(error, SendFailure):
        return AttemptFailure(error.kind, error.code, str(error))
    if isinstance(error, AuthoringError):
        return AttemptFailure(FailureKind.AUTHORING, error.code, str(error))
    return AttemptFailure(kind, code, f"{type(error).__name__}: {describe(error)}")


def describe(error: BaseException) -> str:
    """The error's own text, never raising even when its `__str__` does."""
    try:
        return str(error)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - a broken __str__ must not hide the failure it describes
        return "<no message: its __str__ raised>"


@contextmanager
def boundary(kind: FailureKind, code: str) -> Generator[None, None, None]:
    """Attribute whatever escapes: typed failures pass through, anything else becomes `kind` and `code`."""
    try:
        yield
    except Exception as error:
        failure = attribute(error, kind, code)
        if failure is error:
            raise
        raise failure from error
