"""How a test body is ended from within: signals that `except Exception` does not catch."""

from __future__ import annotations


class BodyEnd(BaseException):
    """Ends the test body. It is no error; catching it does not reopen the attempt."""


class BodyStopped(BodyEnd):
    """An assertion with `or_stop` does not hold."""


class BodySkipped(BodyEnd):
    """The author skipped the case."""


class AttemptEnded(BodyEnd):
    """The attempt is over (deadline, cancellation, or its body returned); nothing more is recorded."""


def leaves(error: BaseException) -> list[BaseException]:
    """The errors that `error` stands for: its members when it is a group, at any depth, else itself."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    members: tuple[BaseException, ...] = error.exceptions  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return [leaf for member in members for leaf in leaves(member)]
