"""The model calls of one attempt: each is paid for and admitted before it is made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from evalfleet.model.model_call import CallEnd, CallFate, ModelCall
from evalfleet.ports import AdmittedCall, ModelCalls

_NOT_MADE = CallEnd(fate=CallFate.REFUSED)


class GatedCalls:
    """`ModelCalls` behind several gates, which a call passes in order."""

    __slots__ = ("_gates",)

    def __init__(self, gates: Iterable[ModelCalls | None]) -> None:
        self._gates = tuple(gate for gate in gates if gate is not None)

    @property
    def governed(self) -> bool:
        return any(gate.governed for gate in self._gates)

    async def admit(self, call: ModelCall) -> AdmittedCall:
        """See `ModelCalls.admit`. What a gate gave is given back when a later one refuses."""
        passed: list[AdmittedCall] = []
        try:
            for gate in self._gates:
                passed.append(await gate.admit(call))
        except BaseException:
            _end(passed, _NOT_MADE)
            raise
        return _Passed(passed)


class _Passed:
    __slots__ = ("_passed",)

    def __init__(self, passed: Sequence[AdmittedCall]) -> None:
        self._passed: Sequence[AdmittedCall] = passed

    def end(self, end: CallEnd) -> None:
        passed, self._passed = self._passed, ()
        _end(passed, end)


def _end(passed: Sequence[AdmittedCall], end: CallEnd) -> None:
    for call in reversed(passed):
        call.end(end)
