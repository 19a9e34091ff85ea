"""The judge's model over HTTP, against a real endpoint that misbehaves on order. Waiting passes on a fake clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from email.utils import formatdate
from typing import Any

import pytest

from evalfleet.errors import JudgeFailure
from evalfleet.grading.judge_client import CALLS_AT_ONCE, LARGEST_BODY
from evalfleet.model.judge import CALL_FAILED, INVALID_RESPONSE, JudgeMessage, JudgeReply, JudgeRequest
from evalfleet.model.model_call import CallEnd, CallFate
from evalfleet.model.usage import Usage
from evalfleet.plugins import judge_model
from evalfleet.ports import JudgeModel
from evalfleet.testing.adapter_context import FakeModelCalls
from evalfleet.testing.fakes import FakeClock, FixedRandom
from evalfleet.testing.http_endpoint import HttpEndpoint, Reply, Request, json_reply
from evalfleet.testing.model_endpoint import ModelEndpoint, completion

KEY = "sk-very-secret"
SCHEMA = {"type": "object", "properties": {"score": {"type": "number"}}}
START = FakeClock().monotonic()
USAGE = Usage(input_tokens=10, output_tokens=5, requests=1)


def asking(base_url: str, **fields: Any) -> JudgeRequest:
    given: dict[str, Any] = {
        "model": "grader-1",
        "messages": (JudgeMessage("system", "Judge."), JudgeMessage("user", "Is it?")),
        "schema": SCHEMA,
        "temperature": None,
        "max_tokens": None,
        "timeout": 180.0,
    }
    return JudgeRequest(base_url=base_url, **{**given, **fields})


def refusing(status: int, message: str = "not now", **headers: str) -> Reply:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return json_reply({"error": {"message": message}}, status, named)


def on_date(seconds: float) -> Reply:
    return refusing(503, retry_after=formatdate(FakeClock().wall() + seconds, usegmt=True))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def judge(clock: FakeClock) -> AsyncIterator[JudgeModel]:
    model = judge_model(clock, FixedRandom())
    yield model
    await model.close()


async def failing(judge: JudgeModel, request: JudgeRequest, key: str | None = KEY) -> JudgeFailure:
    with pytest.raises(JudgeFailure) as caught:
        await judge.ask(request, key)
    return caught.value


async def test_a_request_says_what_is_set_and_nothing_else(judge: JudgeModel) -> None:
    async with ModelEndpoint(["one", "two"]) as model:
        replies = [
            await judge.ask(asking(model.base_url + "/"), None),
            await judge.ask(asking(model.base_url, temperature=0.0, max_tokens=99), f"{KEY}\n"),
        ]
    assert replies == [JudgeReply(text="one", usage=USAGE), JudgeReply(text="two", usage=USAGE)]
    bare = {
        "model": "grader-1",
        "messages": [{"role": "system", "content": "Judge."}, {"role": "user", "content": "Is it?"}],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "ruling", "strict": True, "schema": SCHEMA},
        },
    }
    assert model.bodies == [bare, {**bare, "temperature": 0.0, "max_tokens": 99}]
    assert [request.headers.get("authorization") for request in model.requests] == [None, f"Bearer {KEY}"]


@pytest.mark.parametrize(
    ("faults", "slept"),
    [
        ([], 0.0),
        ([refusing(429, retry_after="7")], 7.0),
        ([refusing(429, retry_after="soon")], 0.5),
        ([on_date(30)], 30.0),
        ([on_date(-30)], 0.0),
        ([refusing(500), refusing(503)], 0.5 + 1.0),
        ([refusing(408), refusing(409, retry_after="2.5")], 0.5 + 2.5),
        ([Reply(drop=True)], 0.5),
        ([Reply(body=b'{"choices"', cut=True)], 0.5),
        ([Reply(status=529, body=b"x" * (LARGEST_BODY + 1))], 0.5),
    ],
)
async def test_what_passes_is_tried_again(
    judge: JudgeModel, clock: FakeClock, faults: list[Reply], slept: float
) -> None:
    async with ModelEndpoint([*faults, "fine"]) as model:
        reply = await judge.ask(asking(model.base_url), KEY)
    assert (reply.text, reply.tries, len(model.requests)) == ("fine", len(faults) + 1, len(faults) + 1)
    assert clock.monotonic() - START == pytest.approx(slept)


@pytest.mark.parametrize(
    ("faults", "tries", "slept", "status", "text"),
    [
        ([refusing(500)] * 3, 3, 1.5, 500, "HTTP 500: not now"),
        ([refusing(429, retry_after="9")] * 3, 3, 18.0, 429, "HTTP 429: not now"),
        ([refusing(429, retry_after="181")], 1, 0.0, 429, "HTTP 429: not now"),
        ([refusing(429, retry_after="170"), refusing(429, retry_after="170")], 2, 170.0, 429, "HTTP 429: not now"),
        ([refusing(401, f"wrong key {KEY}: \n{'x' * 300}")], 1, 0.0, 401, "HTTP 401: wrong key [secret]: xxx"),
        ([Reply(status=402, body=b"pay \xff")], 1, 0.0, 402, "HTTP 402: pay \ufffd"),
        ([json_reply({"error": "no"}, 403)], 1, 0.0, 403, "HTTP 403: no"),
        ([Reply(status=307, headers={"location": "/x"})], 1, 0.0, 307, "HTTP 307"),
        ([refusing(400, "too long")] * 3, 3, 0.0, 400, "HTTP 400: too long"),
        ([Reply(drop=True)] * 3, 3, 1.5, None, "RemoteProtocolError: "),
        ([Reply(headers={"content-encoding": "gzip"}, body=b"rubbish")], 1, 0.0, None, "DecodingError"),
    ],
)
async def test_a_call_that_failed(
    judge: JudgeModel, clock: FakeClock, faults: list[Reply], tries: int, slept: float, status: int | None, text: str
) -> None:
    async with ModelEndpoint(faults) as model:
        failure = await failing(judge, asking(model.base_url))
        place = model.url.removeprefix("http://")
    assert (failure.code, failure.tries, failure.status) == (CALL_FAILED, tries, status)
    assert len(model.requests) == tries
    count = "1 try" if tries == 1 else f"{tries} tries"
    assert str(failure).startswith(f"grader-1 at {place}, {count}: {text}")
    assert KEY not in str(failure)
    assert "\n" not in str(failure)
    assert len(str(failure)) < 300
    assert clock.monotonic() - START == pytest.approx(slept)


async def test_a_call_may_have_fewer_tries(judge: JudgeModel) -> None:
    async with ModelEndpoint([refusing(500), refusing(500), "too late"]) as model:
        failure = await failing(judge, asking(model.base_url, tries=2))
    assert (failure.tries, failure.latency, len(model.requests)) == (2, 0.5, 2)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (Reply(body=b'{"choices": ['), 'not a chat completion: {"choices": ['),
        (json_reply({"choices": []}), 'not a chat completion: {"choices": []}'),
        (json_reply({"error": {"message": f"over {KEY}", "code": 502}}), "not a chat completion: over [secret]"),
        (completion(None, refusal=f"I won't. {KEY}"), "a refusal: I won't. [secret]"),
        (completion(None, finish="content_filter"), "no text (finish_reason: content_filter)"),
        (completion("x" * LARGEST_BODY), "more than 8 MiB"),
    ],
)
async def test_an_answer_without_text_fails_at_once(judge: JudgeModel, answer: Any, text: str) -> None:
    async with ModelEndpoint([answer, "too late"]) as model:
        failure = await failing(judge, asking(model.base_url))
    assert (failure.code, failure.tries, failure.status) == (INVALID_RESPONSE, 1, 200)
    assert str(failure).endswith(f"1 try: HTTP 200: {text}")


@pytest.mark.parametrize("said", ["half a ru", None])
async def test_a_reply_that_ran_into_its_limit_is_cut_off(judge: JudgeModel, said: str | None) -> None:
    async with ModelEndpoint([completion(said, finish="length")]) as model:
        reply = await judge.ask(asking(model.base_url), KEY)
    assert reply == JudgeReply(text=said or "", usage=USAGE, cut_off=True)


# --- dialects -------------------------------------------------------------------------------------------------


def forms(model: ModelEndpoint) -> list[str | None]:
    return [body.get("response_format", {}).get("type") for body in model.bodies]


@pytest.mark.parametrize("status", [400, 404, 422])
async def test_a_form_that_a_server_does_not_take_is_not_asked_for_again(judge: JudgeModel, status: int) -> None:
    script = [refusing(status), "object", "again", "schema", refusing(status), "any", "still"]
    async with ModelEndpoint(script) as model:
        asked = asking(model.base_url)
        tries = [(await judge.ask(asked, KEY)).tries for _ in range(2)]
        tries.append((await judge.ask(asking(model.base_url, model="other"), KEY)).tries)
        tries += [(await judge.ask(asked, KEY)).tries for _ in range(2)]
    assert tries == [2, 1, 1, 2, 1]
    assert forms(model) == [
        "json_schema", "json_object", "json_object", "json_schema", "json_object", None, None,
    ]  # fmt: skip


async def test_what_failed_in_every_form_changes_nothing(judge: JudgeModel) -> None:
    async with ModelEndpoint([refusing(400)] * 3) as model:
        await failing(judge, asking(model.base_url))
        await judge.ask(asking(model.base_url), KEY)
    assert forms(model) == ["json_schema", "json_object", None, "json_schema"]


async def test_a_change_of_form_is_none_of_the_three_tries(judge: JudgeModel, clock: FakeClock) -> None:
    script = [refusing(500), refusing(400), refusing(500), refusing(400), "fine"]
    async with ModelEndpoint(script) as model:
        reply = await judge.ask(asking(model.base_url), KEY)
    assert (reply.text, reply.tries, clock.monotonic() - START) == ("fine", 5, 1.5)


async def test_the_limit_goes_by_the_name_that_the_server_asks_for(judge: JudgeModel) -> None:
    told = refusing(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
    async with ModelEndpoint([told, "one", "two"]) as model:
        tries = [(await judge.ask(asking(model.base_url, max_tokens=99), KEY)).tries for _ in range(2)]
    assert tries == [2, 1]
    assert [(body.get("max_tokens"), body.get("max_completion_tokens")) for body in model.bodies] == [
        (99, None), (None, 99), (None, 99),
    ]  # fmt: skip
    assert forms(model) == ["json_schema"] * 3


# --- time, places and places that are none --------------------------------------------------------------------


async def test_a_silent_server_leaves_time_for_another_try(judge: JudgeModel) -> None:
    async with ModelEndpoint([Reply(silent=True), "fine"]) as model:
        reply = await judge.ask(asking(model.base_url, timeout=1.0), KEY)
    assert (reply.text, reply.tries) == ("fine", 2)


@pytest.mark.parametrize("slow", [Reply(silent=True), Reply(body=(b" ",) * 1_000, gap=0.01)])
async def test_an_answer_that_never_ends_is_not_waited_for(judge: JudgeModel, slow: Reply) -> None:
    async with ModelEndpoint([slow] * 3) as model:
        failure = await failing(judge, asking(model.base_url, timeout=0.1))
    assert (failure.code, failure.tries, failure.status) == (CALL_FAILED, 1, None)
    assert str(failure).endswith("1 try: no answer in 0.05 s")


async def test_a_call_above_the_bound_waits_for_a_place_and_its_time_with_it(
    judge: JudgeModel, clock: FakeClock
) -> None:
    gate, under_way, most = asyncio.Event(), 0, 0

    async def answer(_: Request) -> Reply:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        if under_way == CALLS_AT_ONCE:
            clock.advance(1_000)
            asyncio.get_running_loop().call_later(0.05, gate.set)  # time for one too many to come
        await gate.wait()
        under_way -= 1
        return refusing(500) if len(endpoint.requests) == CALLS_AT_ONCE + 1 else json_reply(completion("fine"))

    async with HttpEndpoint(answer) as endpoint:
        calls = [judge.ask(asking(f"{endpoint.url}/v1"), KEY) for _ in range(CALLS_AT_ONCE + 1)]
        first, *_, last = await asyncio.gather(*calls)
    assert most == CALLS_AT_ONCE
    assert (last.text, last.tries) == ("fine", 2)
    # the last one waited for the others, then for its own second try
    assert (first.latency, last.latency) == (1_000.0, 0.5)


async def test_a_place_is_free_again_after_a_cancelled_call(judge: JudgeModel) -> None:
    arrived = asyncio.Barrier(CALLS_AT_ONCE + 1)

    async def answer(_: Request) -> Reply:
        if len(endpoint.requests) <= CALLS_AT_ONCE:
            await arrived.wait()
            return Reply(silent=True)
        return json_reply(completion("fine"))

    async with HttpEndpoint(answer) as endpoint:
        base_url = f"{endpoint.url}/v1"
        calls = [asyncio.create_task(judge.ask(asking(base_url), KEY)) for _ in range(CALLS_AT_ONCE)]
        await arrived.wait()
        for call in calls:
            call.cancel()
        ended = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ended)
        assert (await judge.ask(asking(base_url), KEY)).tries == 1


async def test_nobody_listens(judge: JudgeModel, clock: FakeClock) -> None:
    async with ModelEndpoint() as model:
        base_url = model.base_url
    failure = await failing(judge, asking(base_url))
    assert (failure.code, failure.tries, failure.status) == (CALL_FAILED, 3, None)
    assert "3 tries: ConnectError: " in str(failure)
    assert clock.monotonic() - START == 1.5


@pytest.mark.parametrize(
    ("base_url", "text"),
    [
        ("ftp://user:pass@models/v1", "grader-1 at models, 1 try: its base_url is not an HTTP URL"),
        ("http://user:pa/ss@models", "grader-1 at an unreadable base_url, 1 try: its base_url is not an HTTP URL"),
        ("models/v1", "grader-1 at an unreadable base_url, 1 try: its base_url is not an HTTP URL"),
    ],
)
async def test_a_place_that_is_none(judge: JudgeModel, base_url: str, text: str) -> None:
    failure = await failing(judge, asking(base_url))
    assert (failure.code, failure.tries, failure.status) == (CALL_FAILED, 1, None)
    assert str(failure) == text


@pytest.mark.parametrize("key", ["sk-é-1", "sk-a\nb"])
async def test_a_key_that_no_header_may_hold(judge: JudgeModel, key: str) -> None:
    async with ModelEndpoint() as model:
        failure = await failing(judge, asking(model.base_url), key)
    assert (failure.code, failure.tries, failure.status) == (CALL_FAILED, 1, None)
    assert str(failure).endswith("1 try: the key holds a character that HTTP does not allow")


async def test_credentials_of_the_url_are_sent_and_not_shown(judge: JudgeModel) -> None:
    async with ModelEndpoint([refusing(401)]) as model:
        failure = await failing(judge, asking(model.base_url.replace("//", "//user:hidden@")), None)
        place = model.url.removeprefix("http://")
    assert model.requests[0].headers["authorization"].startswith("Basic ")
    assert str(failure) == f"grader-1 at {place}, 1 try: HTTP 401: not now"


# --- rates ----------------------------------------------------------------------------------------------------


async def test_each_request_is_admitted_and_a_refused_one_is_not_waited_for_twice(
    judge: JudgeModel, clock: FakeClock
) -> None:
    """Behind a governor, which waits as long as the server asks; before one, the call itself waits."""
    replies = [refusing(429, retry_after="50"), json_reply(completion("fine"))]
    for governed, waited in ((True, 0.0), (False, 50.0)):
        answers = iter(replies)
        began = clock.monotonic()
        async with HttpEndpoint(lambda _, answers=answers: next(answers)) as endpoint:
            calls = FakeModelCalls()
            calls.governed = governed
            await judge.ask(asking(f"{endpoint.url}/v1", key_name="KEY", max_tokens=9), KEY, calls)
        assert clock.monotonic() - began == waited
        (first, refused), (_, answered) = calls.made
        assert (first.judging, first.account.key, first.account.model, first.output_limit) == (
            True,
            "KEY",
            "grader-1",
            9,
        )
        assert refused == CallEnd(fate=CallFate.THROTTLED, retry_after=50.0)
        assert answered == CallEnd(fate=CallFate.ANSWERED, usage=USAGE)
