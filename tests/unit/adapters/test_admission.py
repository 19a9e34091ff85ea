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


async def test_behind_a_governor_a_refused_call_is_admitted_again_at_once_and_no_more_often_than_before() -> None:
    """How long to wait is the governor's affair, so that nobody waits for it twice, or holds a lane for it."""
    busy = Reply(status=429, headers={"retry-after": "600", "x-ratelimit-remaining-requests": "0"}, body=b"{}")
    async with serving([busy] * 5, max_retries=2) as (adapter, model):
        ctx = FakeContext(limit=5.0)
        calls = FakeModelCalls()
        calls.governed, ctx.calls = True, calls
        session = await adapter.open(ctx)
        with pytest.raises(SendFailure) as failed:
            await session.send(TurnInput("hello"), ctx)
        assert (failed.value.code, failed.value.retry_after) == ("RATE_LIMITED", 600.0)
        assert len(model.requests) == 3
    for _, end in calls.made:
        assert end is not None and end.reading is not None
        assert (end.fate, end.retry_after, end.reading.requests_left) == (CallFate.THROTTLED, 600.0, 0.0)
