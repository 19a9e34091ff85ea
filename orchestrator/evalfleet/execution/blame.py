"""Whose failure an escaping error is, for any error at all: `errors.attribute` extended to what is no Exception."""

from __future__ import annotations

from evalfleet.errors import AttemptFailure, FailureKind, SendFailure, attribute, describe


def blame(error: BaseException, kind: FailureKind, code: str) -> AttemptFailure:
    """The attempt failure that `error` means when it escapes from code blamed on `kind`.

    `sys.exit()` in an agent or a test body, or an error derived from BaseException, ends an attempt, not the worker.
    """
    if isinstance(error, (SendFailure, AttemptFailure)) and not _well_formed(error):
        return AttemptFailure(kind, code, describe(error))
    if isinstance(error, Exception):
        return attribute(error, kind, code)
    return AttemptFailure(kind, code, f"{type(error).__name__}: {describe(error)}")


def _well_formed(error: SendFailure | AttemptFailure) -> bool:
    """Whether an adapter, which anybody may write, gave kind and code their types."""
    return type(error.kind) is FailureKind and type(error.code) is str
