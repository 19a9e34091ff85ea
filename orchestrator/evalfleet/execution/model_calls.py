"""Model calls that nobody rations: they are made as they come."""

from __future__ import annotations

from evalfleet.model.model_call import CallEnd, ModelCall
from evalfleet.ports import AdmittedCall


class FreeCalls:
    """`ModelCalls` of an attempt without budget and governor."""

    __slots__ = ()

    governed = False

    async def admit(self, call: ModelCall) -> AdmittedCall:
        """See `ModelCalls.admit`."""
        return _FREE


class _Free:
    __slots__ = ()

    def end(self, end: CallEnd) -> None:
        """Nobody wants to know."""


_FREE = _Free()
FREE_CALLS = FreeCalls()
