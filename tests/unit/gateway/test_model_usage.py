"""What the meter reads of answers, however they are cut."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evalfleet.gateway.model_usage import READ_LIMIT, Meter, usage_of
from evalfleet.model.usage import Usage


@pytest.mark.parametrize(
    ("given", "usage"),
    [
        ({}, None),
        ({"prompt_tokens": "x"}, None),
        ({"prompt_tokens": 10, "completion_tokens": 5}, Usage(input_tokens=10, output_tokens=5, requests=1)),
        (
            {
                "input_tokens": 130,
                "input_tokens_details": {"cached_tokens": 30},
                "output_tokens": 20,
                "output_tokens_details": {"reasoning_tokens": 5},
            },
            Usage(input_tokens=100, output_tokens=20, cache_read_tokens=30, reasoning_tokens=5, requests=1),
        ),
        (
            {"input_tokens": 5, "cache_creation_input_tokens": 7, "cache_read_input_tokens": 30, "output_tokens": 2},
            Usage(input_tokens=5, output_tokens=2, cache_read_tokens=30, cache_write_tokens=7, requests=1),
        ),
    ],
)
def test_buckets_exclude_each_other(given: dict[str, Any], usage: Usage | None) -> None:
    assert usage_of(given) == usage


MESSAGES = (
    b'event: message_start\ndata: {"message": {"usage": {"input_tokens": 5, "cache_read_input_tokens": 3, '
    b'"output_tokens": 1}}}\n\nevent: message_delta\ndata: {"usage": {"output_tokens": 9, "input_tokens": null}}\n\n'
)
RESPONSES = (
    b'data: {"type": "response.completed", "response": {"usage": {"input_tokens": 5, "output_tokens": 9}}}\r\n\r\n'
)
CHAT = (
    b'data: {"usage": null}\n\ndata: {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 9}}\n\n'
    b"data: [DONE]\n\n"
)


@pytest.mark.parametrize("stream", [MESSAGES, RESPONSES, CHAT], ids=["messages", "responses", "chat"])
def test_a_stream_is_read_however_it_is_cut(stream: bytes) -> None:
    for size in (1, 2, 7, 50, 10_000):
        meter = Meter(streamed=True)
        for start in range(0, len(stream), size):
            meter.take(stream[start : start + size])
        usage = meter.usage
        assert usage is not None and (usage.input_tokens, usage.output_tokens) == (5, 9), size


def test_an_answer_that_is_too_large_is_not_read_and_not_kept() -> None:
    meter = Meter(streamed=False)
    meter.take(json.dumps({"usage": {"prompt_tokens": 1, "completion_tokens": 1}}).encode())
    assert meter.usage is not None
    meter.take(b" " * READ_LIMIT)
    meter.take(b" " * READ_LIMIT)
    assert meter.usage == Usage(input_tokens=1, output_tokens=1, requests=1), "what was read before stays"
