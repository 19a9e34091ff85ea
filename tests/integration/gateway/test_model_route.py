"""The route to an arm's model on real sockets: what goes on, what comes back, and what is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any

import httpx
import pytest

from evalfleet.api.gateways import model_app
from evalfleet.clock import SystemClock
from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.gateway import model_route
from evalfleet.gateway.listener import GatewayRoom
from evalfleet.model.events import ModelRequest, ModelResponse
from evalfleet.model.model_call import CallEnd, CallFate, ModelCall
from evalfleet.model.model_route import Dialect, ModelUpstream
from evalfleet.model.usage import Usage
from evalfleet.ports import ModelDesk
from evalfleet.randomness import SystemRandom
from evalfleet.testing.fakes import FakeSecrets
from evalfleet.testing.http_endpoint import Reply, json_reply
from evalfleet.testing.model_endpoint import ModelEndpoint
from evalfleet.testing.model_turn import ModelTurn, ScriptedUsage
from tests.integration.gateway.test_gateway import Host

KEY = "sk-real"
PATHS = {Dialect.CHAT: "chat/completions", Dialect.RESPONSES: "responses", Dialect.MESSAGES: "messages"}
SPENT = ScriptedUsage(input=100, output=20, cache_read=30)
SAID: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "input": "hi", "max_tokens": 50}


@dataclass
class Told:
    """What an attempt is told, and the calls that it lets happen."""

    calls: list[ModelCall] = field(default_factory=list)
    ends: list[CallEnd] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failures: list[AttemptFailure] = field(default_factory=list)
    observed: list[ModelRequest | ModelResponse] = field(default_factory=list)
    refusal: AttemptFailure | None = None
    open: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    governed: bool = True

    async def admit(self, call: ModelCall) -> Told:
        self.calls.append(call)
        if self.refusal is not None:
            raise self.refusal
        await self.open.wait()
        return self

    def end(self, end: CallEnd) -> None:
        self.ends.append(end)
        self.ended.set()


@dataclass
class Way:
    """A route that is open, and the endpoint behind it."""

    url: str
    model: ModelEndpoint
    told: Told
    client: httpx.AsyncClient

    async def ask(self, path: str, **fields: Any) -> httpx.Response:
        headers = {"authorization": "Bearer theirs", "x-api-key": "theirs", "anthropic-version": "2023-06-01"}
        return await self.client.post(f"{self.url}/v1/{path}", json={**SAID, **fields}, headers=headers)


@asynccontextmanager
async def way(
    dialect: Dialect, *script: Any, key: str | None = "ARM_KEY", url: str | None = None, **arm: Any
) -> AsyncGenerator[Way]:
    told = Told()
    told.open.set()
    async with ModelEndpoint(script) as model, httpx.AsyncClient(timeout=20) as client:
        base = url or (model.url if dialect is Dialect.MESSAGES else model.base_url)
        upstream = ModelUpstream(dialect=dialect, provider="cli", base_url=base, key=key, models=("m", "other"), **arm)
        desk = ModelDesk(
            secrets=FakeSecrets({"ARM_KEY": KEY}),
            calls=told,
            note=told.notes.append,
            fail=told.failures.append,
            observe=told.observed.append,
            clock=SystemClock(),
        )
        routes = {"/model/a b": model_app(upstream, desk)}
        gateway = await GatewayRoom(SystemRandom()).open(Host(), (), routes)
        try:
            yield Way(f"{gateway.environment['EVALFLEET_GATEWAY']}/model/a%20b", model, told, client)
        finally:
            await gateway.close()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("dialect", list(Dialect))
async def test_an_answer_comes_as_it_is_and_is_metered(dialect: Dialect, stream: bool) -> None:
    turn = ModelTurn(text="hello there", usage=SPENT)
    async with way(dialect, turn, turn) as on:
        path = PATHS[dialect]
        direct = await on.client.post(f"{on.model.url}/v1/{path}", json={**SAID, "stream": stream})
        answer = await on.ask(path, stream=stream)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == direct.headers["content-type"]
        # the endpoint numbers its answers
        assert answer.text.replace("_2", "_1") == direct.text
        request = on.model.requests[-1]
        told = {"stream_options": {"include_usage": True}} if stream and dialect is Dialect.CHAT else {}
        assert json.loads(request.body) == {**SAID, "stream": stream, **told}
    key = request.headers["x-api-key"] if dialect is Dialect.MESSAGES else request.headers["authorization"]
    assert key == (KEY if dialect is Dialect.MESSAGES else f"Bearer {KEY}")
    assert "theirs" not in str(request.headers)
    [call], [end] = on.told.calls, on.told.ends
    assert (call.account.key, call.account.model, call.output_limit) == ("ARM_KEY", "m", 50)
    assert end.fate is CallFate.ANSWERED and end.usage is not None
    found = (end.usage.input_tokens, end.usage.cache_read_tokens, end.usage.output_tokens, end.usage.requests)
    assert found == (SPENT.input, SPENT.cache_read, SPENT.output, 1)


@pytest.mark.parametrize(
    ("dialect", "path", "fields", "status"),
    [
        (Dialect.MESSAGES, "messages", {"model": "dearer"}, 403),
        (Dialect.RESPONSES, "responses", {"model": None}, 403),
        (Dialect.RESPONSES, "chat/completions", {}, 404),
        (Dialect.RESPONSES, "files", {}, 404),
        (Dialect.CHAT, "embeddings", {}, 404),
        (Dialect.MESSAGES, "messages/batches", {}, 404),
    ],
)
async def test_what_is_not_the_arms_is_refused_in_the_dialects_own_form(
    dialect: Dialect, path: str, fields: dict[str, Any], status: int
) -> None:
    async with way(dialect) as on:
        answer = await on.ask(path, **fields)
        assert (answer.status_code, on.model.requests, on.told.calls) == (status, [], [])
    document = answer.json()
    assert document["error"]["message"] and (dialect is not Dialect.MESSAGES or document["type"] == "error")


async def test_models_are_listed_and_nothing_else_is_there_to_get() -> None:
    async with way(Dialect.RESPONSES) as on:
        listed = (await on.client.get(f"{on.url}/v1/models")).json()
        assert [each["id"] for each in listed["data"]] == ["m", "other"]
        assert (await on.client.get(f"{on.url}/v1/responses")).status_code == 405
        assert (await on.client.get(on.url)).status_code == 404
        assert (await on.client.post(f"{on.url}/v1/responses", content=b"{")).status_code == 400
        assert on.model.requests == []


@pytest.mark.parametrize(
    ("status", "fate"),
    [(429, CallFate.THROTTLED), (529, CallFate.THROTTLED), (400, CallFate.REFUSED), (500, CallFate.BROKEN)],
)
async def test_what_the_provider_refuses_is_passed_on(status: int, fate: CallFate) -> None:
    refusal = json_reply({"error": {"message": "no"}}, status)
    refusal = Reply(status=refusal.status, headers={**refusal.headers, "retry-after": "7"}, body=refusal.body)
    async with way(Dialect.MESSAGES, refusal) as on:
        answer = await on.ask("messages")
    assert (answer.status_code, answer.headers["retry-after"]) == (status, "7")
    assert answer.json() == {"error": {"message": "no"}}
    [end] = on.told.ends
    assert (end.fate, end.retry_after) == (fate, 7.0 if fate is CallFate.THROTTLED else None)


async def test_a_date_to_come_again_at_is_read_as_the_seconds_until_then() -> None:
    later = formatdate(SystemClock().wall() + 90, usegmt=True)
    refusal = json_reply({"error": {"message": "no"}}, 429)
    refusal = Reply(status=429, headers={**refusal.headers, "retry-after": later}, body=refusal.body)
    async with way(Dialect.MESSAGES, refusal) as on:
        answer = await on.ask("messages")
    assert answer.headers["retry-after"] == later
    [end] = on.told.ends
    assert end.retry_after is not None and 80 < end.retry_after <= 90


async def test_a_call_that_may_not_be_made_now_is_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_route, "HOLD", 0.2)
    async with way(Dialect.RESPONSES) as on:
        on.told.open.clear()
        answer = await on.ask("responses")
    assert (answer.status_code, answer.json()["error"]["type"]) == (429, "rate_limit_error")
    assert "retry-after" in answer.headers
    assert (on.model.requests, on.told.failures) == ([], [])


async def test_a_call_that_may_never_be_made_fails_the_attempt() -> None:
    async with way(Dialect.RESPONSES) as on:
        on.told.refusal = AttemptFailure(FailureKind.PROVIDER, "BUDGET", "the budget is over")
        answer = await on.ask("responses")
    assert (answer.status_code, answer.json()["error"]["message"]) == (429, "the budget is over")
    assert on.told.failures == [on.told.refusal]


@pytest.mark.parametrize(("key", "url", "status"), [("UNSET", None, 401), ("ARM_KEY", "http://127.0.0.1:1/v1", 502)])
async def test_what_can_not_be_reached_is_told_and_noted(key: str, url: str | None, status: int) -> None:
    async with way(Dialect.RESPONSES, key=key, url=url) as on:
        assert (await on.ask("responses")).status_code == status
    assert len(on.told.notes) == 1 and KEY not in on.told.notes[0]
    assert [end.fate for end in on.told.ends] == ([CallFate.BROKEN] if status == 502 else [])


EVENTS = tuple(
    b'data: {"usage": {"prompt_tokens": %d, "completion_tokens": 1}}\n\n' % number for number in range(1, 400)
)
STREAM = {"content-type": "text/event-stream"}


async def test_a_provider_that_dies_in_the_middle_cuts_the_answer_and_is_no_answer() -> None:
    async with way(Dialect.CHAT, Reply(headers=STREAM, body=EVENTS[:2], cut=True)) as on:
        with pytest.raises(httpx.RemoteProtocolError):
            await on.ask("chat/completions", stream=True)
        [end] = on.told.ends
    assert (end.fate, end.usage) == (CallFate.BROKEN, Usage(input_tokens=2, output_tokens=1, requests=1))


async def test_pieces_come_as_they_are_said_and_nobody_speaks_to_one_who_is_gone() -> None:
    async with way(Dialect.CHAT, Reply(headers=STREAM, body=EVENTS, gap=0.05)) as on:
        url, fields = f"{on.url}/v1/chat/completions", {**SAID, "stream": True}
        async with on.client.stream("POST", url, json=fields) as answer:
            first = await anext(answer.aiter_bytes())
            assert first == EVENTS[0], "it does not wait for the whole answer"
        async with asyncio.timeout(5):
            await on.told.ended.wait()
        [end] = on.told.ends
    assert end.fate is CallFate.BROKEN


async def test_another_attempts_token_opens_nothing() -> None:
    async with way(Dialect.CHAT, "hi") as on:
        token = on.url.split("/")[3]
        answer = await on.client.post(on.url.replace(token, "0" * len(token)) + "/v1/chat/completions", json=SAID)
        assert (answer.status_code, on.model.requests) == (404, [])


@pytest.mark.parametrize("dialect", list(Dialect))
async def test_no_answer_is_longer_than_the_arm_allows(dialect: Dialect) -> None:
    async with way(dialect, ModelTurn(text="hi"), ModelTurn(text="hi"), ModelTurn(text="hi"), output_limit=40) as on:
        name = "max_output_tokens" if dialect is Dialect.RESPONSES else "max_tokens"
        for asked in (None, 41, 7):
            await on.client.post(f"{on.url}/v1/{PATHS[dialect]}", json={**SAID, "max_tokens": None, name: asked})
        sent = [json.loads(request.body)[name] for request in on.model.requests]
    assert sent == [40, 40, 7] == [call.output_limit for call in on.told.calls]


async def test_each_call_is_told_with_its_end() -> None:
    turns = ModelTurn(text="one", usage=SPENT), json_reply({"error": "full"}, status=429), ModelTurn(text="two")
    tools = [{"type": "function", "function": {"name": "look"}}]
    said = [{"role": "system", "content": "Be brief."}, *SAID["messages"]]
    async with way(Dialect.CHAT, *turns) as on:
        for _ in turns:
            await on.ask("chat/completions", messages=said, tools=tools)
    first, first_end, second, second_end, third, _ = on.told.observed
    assert isinstance(first, ModelRequest) and isinstance(second, ModelRequest) and isinstance(third, ModelRequest)
    assert (first.model, first.instructions, first.tools, first.messages) == ("m", "Be brief.", ("look",), 2)
    # the text stands once, its digest always
    assert second.instructions is None and first.instruction_digest == second.instruction_digest is not None
    assert isinstance(first_end, ModelResponse) and isinstance(second_end, ModelResponse)
    assert (first_end.call_id, first_end.outcome, first_end.status) == (first.call_id, "answered", 200)
    assert first_end.usage == on.told.ends[0].usage and first_end.duration is not None and first_end.body is None
    assert (second_end.call_id, second_end.outcome, second_end.status) == (second.call_id, "throttled", 429)
    assert len({first.call_id, second.call_id, third.call_id}) == 3


async def test_whole_bodies_are_kept_for_an_arm_that_asks_for_them() -> None:
    async with way(Dialect.MESSAGES, ModelTurn(text="one"), keeps_bodies=True) as on:
        answer = await on.ask("messages")
    request, response = on.told.observed
    assert isinstance(request, ModelRequest) and request.body == SAID
    assert isinstance(response, ModelResponse) and response.body == answer.text


async def test_counting_tokens_is_no_call() -> None:
    async with way(Dialect.MESSAGES, output_limit=5) as on:
        answer = await on.ask("messages/count_tokens")
        assert json.loads(on.model.requests[-1].body) == SAID
    assert answer.json() == {"input_tokens": 1}
    assert not on.told.calls and not on.told.observed


async def test_a_provider_that_takes_no_stream_options_is_sent_none() -> None:
    async with way(Dialect.CHAT, ModelTurn(text="one"), stream_usage=False) as on:
        await on.ask("chat/completions", stream=True)
        assert json.loads(on.model.requests[-1].body) == {**SAID, "stream": True}
