"""The receiver of spans on real sockets: OpenTelemetry's own SDK loses nothing, and what is hostile is refused."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import os
import socket
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from evalfleet.gateway.listener import GatewayRoom
from evalfleet.gateway.loopback import LoopbackGateway
from evalfleet.randomness import SystemRandom
from evalfleet.sandbox_ports import Inlet
from evalfleet.telemetry.bodies import LARGEST_BODY
from evalfleet.telemetry.inbox import Arrived, Cause, Inbox, InboxLimits
from evalfleet.telemetry.receiver import TRACES, AttemptSpans
from tests.unit.telemetry.bodies import json_body, request_of, sent_span

PROTOBUF, JSON = {"content-type": "application/x-protobuf"}, {"content-type": "application/json; charset=utf-8"}
GOOD = request_of("a", "b").SerializeToString()


class Served:
    """A receiver of one attempt, number 7, on this machine's loopback."""

    def __init__(self, inbox: Inbox, spans: AttemptSpans, base: str) -> None:
        self.inbox, self.spans, self.base = inbox, spans, base
        self.client = httpx.AsyncClient(base_url=base, trust_env=False, timeout=20)

    async def post(self, body: bytes, headers: dict[str, str]) -> httpx.Response:
        return await self.client.post(self.base + TRACES, content=body, headers=headers)


@asynccontextmanager
async def served(limits: InboxLimits | None = None) -> AsyncGenerator[Served]:
    inbox = Inbox(limits)
    spans = AttemptSpans(inbox, 7)
    with contextlib.closing(inbox):
        async with LoopbackGateway(SystemRandom()) as gateway:
            with gateway.serving({TRACES: spans}) as base:
                one = Served(inbox, spans, base)
                async with one.client:
                    yield one


@pytest.mark.parametrize(
    ("body", "headers", "count", "answer"),
    [
        (GOOD, PROTOBUF, 2, b""),
        (gzip.compress(GOOD), PROTOBUF, 2, b""),
        (gzip.compress(GOOD), PROTOBUF | {"content-encoding": "gzip"}, 2, b""),
        (json_body(sent_span()), JSON, 1, b"{}"),
        (gzip.compress(json_body(sent_span())), JSON | {"content-encoding": "gzip"}, 1, b"{}"),
        (b"", PROTOBUF, 0, b""),
        (b"", JSON, 0, b"{}"),
        (b"{}", JSON, 0, b"{}"),
    ],
    ids=["protobuf", "magic", "gzip", "json", "json-gzip", "empty", "empty-json", "object"],
)
async def test_what_is_good_is_taken_and_answered_in_kind(
    body: bytes, headers: dict[str, str], count: int, answer: bytes
) -> None:
    async with served() as one:
        response = await one.post(body, headers)
        assert (response.status_code, response.content) == (200, answer)
        assert response.headers["content-type"] == headers["content-type"].partition(";")[0]
        taken = one.inbox.take()
        assert [(each.attempt, len(each.delivery.spans())) for each in taken] == [(7, count)][:count]
        assert (one.spans.counters.accepted, +one.spans.counters.refused) == (count, Counter())


@pytest.mark.parametrize(
    ("body", "headers", "status", "cause"),
    [
        (b"\x0a\xff", PROTOBUF, 400, Cause.BAD_BODY),
        (b'{"resource_spans":[]}', JSON, 400, Cause.BAD_BODY),
        (GOOD, PROTOBUF | {"content-encoding": "gzip"}, 400, Cause.BAD_BODY),
        (GOOD, {"content-type": "text/plain"}, 415, Cause.WRONG_TYPE),
        (GOOD, {}, 415, Cause.WRONG_TYPE),
        (GOOD, PROTOBUF | {"content-encoding": "br"}, 415, Cause.WRONG_TYPE),
        (bytes(LARGEST_BODY + 1), PROTOBUF, 413, Cause.TOO_LARGE),
        (gzip.compress(bytes(64 << 20)), PROTOBUF, 413, Cause.TOO_LARGE),
    ],
    ids=["bytes", "snake-case", "no-gzip", "text", "no-type", "brotli", "large", "bomb"],
)
async def test_what_is_not_is_refused_counted_and_answered_in_kind(
    body: bytes, headers: dict[str, str], status: int, cause: Cause
) -> None:
    async with served() as one:
        try:
            response = await one.post(body, headers)
        except httpx.WriteError:  # it was refused before it was sent
            assert status == 413
        else:
            assert response.status_code == status
            assert response.headers["content-type"] == (
                PROTOBUF["content-type"]
                if headers.get("content-type") == PROTOBUF["content-type"]
                else "application/json"
            )
        assert one.spans.counters.refused == one.inbox.counters.refused == Counter({cause: 1})
        assert one.inbox.take() == []
        assert (await one.post(GOOD, PROTOBUF)).status_code == 200, "and the next is taken"


async def test_other_paths_and_methods_and_tokens_are_not_served() -> None:
    async with served() as one:
        foreign = one.base[:-1] + ("0" if one.base[-1] != "0" else "1")
        assert (await one.client.post(foreign + TRACES, content=GOOD, headers=PROTOBUF)).status_code == 404
        assert (await one.client.post(one.base + TRACES + "/x", content=GOOD, headers=PROTOBUF)).status_code == 404
        assert (await one.client.post(one.base + "/v1/logs", content=GOOD, headers=PROTOBUF)).status_code == 404
        got = await one.client.get(one.base + TRACES)
        assert (got.status_code, got.headers["allow"]) == (405, "POST")
        assert (one.inbox.counters.accepted, one.inbox.take()) == (0, [])


async def test_a_gigabyte_is_refused_by_its_announcement() -> None:
    async with served() as one:
        reader, writer = await _raw(one, b"content-length: 1073741824\r\n")
        assert (await asyncio.wait_for(reader.readline(), 10)).startswith(b"HTTP/1.1 413")
        assert one.spans.counters.refused == Counter({Cause.TOO_LARGE: 1})
        writer.close()


async def test_a_body_without_a_length_is_cut_off_where_it_grows_too_large() -> None:
    async with served() as one:
        reader, writer = await _raw(one, b"transfer-encoding: chunked\r\n")
        with contextlib.suppress(ConnectionError):
            for _ in range(64):
                writer.write(b"20000\r\n" + bytes(0x20000) + b"\r\n")
                await writer.drain()
        with contextlib.suppress(ConnectionError):
            assert (await asyncio.wait_for(reader.readline(), 10)).startswith(b"HTTP/1.1 413")
        assert one.spans.counters.refused == Counter({Cause.TOO_LARGE: 1})
        writer.close()


async def test_a_body_that_does_not_come_gives_its_place_back() -> None:
    async with served(InboxLimits(bodies=1, patience=0.3)) as one:
        reader, writer = await _raw(one, b"content-length: 100\r\n")
        busy = await one.post(GOOD, PROTOBUF)
        assert (busy.status_code, busy.headers["retry-after"]) == (503, "1")
        assert (await asyncio.wait_for(reader.readline(), 10)).startswith(b"HTTP/1.1 408")
        assert one.spans.counters.refused[Cause.SLOW] == 1
        assert (await one.post(GOOD, PROTOBUF)).status_code == 200
        writer.close()


async def test_a_sender_that_goes_away_is_counted_and_gives_its_place_back() -> None:
    async with served(InboxLimits(bodies=1)) as one:
        reader, writer = await _raw(one, b"content-length: 100\r\n")
        assert (await one.post(GOOD, PROTOBUF)).status_code == 503
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()
        assert (await one.post(GOOD, PROTOBUF)).status_code == 200
        assert one.spans.counters.refused == Counter({Cause.BUSY: 1, Cause.BROKEN_OFF: 1})


async def test_a_full_inbox_asks_for_patience_and_loses_nothing() -> None:
    async with served(InboxLimits(size_each=3 * len(GOOD))) as one:
        statuses = [(await one.post(GOOD, PROTOBUF)).status_code for _ in range(5)]
        assert statuses == [200, 200, 200, 503, 503]
        assert one.inbox.counters.refused == Counter({Cause.FULL: 2})
        await one.inbox.arrived()
        assert len(one.inbox.take()) == 3
        assert (await one.post(GOOD, PROTOBUF)).status_code == 200
        assert len(one.inbox.take()) == 1
        other = AttemptSpans(one.inbox, 8)
        assert other.counters.accepted == 0 and one.spans.counters.accepted == 8


async def test_spans_that_come_when_all_is_over_are_late_and_their_sender_is_told() -> None:
    async with served() as one:
        one.spans.end()
        response = await one.post(json_body(sent_span(), sent_span(traceId="0" * 32)), JSON)
        assert response.json()["partialSuccess"]["rejectedSpans"] == "2"
        assert (one.inbox.counters.late, one.inbox.counters.accepted, one.inbox.take()) == (1, 0, [])
        assert one.spans.counters.dropped == Counter({Cause.BAD_SPAN: 1})


async def test_one_span_of_two_that_cant_be_kept_is_a_partial_success() -> None:
    async with served() as one:
        response = await one.post(json_body(sent_span(), sent_span(spanId="")), JSON)
        assert response.status_code == 200
        assert response.json()["partialSuccess"]["rejectedSpans"] == "1"
        assert [len(each.delivery.spans()) for each in one.inbox.take()] == [1]


async def test_the_gateway_of_a_sandbox_serves_it_as_a_route() -> None:
    class Host:
        async def listen(self) -> Inlet:
            listener = socket.create_server(("127.0.0.1", 0))
            port = listener.getsockname()[1]
            return Inlet(descriptor=listener.detach(), port=port)

    inbox = Inbox()
    with contextlib.closing(inbox):
        gateway = await GatewayRoom(SystemRandom()).open(Host(), (), {TRACES: AttemptSpans(inbox, 9)})
        try:
            base = gateway.environment["EVALFLEET_GATEWAY"]
            await _export(2, [base])
        finally:
            await gateway.close()
        assert [(each.attempt, len(each.delivery.spans())) for each in inbox.take()] == [(9, 2)]


async def test_nothing_of_a_real_sdk_is_lost_or_taken_for_anothers() -> None:
    await _all_arrive(attempts=20, spans=250)


@pytest.mark.soak
async def test_a_hundred_thousand_spans_of_two_hundred_attempts_and_what_receiving_them_costs() -> None:
    ratio = await _all_arrive(attempts=200, spans=500)
    sys.stdout.write(f"receiving took {ratio:.1f} x the CPU of parsing alone\n")
    assert ratio < 20, "HTTP takes most of it; to decode at receipt would take 35 alone"


async def _all_arrive(attempts: int, spans: int) -> float:
    """Spans of another process arrive, each once and at its own attempt; the CPU beside that of parsing alone."""
    inbox, arrived = Inbox(), list[Arrived]()
    receivers = [AttemptSpans(inbox, number) for number in range(attempts)]
    with contextlib.closing(inbox), ExitStack() as serving:
        async with LoopbackGateway(SystemRandom()) as gateway:
            bases = [serving.enter_context(gateway.serving({TRACES: each})) for each in receivers]
            taking = asyncio.create_task(_take_all(inbox, arrived))
            begun = time.process_time()
            await _export(spans, bases)
            used = time.process_time() - begun
            taking.cancel()
            arrived += inbox.take(attempts * spans)
    found = Counter(
        (each.attempt, span.attributes["of"], span.attributes["number"])
        for each in arrived
        for span in each.delivery.spans()
    )
    assert found == Counter((number, number, each) for number in range(attempts) for each in range(spans))
    assert inbox.counters.accepted == attempts * spans
    assert (+inbox.counters.refused, +inbox.counters.dropped, inbox.counters.late) == (Counter(), Counter(), 0)
    begun = time.process_time()
    for each in arrived:
        ExportTraceServiceRequest().ParseFromString(each.delivery.body)
    alone = time.process_time() - begun
    return used / alone


async def _take_all(inbox: Inbox, into: list[Arrived]) -> None:
    while True:
        await inbox.arrived()
        into += inbox.take()


async def _export(spans: int, bases: list[str]) -> None:
    program = Path(__file__).with_name("exporting.py")
    environment = {**os.environ, "NO_PROXY": "*"}
    process = await asyncio.create_subprocess_exec(sys.executable, program, str(spans), *bases, env=environment)
    assert await process.wait() == 0


async def _raw(one: Served, header: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A request of which only the head is sent."""
    url = httpx.URL(one.base)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    head = b"POST %b%b HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\n" % (
        url.raw_path,
        TRACES.encode(),
    )
    writer.write(head + header + b"\r\n")
    await writer.drain()
    return reader, writer
