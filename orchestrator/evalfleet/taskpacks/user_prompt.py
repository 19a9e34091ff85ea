"""What a model is told that plays the user of an assignment, and how its reply is read. PURE.

Raise `VERSION` with any change of the words: a manifest tells attempts under other words apart by it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evalfleet.model.judge import JudgeMessage
from evalfleet.taskpacks.responder import ScriptWrite

VERSION = 1

#: Characters of a reply: what a person says in one go is shorter.
REPLY_LIMIT = 8_000

GUIDELINES = """\
You play a person whom an assistant writes to. Stay that person, and speak as one: briefly, in plain sentences.
Say what your story tells and nothing else: make up no fact, no number and no document.
Answer what you are asked and no more. Don't say what the assistant should decide, and don't do its work.
Hand over only what you hold and what is being asked for now. What you don't hold you don't have: say so.
If what you are asked for makes no sense in your story, so that no answer would be yours, set out_of_scope to true."""

_THOUGHTS = re.compile(r"<(think|thinking|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)

#: The form that the reply is asked for in.
SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "reply": {"type": "string"},
        "supplies": {"type": "array", "items": {"type": "string"}},
        "out_of_scope": {"type": "boolean"},
    },
    "required": ["reply", "supplies", "out_of_scope"],
    "additionalProperties": False,
}


class UserBrief(BaseModel):
    """The user of an assignment: `story` is all that the model knows of them, `holds` what they can hand over, by
    requirement, and what the case store then holds.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    story: str = Field(min_length=1)
    holds: dict[str, tuple[ScriptWrite, ...]] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Exchanged:
    """One request of the agent and what the user replied; `supplied` are the requirements that came with it."""

    asked: tuple[str, ...]
    said: str
    reply: str
    supplied: tuple[str, ...]


class UserReply(BaseModel):
    """What the model made the user say. `out_of_scope`: it saw no answer that would be its user's."""

    model_config = ConfigDict(strict=True, frozen=True)

    reply: str
    supplies: list[str] = Field(default_factory=list)
    out_of_scope: bool = False


class InvalidUserReply(ValueError):
    """A reply that is none of a user; the message says why."""


def user_messages(
    guidelines: str, brief: UserBrief, before: Sequence[Exchanged], asked: Iterable[str], said: str
) -> tuple[JudgeMessage, ...]:
    """The messages of one call: who the user is, the conversation so far, and what is asked now."""
    held = ", ".join(brief.holds) or "nothing"
    form = 'Answer with one JSON object: {"reply": "…", "supplies": ["…"], "out_of_scope": false}.'
    system = f"{guidelines}\n\nYour story:\n{brief.story}\n\nYou hold: {held}.\n{form}"
    told = [f"The assistant asked for {_names(each.asked)}: {each.said}\nYou said: {each.reply}" for each in before]
    given = sorted({name for each in before for name in each.supplied})
    told += [f"You have handed over: {', '.join(given)}."] if given else []
    told.append(f"The assistant asks for {_names(asked)}: {said}\nWhat do you say?")
    return JudgeMessage("system", system), JudgeMessage("user", "\n\n".join(told))


def read_user_reply(text: str, brief: UserBrief, asked: Iterable[str]) -> UserReply:
    """The reply in a model's text. Raises InvalidUserReply when it is none that this user could give."""
    found = _THOUGHTS.sub("", text)
    try:
        raw = json.loads(found[found.index("{") : found.rindex("}") + 1])
        reply = UserReply.model_validate(raw)
    except (ValueError, RecursionError) as error:
        what = f"{error.error_count()} fields are wrong" if isinstance(error, ValidationError) else "no JSON object"
        raise InvalidUserReply(f"the reply is none in the form that was asked for: {what}") from None
    if reply.out_of_scope:
        return reply
    if not reply.reply.strip():
        raise InvalidUserReply("the user says nothing")
    if len(reply.reply) > REPLY_LIMIT:
        raise InvalidUserReply(f"the user says more than {REPLY_LIMIT:,} characters")
    wanted = frozenset(asked)
    for name in reply.supplies:
        if name not in brief.holds:
            raise InvalidUserReply(f"the user hands over {name[:80]!r}, which they don't hold")
        if name not in wanted:
            raise InvalidUserReply(f"the user hands over {name!r}, which nobody asked for")
    return reply


def _names(asked: Iterable[str]) -> str:
    return ", ".join(asked) or "nothing in particular"
