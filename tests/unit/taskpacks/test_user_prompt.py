"""What a model is told that plays a user, and which of its replies are one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evalfleet.taskpacks.user_prompt import (
    GUIDELINES,
    REPLY_LIMIT,
    Exchanged,
    InvalidUserReply,
    UserBrief,
    read_user_reply,
    user_messages,
)

BRIEF = UserBrief(story="You sent a lamp.", holds={"licence": (), "invoice": ()})


def said(**fields: Any) -> str:
    return json.dumps({"reply": "Here.", "supplies": ["licence"], "out_of_scope": False, **fields})


@pytest.mark.parametrize(
    "text",
    [
        said(),
        f"```json\n{said()}\n```",
        f"<think>{{a}} licence?</think>\n{said()}",
        f"Of course: {said()}",
        '{"reply": "Here.", "supplies": ["licence"]}',
        '{"reply": "Here.", "supplies": ["licence"], "mood": "fine"}',
    ],
)
def test_a_reply_is_read_whatever_stands_around_it(text: str) -> None:
    reply = read_user_reply(text, BRIEF, ["licence"])
    assert (reply.reply, reply.supplies, reply.out_of_scope) == ("Here.", ["licence"], False)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no JSON object"),
        ("Here you are.", "no JSON object"),
        ("[1]", "no JSON object"),
        ("{" * 100_000, "no JSON object"),
        ('{"reply": ', "no JSON object"),
        (said() + said(), "no JSON object"),
        (said(reply=7), "1 fields are wrong"),
        (said(supplies="licence", reply=None), "2 fields are wrong"),
        (said(reply=" \n"), "the user says nothing"),
        (said(reply="a" * (REPLY_LIMIT + 1)), "more than 8,000 characters"),
        (said(supplies=["passport"]), "'passport', which they don't hold"),
        (said(supplies=["licence", "invoice"]), "'invoice', which nobody asked for"),
    ],
)
def test_nonsense_is_told(text: str, why: str) -> None:
    with pytest.raises(InvalidUserReply, match=why):
        read_user_reply(text, BRIEF, ["licence"])


def test_who_sees_no_answer_need_not_say_anything() -> None:
    assert read_user_reply(said(reply="", out_of_scope=True, supplies=["passport"]), BRIEF, ["licence"]).out_of_scope


def test_the_model_is_told_who_it_is_and_what_was_said() -> None:
    before = [Exchanged(("invoice",), "Send the invoice.", "Here it is.", ("invoice",))]
    system, asked = user_messages(GUIDELINES, BRIEF, before, ["licence"], "And the licence?")
    assert (system.role, asked.role) == ("system", "user")
    assert "You sent a lamp." in system.text and "You hold: licence, invoice." in system.text
    assert asked.text == (
        "The assistant asked for invoice: Send the invoice.\nYou said: Here it is.\n\n"
        "You have handed over: invoice.\n\n"
        "The assistant asks for licence: And the licence?\nWhat do you say?"
    )
