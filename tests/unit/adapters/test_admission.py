"""Every request of the `openai` adapter is admitted before it is sent, and its end is told."""

from __future__ import annotations

import pytest

from evalfleet.errors import AttemptFailure, FailureKind, SendFailure
from evalfleet.model.model_call import Account, CallFate, ModelCall
from evalfleet.model.turn import TurnInput
from evalfleet.model.usage import Usage
from evalfleet.ports import AdmittedCall
from evalfleet.testing.adapter_context import FakeContext, FakeModelCalls
from evalfleet.testing.http_endpoint import Reply, json_reply
from evalfleet.testing.model_endpoint import Scripted, completion
from tests.unit.adapters.test_openai import serving

BUSY = json_reply({"error": {"message": "slow down", "code": "rate_limit_exceeded"}}, status=429)
BAD = json_reply({"error": {"message": "no such field"}}, status=400)
TEN = Usage(input_tokens=10, output_tokens=5, requests=1)


@pytest.mark.parametrize(
    ("replies", "fates"),
    [
        ([completion("hi")], [(CallFate.ANSWERED, TEN)]),
        ([BUSY, completion("hi")], [(CallFate.THROTTLED, None), (CallFate.ANSWERED, TEN)]),
        ([BAD], [(CallFate.REFUSED, None)]),
        ([Reply(body=b"no", status=500)], [(CallFate.BROKEN, None)]),
        ([Reply(body=b"no json", status=200)], [(CallFate.BROKEN, None)]),
    ],
)
async def test_each_request_is_a_call_with_one_end(
    replies: list[Scripted], fates: list[tuple[CallFate, Usage | None]]
) -> None:
    async with serving(replies, max_tokens=77) as (adapter, model):
        ctx = FakeContext()
        calls = FakeModelCalls()
        ctx.calls = calls
        account = Account(provider="openai", base_url=model.base_url, key=None, model="small")
        session = await adapter.open(ctx)
        try:
            await session.send(TurnInput("hello"), ctx)
        except SendFailure:
            assert fates[-1][0] is not CallFate.ANSWERED
    assert [(end.fate, end.usage) for _, end in calls.made if end is not None] == fates
    for call, _ in calls.made:
        assert (call.account, call.output_limit) == (account, 77)
        assert call.input_bytes > len("hello")


class Closed:
    """Lets nothing through."""

    governed = False

    async def admit(self, call: ModelCall) -> AdmittedCall:
        raise AttemptFailure(FailureKind.CANCELLED, "OVER", "the budget is over")


async def test_what_is_not_admitted_is_not_sent() -> None:
    async with serving([completion("hi")]) as (adapter, model):
        ctx = FakeContext()
        ctx.calls = Closed()
        session = await adapter.open(ctx)
        with pytest.raises(AttemptFailure):
            await session.send(TurnInput("hello"), ctx)
        assert model.requests == []
