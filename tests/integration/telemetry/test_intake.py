"""A worker's spans on their way into the record store: none is lost between the queue and the end of the worker."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from evalfleet.api.span_intake import SpanIntake, SpanRun, open_intake
from evalfleet.clock import SystemClock
from evalfleet.execution.outlets import SpanOutlet
from evalfleet.model.experiment import Telemetry
from evalfleet.randomness import SystemRandom
from evalfleet.redact import Redactor
from evalfleet.store.reader import Reader
from tests.integration.store.samples import started
from tests.unit.execution.conftest import a_job
from tests.unit.telemetry.bodies import json_body, request_of, sent_span

PROTOBUF, JSON = {"content-type": "application/x-protobuf"}, {"content-type": "application/json"}
HIDDEN = Redactor((), (re.compile("ses[a-z]+"),))


@asynccontextmanager
async def intake(database: str, hidden: Redactor = HIDDEN) -> AsyncGenerator[tuple[SpanIntake, SpanOutlet]]:
    """An intake of run r1 with the outlet of its attempt 11; closed like a worker's."""
    run, recorder = await started(database)
    telemetry = Telemetry(receive=True, grace=0.05)
    spans = SpanRun(id="r1", key=run.run_key, telemetry=telemetry, hidden=hidden)
    made = await open_intake(spans, database, SystemClock(), SystemRandom())
    outlet = await made.open(a_job(print), lambda: hidden)
    try:
        yield made, outlet
    finally:
        outlet.end()
        await made.close()
        await recorder.close()


async def send(outlet: SpanOutlet, body: bytes, headers: dict[str, str]) -> int:
    address = outlet.environment()["OTEL_EXPORTER_OTLP_ENDPOINT"] + "/v1/traces"
    async with httpx.AsyncClient(trust_env=False) as client:
        return (await client.post(address, content=body, headers=headers)).status_code


async def kept(database: str) -> int:
    reader = Reader(database)
    try:
        return sum(spans for _, _, spans in await reader.spans("r1", 11))
    finally:
        await reader.close()


class Slow(Redactor):
    """Takes its time for each text, so that a write is under way for long."""

    def text(self, text: str) -> str:
        time.sleep(0.02)
        return Redactor.text(self, text)


@pytest.mark.parametrize("pause", [0.0, 0.5])
async def test_what_was_answered_is_kept_whenever_the_worker_ends(database: str, pause: float) -> None:
    """Before the first write, and in the middle of one."""
    async with intake(database, Slow((), HIDDEN.patterns)) as (_, outlet):
        for number in range(8):
            assert await send(outlet, request_of(f"sesame {number}", "more").SerializeToString(), PROTOBUF) == 200
        await asyncio.sleep(pause)
    assert await kept(database) == 16


async def test_a_body_that_nobody_can_rid_of_secrets_costs_no_other_one(database: str) -> None:
    deep: Any = "sesame"
    for _ in range(700):
        deep = [deep]
    hostile = json.loads(json_body(sent_span())) | {"unknown": deep}
    async with intake(database) as (made, outlet):
        assert await send(outlet, json.dumps(hostile).encode(), JSON) == 200
        for name in ("sesame", "plain"):
            assert await send(outlet, json_body(sent_span(name=name)), JSON) == 200
        await made.close()
    reader = Reader(database)
    bodies = [body for _, body, _ in await reader.spans("r1", 11)]
    assert len(bodies) in (2, 3) and not any(b"sesame" in body for body in bodies)
    dropped = (await reader.span_counts("r1")).dropped
    assert dropped == ({"bad_body": 1} if len(bodies) == 2 else {})
    await reader.close()
