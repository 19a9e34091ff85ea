"""Matchers on whole values: equality, choice, tolerance, presence, truth and command results."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from evalfleet.assertions.equality import equal_leaves, first_difference, frozen
from evalfleet.assertions.match import Evaluation, Match, decided, wrong_type
from evalfleet.assertions.snapshot import snapshot
from evalfleet.errors import AuthoringError
from evalfleet.model.events import MISSING

_TAIL = 2048  # characters of a command's output kept with the row


@dataclass(frozen=True, slots=True)
class Equals(Match):
    expected: Any

    def describe(self) -> Any:
        return {"match": "equals", "expected": snapshot(self.expected)}

    @property
    def is_quick(self) -> bool:
        return isinstance(self.expected, (str, int, float)) or self.expected is None

    def quick(self, value: Any) -> bool:
        return equal_leaves(self.expected, value)

    def judge(self, value: Any) -> Evaluation:
        where = first_difference(self.expected, value)
        reason = f"differs-at:{where}" if where else None
        return decided(where is None, expected=self.expected, actual=value, reason=reason)


def equals(expected: Any) -> Match:
    """Strict JSON equality: `True` is not `1`, int and float compare by value, NaN equals NaN, arrays are ordered.

    Values that are not JSON (bytes, dates) are equal when they share a type and `==` says so.
    """
    return Equals(frozen(expected, "equals"))


@dataclass(frozen=True, slots=True)
class OneOf(Match):
    choices: tuple[Any, ...]

    def describe(self) -> Any:
        return {"match": "one_of", "choices": snapshot(self.choices)}

    def judge(self, value: Any) -> Evaluation:
        holds = any(first_difference(choice, value) is None for choice in self.choices)
        return decided(holds, expected=self.choices, actual=value)


def one_of(*choices: Any) -> Match:
    """Matches when the value equals one of `choices`, as strictly as `equals`."""
    if not choices:
        raise AuthoringError("one_of needs at least one value")
    return OneOf(tuple(frozen(choice, "one_of") for choice in choices))


@dataclass(frozen=True, slots=True)
class Approx(Match):
    expected: int | float
    rel: float
    abs: float

    def describe(self) -> Any:
        return {"match": "approx", "expected": snapshot(self.expected), "rel": self.rel, "abs": self.abs}

    def judge(self, value: Any) -> Evaluation:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return wrong_type(value, expected=self.expected)
        if isinstance(value, float) and not math.isfinite(value):
            return decided(False, expected=self.expected, actual=value)
        expected = Fraction(self.expected)
        tolerance = max(Fraction(self.rel) * abs(expected), Fraction(self.abs))
        return decided(abs(Fraction(value) - expected) <= tolerance, expected=self.expected, actual=value)


def approx(expected: int | float, *, rel: float = 1e-6, abs: float = 1e-12) -> Match:
    """Matches a number within the larger of `rel` × |expected| and `abs`; computed exactly, at any size."""
    for name, number in (("expected", expected), ("rel", rel), ("abs", abs)):
        if isinstance(number, bool) or not isinstance(number, (int, float)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise AuthoringError(f"approx: {name} must be a number, not {type(number).__name__}")
        if isinstance(number, float) and not math.isfinite(number):
            raise AuthoringError(f"approx: {name} must be finite")
    if rel < 0 or abs < 0:
        raise AuthoringError("approx: a tolerance can't be negative")
    return Approx(expected, rel, abs)


@dataclass(frozen=True, slots=True)
class IsDefined(Match):
    def describe(self) -> Any:
        return {"match": "is_defined"}

    @property
    def is_quick(self) -> bool:
        return True

    def quick(self, value: Any) -> bool:
        return value is not None and value is not MISSING

    def judge(self, value: Any) -> Evaluation:
        return decided(self.quick(value), expected="a value", actual=value)


def is_defined() -> Match:
    """Matches anything but None and "nothing was reported"."""
    return IsDefined()


@dataclass(frozen=True, slots=True)
class Is(Match):
    truth: bool

    def describe(self) -> Any:
        return {"match": "is_true" if self.truth else "is_false"}

    @property
    def is_quick(self) -> bool:
        return True

    def quick(self, value: Any) -> bool:
        return value is self.truth

    def judge(self, value: Any) -> Evaluation:
        if not isinstance(value, bool):
            return wrong_type(value, expected=self.truth)
        return decided(value is self.truth, expected=self.truth, actual=value)


def is_true() -> Match:
    """Matches JSON true only: not 1, not "true"."""
    return Is(True)


def is_false() -> Match:
    """Matches JSON false only: not 0, not None, not "false"."""
    return Is(False)


@dataclass(frozen=True, slots=True)
class CommandSucceeded(Match):
    def describe(self) -> Any:
        return {"match": "command_succeeded"}

    def judge(self, value: Any) -> Evaluation:
        code = getattr(value, "exit_code", MISSING)
        if code is MISSING:
            return wrong_type(value, expected={"exit_code": 0})
        seen = {
            "exit_code": code,
            "timed_out": getattr(value, "timed_out", False),
            "stdout": _tail(getattr(value, "stdout", b"")),
            "stderr": _tail(getattr(value, "stderr", b"")),
        }
        return decided(type(code) is int and code == 0, expected={"exit_code": 0}, actual=seen)


def command_succeeded() -> Match:
    """Matches a command result whose exit code is 0, whatever it printed."""
    return CommandSucceeded()


def _tail(output: Any) -> str:
    text = output.decode("utf-8", "replace") if isinstance(output, bytes) else str(output)
    return text if len(text) <= _TAIL else f"…{text[-_TAIL:]}"
