"""What an assertion call returns: configures the assertion just registered, and can end the test body on it."""

from __future__ import annotations

import math
from collections.abc import Coroutine
from typing import Any, Self

from evalfleet.errors import AuthoringError
from evalfleet.execution.ledger import Entry, Ledger
from evalfleet.execution.signals import BodyStopped
from evalfleet.execution.threads import Bridge
from evalfleet.model.verdict import Style

_TEXT_LIMIT = 256


class Configurable:
    """The configuration of one registered assertion: each setting once, and only until it is evaluated.

    Raises AuthoringError otherwise; the attempt is then errored, whoever catches it.
    """

    __slots__ = ("_entry", "_ledger")

    def __init__(self, ledger: Ledger, entry: Entry) -> None:
        self._ledger = ledger
        self._entry = entry

    def label(self, text: str) -> Self:
        """Show the assertion under `text` (at most 256 characters)."""
        self._unset("label", self._entry.label is None)
        self._entry.label = self._text("label", text)
        return self

    def key(self, text: str) -> Self:
        """Name the assertion for comparisons between runs, whatever its position (at most 256 characters)."""
        self._unset("key", self._entry.key is None)
        self._entry.key = self._text("key", text)
        return self

    def gate(self, minimum: float | None = None) -> Self:
        """Make it a condition of the verdict; a measurement needs its minimum in [0, 1], a Boolean has none."""
        entry = self._entry
        self._unset("gate", entry.gate is None)
        if entry.optional:
            raise self._refused("an optional assertion can't be a gate")
        if entry.measures:
            if minimum is None:
                raise self._refused("gate() of a measurement needs a minimum, for example gate(0.8)")
            self._unset("a threshold", entry.at_least is None)
            entry.gate_min = self._number("gate", minimum, 1.0)
        elif minimum is not None:
            raise self._refused("gate() takes no minimum here: the assertion is a yes or no, not a measurement")
        entry.gate = True
        return self

    def at_least(self, minimum: float) -> Self:
        """Record whether a measurement reaches `minimum` in [0, 1]; no effect on the verdict."""
        if not self._entry.measures:
            raise self._refused("at_least() needs a measurement; this assertion is a yes or no")
        self._unset("a threshold", self._entry.at_least is None and self._entry.gate_min is None)
        self._entry.at_least = self._number("at_least", minimum, 1.0)
        return self

    def score(self, points: float) -> Self:
        """Let it contribute up to `points` (0 or more) to the score. Score-style evals only."""
        if self._ledger.state.job.definition.style is not Style.SCORE:
            raise self._refused("score() needs a score-style eval; use define_score_eval")
        self._unset("score", self._entry.points is None)
        self._entry.points = self._number("score", points, math.inf)
        return self

    def optional(self) -> Self:
        """Keep an unavailable or errored result out of the verdict."""
        self._unset("optional", not self._entry.optional)
        if self._entry.gate:
            raise self._refused("a gate can't be optional")
        self._entry.optional = True
        return self

    async def _stop_unless_it_holds(self) -> None:
        state, entry = self._ledger.state, self._entry
        state.check_open("or_stop()")
        if entry.measures and entry.gate_min is None and entry.at_least is None:
            raise self._refused("or_stop() of a measurement needs a threshold: gate(min) or at_least(min)")
        if entry.at_the_end:
            raise self._refused("or_stop() can't be: it is answered when the test body has ended")
        await self._ledger.settle_to(entry)
        state.check_open("or_stop()")
        if self._ledger.holds(entry) is not True:
            raise state.latch(BodyStopped())

    def _unset(self, what: str, unset: bool) -> None:
        self._ledger.state.check_open(f"configuring {self._entry.name}()")
        if self._entry.outcome is not None:
            raise self._refused(f"{what} comes after the assertion was evaluated")
        if not unset:
            raise self._refused(f"{what} is already set")

    def _text(self, what: str, text: Any) -> str:
        if type(text) is not str or not text.strip() or len(text) > _TEXT_LIMIT or not text.isprintable():
            raise self._refused(f"{what}() takes a printable text of 1 to {_TEXT_LIMIT} characters")
        return text

    def _number(self, what: str, number: Any, limit: float) -> float:
        if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 <= number <= limit:
            raise self._refused(f"{what}() takes a number from 0 to {limit:g}, not {number!r:.40}")
        if math.isinf(number):
            raise self._refused(f"{what}() takes a finite number")
        return float(number)

    def _refused(self, what: str) -> AuthoringError:
        return self._ledger.state.refuse(f"{self._entry.name}(): {what}", "ASSERTION_MISCONFIGURED")


class Assertion(Configurable):
    """The handle an async test body gets."""

    __slots__ = ()

    def or_stop(self) -> Coroutine[Any, Any, None]:
        """Evaluate it now, after all that were registered before it, and end the test body unless it holds."""
        return self._ledger.state.promise(self._stop_unless_it_holds())


class SyncAssertion(Configurable):
    """The handle a plain (not async) test body gets."""

    __slots__ = ("_bridge",)

    def __init__(self, ledger: Ledger, entry: Entry, bridge: Bridge) -> None:
        super().__init__(ledger, entry)
        self._bridge = bridge

    def or_stop(self) -> None:
        """Evaluate it now, after all that were registered before it, and end the test body unless it holds."""
        self._bridge.call(self._stop_unless_it_holds())
