"""What is kept of an attempt holds no secret, whatever form it came in; what it is judged by does."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalfleet.assertions import matchers
from evalfleet.model.assertion import Result
from evalfleet.model.events import Message, OperationFinished, OperationStarted, Role
from evalfleet.model.turn import Turn
from evalfleet.redact import REPLACEMENT, Redactor, shorten
from evalfleet.redacted_values import redacted
from evalfleet.testing.fakes import FakeSecrets

KEY = "sk-very/secret+key\"of 'mine'=="
KNOWS = Redactor.of([KEY])
plain = st.text(alphabet="xyz {}", max_size=30)


@pytest.mark.parametrize(
    "form",
    [
        KEY,
        quote(KEY, safe=""),
        quote(KEY),
        json.dumps({"key": KEY}),
        repr(KEY),
        KEY.replace('"', "&quot;").replace("'", "&#x27;"),
        base64.b64encode(KEY.encode()).decode(),
        base64.b64encode(f"user:{KEY}".encode()).decode(),
        base64.b64encode(f"u:{KEY}:x".encode()).decode(),
        base64.urlsafe_b64encode(f"ab:{KEY}".encode()).decode(),
        f"{KEY}\n"[:-1],
    ],
)
def test_each_form_of_a_secret_is_replaced(form: str) -> None:
    kept = KNOWS.text(f"before {form} behind")
    assert REPLACEMENT in kept and kept.startswith("before ") and kept.endswith(" behind")
    for at in range(0, len(KEY) - 12):
        assert KEY[at : at + 12] not in kept


@given(st.text(min_size=6, max_size=60), plain, plain)
def test_no_base64_of_something_that_holds_a_secret_shows_it(secret: str, before: str, behind: str) -> None:
    data = f"{before}{secret}{behind}".encode("utf-8", "surrogatepass")
    kept = Redactor.of([secret]).text(base64.b64encode(data).decode())
    if len(secret.encode("utf-8", "surrogatepass")) >= 14:
        assert REPLACEMENT in kept


@pytest.mark.parametrize("length", range(8, 30))
def test_what_a_cut_left_of_a_secret_goes_too(length: int) -> None:
    secret = "sk-0123456789-abcdefghij-KLMNOPQRST"
    knows = Redactor.of([secret])
    assert knows.text(f"it said {secret[:length]}") == f"it said {REPLACEMENT}"
    assert knows.text(f"'it said {secret[:length]}…'") == f"'it said {REPLACEMENT}…'"
    assert knows.text(f"…{secret[-length:]} and more") == f"…{REPLACEMENT} and more"
    assert secret[:8] not in knows.text(shorten("x" * (200 - length) + secret + "y" * 500, 300))
    assert secret[-8:] not in knows.text(shorten("x" * 500 + secret + "y" * (100 - length), 300))


def test_a_word_that_begins_like_a_secret_stays() -> None:
    knows = Redactor.of(["sk-0123456789-abcdefghij"])
    assert knows.text("sk-01234 is a prefix") == "sk-01234 is a prefix"
    assert knows.text("sk-0123456789-other keys") == "sk-0123456789-other keys"


def test_a_secret_that_looks_like_its_replacement_ends() -> None:
    secret = f"sk-123456789{REPLACEMENT}"
    assert Redactor.of([secret]).text(f"…{REPLACEMENT} and {secret}") == f"…{REPLACEMENT} and {REPLACEMENT}"
    assert secret not in repr(Redactor.of([secret]))


def test_a_key_of_many_lines_is_replaced_line_by_line() -> None:
    pem = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQEFAASC\n-----END KEY-----\n"
    diff = "".join(f"+{line}\n" for line in pem.splitlines())
    assert Redactor.of([pem]).text(diff) == f"+{REPLACEMENT}\n" * 4


def test_a_key_with_a_line_end_is_found_without_it() -> None:
    assert Redactor.of(["sk-123456789\n"]).text("Bearer sk-123456789") == f"Bearer {REPLACEMENT}"


def test_patterns_find_what_nobody_named() -> None:
    knows = Redactor.of([], [re.compile(r"\b\d{4}-\d{4}\b")])
    assert knows.text("card 1234-5678, not 12345") == f"card {REPLACEMENT}, not 12345"
    assert knows and not Redactor.of(["short"])


def test_bytes_need_not_be_text() -> None:
    assert KNOWS.data(b"\xff" + KEY.encode() + b"\x00") == b"\xff" + REPLACEMENT.encode() + b"\x00"
    assert KNOWS.data(f"+{KEY}\n".encode()) == f"+{REPLACEMENT}\n".encode()
    untouched = b"nothing"
    assert KNOWS.data(untouched) is untouched


@dataclass(frozen=True, slots=True)
class Leaf:
    text: str
    items: tuple[Any, ...] = ()


def test_values_are_walked_however_deep_and_what_holds_nothing_stays_itself() -> None:
    value = Leaf("x", ({"a": [Leaf(KEY), 1, None, True]}, {KEY: "in a key"}, Role.USER))
    kept = redacted(value, KNOWS)
    assert kept == Leaf("x", ({"a": [Leaf(REPLACEMENT), 1, None, True]}, {REPLACEMENT: "in a key"}, Role.USER))
    innocent = Leaf("x", ({"a": [Leaf("y")]},))
    assert redacted(innocent, KNOWS) is innocent
    assert redacted(value, Redactor()) is value


async def test_the_agent_is_judged_by_what_it_said_and_the_record_does_not_show_it(attempt: Any) -> None:
    async def answer(turn: Any, ctx: Any) -> Turn:
        key = ctx.secrets.resolve("KEY")
        events = (
            OperationStarted("1", "curl", {"header": f"Bearer {key}", key: 1}),
            OperationFinished("1", output={"echo": [key]}),
            Message(Role.ASSISTANT, f"I used {key}"),
        )
        return Turn(reply=f"I used {key}", data={"key": key}, events=events)

    async def body(t: Any) -> None:
        turn = await t.send("which key?")
        t.check(turn.reply, matchers.includes(KEY))
        t.check(turn.reply, matchers.equals(f"{KEY} alone"))
        await t.send(f"was it {KEY}?")

    evidence = await attempt(body, answer, using={"secrets": FakeSecrets({"KEY": KEY})})
    assert [row.outcome.result for row in evidence.assertions[:2]] == [Result.MATCHED, Result.MISMATCHED]
    assert "secret+key" not in repr(evidence)
    assert evidence.turns[0].reply == f"I used {REPLACEMENT}"
    assert evidence.turns[1].input.text == f"was it {REPLACEMENT}?"
    assert dict(evidence.turns[0].data) == {"key": REPLACEMENT}
