"""What a judge's chat completion holds: usage in exclusive buckets, and text for messages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evalfleet.grading.judge_wire import SHOWN_TEXT, host_of, provider_text, read_completion, shown, wait_asked
from evalfleet.model.usage import Usage
from evalfleet.testing.model_endpoint import completion


@pytest.mark.parametrize(
    ("raw", "usage"),
    [
        (None, None),
        ("much", None),
        ({"prompt_tokens": "12"}, None),
        ({"prompt_tokens": 12, "completion_tokens": None}, Usage(input_tokens=12, requests=1)),
        ({"prompt_tokens": True, "completion_tokens": 3}, Usage(output_tokens=3, requests=1)),
        ({"prompt_tokens": -1, "completion_tokens": 3}, Usage(output_tokens=3, requests=1)),
        ({"prompt_tokens": 1 << 70, "completion_tokens": 3}, Usage(output_tokens=3, requests=1)),
        (
            {
                "prompt_tokens": 100,
                "completion_tokens": 20,
                "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
                "completion_tokens_details": {"reasoning_tokens": 15},
                "cost": 0.5,
            },
            Usage(
                input_tokens=30,
                output_tokens=20,
                cache_read_tokens=60,
                cache_write_tokens=10,
                reasoning_tokens=15,
                requests=1,
                cost_usd=0.5,
            ),
        ),
        (
            {"prompt_tokens": 5, "prompt_cache_hit_tokens": 60, "prompt_tokens_details": [], "cost": "none"},
            Usage(input_tokens=5, cache_read_tokens=60, requests=1),
        ),
    ],
)
def test_usage_in_buckets_that_exclude_each_other(raw: Any, usage: Usage | None) -> None:
    document = {**completion("fine"), "usage": raw}
    assert read_completion(json.dumps(document).encode()).usage == usage


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("", None),
        ("soon", None),
        ("-1", None),
        ("nan", None),
        ("1" * 400, None),
        ("0", 0.0),
        (" 1.5 ", 1.5),
        ("Thu, 01 Jan 1970 00:02:00 GMT", 20.0),
        ("Thu, 01 Jan 1970 00:02:00 -0000", 20.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
    ],
)
def test_the_wait_that_is_asked_for(value: str, seconds: float | None) -> None:
    assert wait_asked(value, now=100.0) == seconds


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"error": {"message": "no", "code": 1}}', "no"),
        (b'{"error": "no"}', "no"),
        (b'{"detail": "no"}', '{"detail": "no"}'),
        (b"\xff", "\ufffd"),
        (b"[" * 100_000, "[" * 100_000),
    ],
)
def test_what_a_body_says_went_wrong(body: bytes, text: str) -> None:
    assert provider_text(body) == text


@pytest.mark.parametrize("before", range(SHOWN_TEXT - 12, SHOWN_TEXT + 2))
def test_no_cut_leaves_a_part_of_the_key(before: int) -> None:
    text = shown("x" * before + "sk-1234567" + "x" * 300, "sk-1234567")
    assert "sk-" not in text
    assert len(text) <= SHOWN_TEXT


def test_a_text_is_shown_in_one_line_and_a_stand_in_for_a_key_shreds_nothing() -> None:
    assert shown("no\r\n\tsuch model", "x") == "no such model"
    assert shown("extra", "x") == "extra"


def test_a_key_is_not_shown_as_it_stands_in_a_url() -> None:
    assert shown("no route to /v1?key=sk%2F1234%3D", "sk/1234=") == "no route to /v1?key=[secret]"


@pytest.mark.parametrize(
    ("base_url", "host"),
    [
        ("https://api.openai.com/v1", "api.openai.com"),
        ("http://user:pass@localhost:8000/v1", "localhost:8000"),
        ("http://[::1", "an unreadable base_url"),
        ("http://h:x/", "an unreadable base_url"),
        ("", "an unreadable base_url"),
    ],
)
def test_a_host_without_credentials(base_url: str, host: str) -> None:
    assert host_of(base_url) == host
