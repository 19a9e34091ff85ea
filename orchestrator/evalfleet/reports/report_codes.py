"""What failures are called in a report document. PURE."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from evalfleet.errors import FailureKind
from evalfleet.model.assertion import AssertionRow, Result

TIMEOUT = "EVALUATION_TIMEOUT"
CANCELLED = "EVALUATION_CANCELLED"
TRANSPORT_FAILED = "EVALUATION_TRANSPORT_FAILED"
SESSION_FAILED = "EVALUATION_SESSION_FAILED"
OBSERVATION_INVALID = "EVALUATION_OBSERVATION_INVALID"
CLEANUP_FAILED = "EVALUATION_CLEANUP_FAILED"
EVALUATOR_FAILED = "EVALUATOR_FAILED"
NOT_COVERED = "EVIDENCE_NOT_COVERED"
JUDGE_UNAVAILABLE = "JUDGE_UNAVAILABLE"

#: Fewer turns than steps, and nothing else says why.
INCOMPLETE = "EVALUATION_INCOMPLETE"

#: The code of an attempt whose session could not be opened: nothing was sent.
NOT_OPENED = "SESSION_OPEN_FAILED"

#: Our codes by what a report calls them; every other one is in a report what it is here.
_NAMED: Mapping[str, str] = MappingProxyType(
    {
        "SEND_FAILED": TRANSPORT_FAILED,
        "ADAPTER_RAISED": TRANSPORT_FAILED,
        "ADAPTER_CANCELLED": TRANSPORT_FAILED,
        NOT_OPENED: SESSION_FAILED,
        "INVALID_TURN": OBSERVATION_INVALID,
        "EVIDENCE_NOT_JSON": OBSERVATION_INVALID,
        "EVIDENCE_TOO_DEEP": "EVALUATION_DATA_LIMIT",
        "SESSION_CLOSE_FAILED": CLEANUP_FAILED,
        "SANDBOX_CLOSE_FAILED": CLEANUP_FAILED,
    }
)

_OF_KINDS: Mapping[FailureKind, str] = MappingProxyType(
    {FailureKind.DEADLINE: TIMEOUT, FailureKind.CANCELLED: CANCELLED}
)

#: What an attempt is errored with when an assertion could not be judged: the assertion says why.
OF_ASSERTIONS = frozenset({"ASSERTION_ERRORED", "ASSERTION_UNAVAILABLE"})

_BLOCKING = frozenset(
    {
        "EVALUATION_EARLY_COMPLETION",
        INCOMPLETE,
        "TURN_RESUME_NOT_SUPPORTED",
        "TURN_RESUME_UNSAFE",
        "EXTERNAL_WRITES_NOT_AUTHORIZED",
        "EXTERNAL_WRITE_RESUME_REQUIRES_RECONCILIATION",
        "EXTERNAL_WRITE_RETRY_REQUIRES_RECONCILIATION",
    }
)


def report_code(kind: FailureKind | None, code: str | None) -> str | None:
    """The code in a report of a failure of this kind and code; None without one."""
    named = _NAMED.get(code or "")
    if named is not None:
        return named
    return code if kind is None else _OF_KINDS.get(kind, code)


def is_blocking(code: str | None) -> bool:
    """Whether a case with this code is blocked: a rule kept it from its end, nothing broke."""
    return code in _BLOCKING


def assertion_code(row: AssertionRow) -> str | None:
    """Why an assertion could not be judged; None when it could."""
    if row.outcome.result is Result.ERRORED:
        return EVALUATOR_FAILED
    if row.outcome.result is Result.UNAVAILABLE:
        return JUDGE_UNAVAILABLE if row.name.startswith("judge.") else NOT_COVERED
    return None
