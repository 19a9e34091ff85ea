"""Calls behind several gates: passed in order, and given back when a later gate refuses."""

from __future__ import annotations

import pytest

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.execution.model_calls import GatedCalls
from evalfleet.model.model_call import Account, CallEnd, CallFate, ModelCall
from evalfleet.ports import AdmittedCall
from evalfleet.testing.adapter_context import FakeModelCalls

CALL = ModelCall(account=Account(provider="openai", base_url="http://x", key=None, model="m"), input_bytes=10)
ANSWERED = CallEnd(fate=CallFate.ANSWERED)


class Closed:
    """Lets nothing through."""

    async def admit(self, call: ModelCall) -> AdmittedCall:
        raise AttemptFailure(FailureKind.CANCELLED, "OVER", "the budget is over")


async def test_every_gate_is_told_of_the_call_and_of_its_first_end() -> None:
    first, second = FakeModelCalls(), FakeModelCalls()
    admitted = await GatedCalls((first, None, second)).admit(CALL)
    assert first.made == second.made == [(CALL, None)]
    admitted.end(ANSWERED)
    admitted.end(CallEnd(fate=CallFate.BROKEN))
    assert first.made == second.made == [(CALL, ANSWERED)]


async def test_what_a_later_gate_refuses_is_given_back_to_the_earlier() -> None:
    first = FakeModelCalls()
    with pytest.raises(AttemptFailure):
        await GatedCalls((first, Closed())).admit(CALL)
    assert first.made == [(CALL, CallEnd(fate=CallFate.REFUSED))]


async def test_without_gates_a_call_is_simply_made() -> None:
    (await GatedCalls(()).admit(CALL)).end(ANSWERED)
