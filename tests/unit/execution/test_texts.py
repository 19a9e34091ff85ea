"""What leaves an attempt as text: redacted, shortened, without our frames."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalfleet.errors import ConfigurationError, SendFailure
from evalfleet.execution.tracebacks import short_path, traceback_text
from evalfleet.model.turn import Turn
from evalfleet.redact import REPLACEMENT, Redactor, shorten
from evalfleet.testing.fakes import FakeSecrets

around = st.text(alphabet="abc [].", max_size=20)


@given(st.text(alphabet="0123456789%/", min_size=6), st.lists(around, min_size=1, max_size=4))
def test_no_secret_survives(secret: str, parts: list[str]) -> None:
    redacted = Redactor.of([secret]).text(secret.join(parts))
    assert secret not in redacted
    assert redacted == REPLACEMENT.join(parts)


@pytest.mark.parametrize(
    ("text", "secrets", "expected"),
    [
        ("key sk-123456 used", ["sk-123456"], "key [secret] used"),
        ("GET /?k=a%2Fb%20c%2B", ["a/b c+"], "GET /?k=[secret]"),
        ("abcdefgh abcdef", ["abcdef", "abcdefgh"], "[secret] [secret]"),
        ("the cats", ["cats"], "the cats"),  # too short to be one
        ("lone \ud800 stays", ["\ud800abcde"], "lone \ud800 stays"),
    ],
)
def test_secrets_are_replaced_as_they_are_and_in_urls(text: str, secrets: list[str], expected: str) -> None:
    assert Redactor.of(secrets).text(text) == expected


def test_shortening_keeps_both_ends_and_says_what_is_missing() -> None:
    short = shorten("a" * 1000 + "z" * 1000, 300)
    assert short.startswith("a" * 200) and short.endswith("z" * 100)
    assert "1700 characters left out" in short
    assert shorten("x" * 300, 300) == "x" * 300


def test_redaction_comes_before_shortening() -> None:
    assert "sk-12" not in Redactor.of(["sk-123456"]).safe("x" * 195 + "sk-123456" + "y" * 500, 300)


async def test_resolved_secrets_never_reach_a_message_a_failure_or_a_diagnostic(attempt: Any) -> None:
    async def answer(turn: Any, ctx: Any) -> Turn:
        key = ctx.secrets.resolve("KEY")
        ctx.log(f"calling with {key}")
        raise SendFailure(f"401 for {key}")

    async def body(t: Any) -> None:
        t.log("before it is known: sk-very-secret")
        await t.send("x")

    evidence = await attempt(body, answer, using={"secrets": FakeSecrets({"KEY": "sk-very-secret"})})
    assert "sk-very-secret" not in repr(evidence)
    assert evidence.summary.message == "401 for [secret]"
    assert "calling with [secret]" in evidence.diagnostics
    assert "before it is known: [secret]" in evidence.diagnostics


async def test_a_missing_secret_names_itself(attempt: Any) -> None:
    async def answer(turn: Any, ctx: Any) -> Turn:
        ctx.secrets.resolve("KEY")
        raise AssertionError

    async def body(t: Any) -> None:
        await t.send("x")

    assert "the secret KEY is not set" in (await attempt(body, answer)).summary.message


async def test_a_huge_message_is_shortened_and_the_evidence_is_not(attempt: Any) -> None:
    async def body(t: Any) -> None:
        await t.send("y" * 100_000)
        raise ValueError("x" * 100_000)

    evidence = await attempt(body)
    assert len(evidence.summary.message) < 2_100
    assert len(evidence.turns[0].reply) == 100_000
    assert evidence.summary.reply == "y" * 240


async def test_diagnostics_are_bounded_in_number(attempt: Any) -> None:
    async def body(t: Any) -> None:
        for number in range(1_500):
            t.log(number)
        (await t.send("x")).succeeded()

    evidence = await attempt(body)
    assert len(evidence.diagnostics) == 1_001
    assert evidence.diagnostics[-1] == "500 more diagnostics were not kept"


class Locked(Exception):
    """An error that can't be pickled, copied or rebuilt (RY-01)."""

    def __init__(self, *, code: int) -> None:
        super().__init__("boom")
        self.lock = asyncio.Lock()
        self.logger = logging.getLogger()


def fails_deeply(depth: int) -> None:
    if depth:
        fails_deeply(depth - 1)
    raise Locked(code=1)


async def test_errors_cross_as_text_with_the_authors_frames_only(attempt: Any) -> None:
    async def body(t: Any) -> None:
        try:
            fails_deeply(1)
        except Locked as error:
            raise ValueError("wrapped") from error

    evidence = await attempt(body)
    [text] = evidence.diagnostics
    assert "Locked: boom" in text and "ValueError: wrapped" in text
    assert text.index("Locked: boom") < text.index("ValueError: wrapped")
    assert "raise Locked(code=1)" in text
    assert "evalfleet" not in text and str(Path.home()) + "/" not in text


def test_a_deep_recursion_is_cut_in_the_middle() -> None:
    with pytest.raises(Locked) as caught:
        fails_deeply(200)
    text = traceback_text(caught.value, None)
    assert "frames …" in text and text.count("fails_deeply") < 80


def test_a_chain_that_bites_its_tail_ends() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    assert traceback_text(first, None).count("ValueError") == 2


@pytest.mark.parametrize(
    ("path", "project", "expected"),
    [
        ("/home/me/project/evals/a.eval.py", "/home/me/project", "evals/a.eval.py"),
        ("/usr/lib/python3/site-packages/lib/x.py", "/home/me/project", "lib/x.py"),
        ("<string>", "/home/me/project", "<string>"),
    ],
)
def test_paths_name_no_home(path: str, project: str, expected: str) -> None:
    assert short_path(path, Path(project)) == expected


def test_a_missing_configuration_is_described() -> None:
    assert "ConfigurationError: no key" in traceback_text(ConfigurationError("no key"), None)
