"""A judge's reply, read strictly: one ruling, whose number is never clamped and never taken from what it quotes. PURE.

Models wrap their JSON in fences, prose and thoughts; what had to be forgiven is named in the ruling's `repairs`. Of
several objects only the one with the prompt's ticket counts. Without any ticket there may be one ruling, and it may
not stand in the material: a candidate that writes its own verdict must not be heard.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from evalfleet.grading.judge_prompts import JudgePrompt
from evalfleet.model.judge import Ruling

#: Characters of a reply without its thoughts, and of material that is searched: a ruling is three short fields.
REPLY_LIMIT = 1 << 16
#: Characters of a rationale that are kept.
RATIONALE_LIMIT = 4_000

_THOUGHT_END = re.compile(r"</(?:think|thinking|reasoning)>", re.IGNORECASE)
_THOUGHT_BEGIN = re.compile(r"<(?:think|thinking|reasoning)>", re.IGNORECASE)
_FENCE = re.compile(r"```[\w-]*\s*```")
_SPECIAL = re.compile(r'[{}"\\]')
_STRING_OR_TRAILING_COMMA = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])', re.DOTALL)
_LABELLED = re.compile(r"\bverdict\b[\s\"'*_`:=]{1,8}(\w+)", re.IGNORECASE)

#: What a field holds that an object names twice.
_TWICE = object()


class InvalidReply(ValueError):
    """A reply that holds no ruling; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class _Found:
    """An object in a text: its fields, where it stands, and what had to be forgiven to read it."""

    fields: Mapping[str, Any]
    start: int
    end: int
    repair: str | None


def read_reply(text: str, prompt: JudgePrompt) -> Ruling:
    """The ruling of a reply to `prompt`. Raises InvalidReply when there is not exactly one, or it is none."""
    body, repairs = _without_thoughts(text)
    if len(body) > REPLY_LIMIT:
        raise InvalidReply(f"the reply is longer than {REPLY_LIMIT:,} characters")
    if "{" not in body and prompt.choices is not None:
        return _labelled(body, prompt, repairs)
    field = "score" if prompt.choices is None else "verdict"
    found = _chosen(list(_objects(body)), field, prompt)
    if "ticket" not in found.fields:
        repairs.append("no ticket")
    around = (body[: found.start] + body[found.end :]).strip()
    if around:
        repairs.append("code fence" if _FENCE.fullmatch(around) else "text around the object")
    if found.repair is not None:
        repairs.append(found.repair)
    rationale = found.fields.get("rationale")
    label: str | None = None
    if prompt.choices is None:
        score = _score(found.fields[field], repairs)
    else:
        label, score = _choice(found.fields[field], prompt.choices)
    return Ruling(
        score=score,
        label=label,
        rationale=rationale[:RATIONALE_LIMIT] if isinstance(rationale, str) else None,
        repairs=tuple(repairs),
    )


def _without_thoughts(text: str) -> tuple[str, list[str]]:
    """The text after the model's thoughts, whether it opened their tag or its template did."""
    body = text.strip()
    if body.startswith("{"):
        return body, []
    ends = [found.end() for found in _THOUGHT_END.finditer(body)]
    if ends:
        body = body[ends[-1] :].strip()
    if _THOUGHT_BEGIN.search(body):
        raise InvalidReply("the reply ends amid the model's thoughts")
    return body, ["thoughts left out"] if ends else []


def _chosen(objects: list[_Found], field: str, prompt: JudgePrompt) -> _Found:
    rulings = [each for each in objects if field in each.fields]
    if not rulings:
        raise InvalidReply(f"the reply has no {field}")
    ticketed = [each for each in rulings if each.fields.get("ticket") == prompt.ticket]
    if not ticketed:
        if any("ticket" in each.fields for each in rulings):
            raise InvalidReply("the reply has another ticket than the one it was given")
        if sum(map(len, prompt.quoted)) > REPLY_LIMIT:
            raise InvalidReply("the reply has no ticket")
        quoted = [each.fields for text in prompt.quoted for each in _objects(text)]
        ticketed = [each for each in rulings if each.fields not in quoted]
        if not ticketed:
            raise InvalidReply(f"the only {field} in the reply is quoted from the material")
    first, *others = ticketed
    if any(each.fields[field] != first.fields[field] for each in others):
        raise InvalidReply(f"the reply has more than one {field}")
    return first


def _objects(text: str) -> Iterator[_Found]:
    """The outermost JSON objects of a text. What can't be read is passed over whole, never searched inside."""
    at = 0
    while (start := text.find("{", at)) >= 0:
        end = _closing(text, start)
        if end is None:
            return
        part = text[start:end]
        for read, repair in ((_strict, None), (_without_commas, "trailing comma"), (_literal, "single quotes")):
            value = read(part)
            if value is not None:
                yield _Found(value, start, end, repair)
                break
        at = end


def _closing(text: str, start: int) -> int | None:
    """Where the object that begins at `start` ends; None when it does not."""
    depth, at, in_string = 0, start, False
    while (found := _SPECIAL.search(text, at)) is not None:
        at = found.end()
        match found[0]:
            case "\\":
                at += in_string
            case '"':
                in_string = not in_string
            case brace if not in_string:
                depth += 1 if brace == "{" else -1
                if depth == 0:
                    return at
            case _:
                pass
    return None


def _fields_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in pairs:
        fields[name] = _TWICE if name in fields else value
    return fields


def _strict(part: str) -> dict[str, Any] | None:
    try:
        return cast("dict[str, Any]", json.loads(part, object_pairs_hook=_fields_once))
    except (ValueError, RecursionError):
        return None


def _without_commas(part: str) -> dict[str, Any] | None:
    return _strict(_STRING_OR_TRAILING_COMMA.sub(lambda found: found[1] or "", part))


def _literal(part: str) -> dict[str, Any] | None:
    """An object as Python writes one; only a flat one, since nothing else is a ruling."""
    if part.count("{") > 1:
        return None
    try:
        value: Any = ast.literal_eval(part)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _score(value: Any, repairs: list[str]) -> float:
    if isinstance(value, bool):
        repairs.append("a Boolean for a number")
        return float(value)
    if value is _TWICE:
        raise InvalidReply("the reply has more than one score")
    if not isinstance(value, (int, float)):
        kind = "null" if value is None else f"a {type(value).__name__}"
        raise InvalidReply(f"the score is {kind}, not a number")
    if not 0 <= value <= 1:  # neither is NaN
        raise InvalidReply(f"the score {value!s:.20} is not in [0, 1]")
    return abs(float(value))


def _choice(value: Any, choices: Mapping[str, float]) -> tuple[str, float]:
    said = value.strip().casefold() if isinstance(value, str) else None
    for label, score in choices.items():
        if label.casefold() == said:
            return label, score
    if value is _TWICE:
        raise InvalidReply("the reply has more than one verdict")
    raise InvalidReply(f"the verdict is none of {', '.join(choices)}")


def _labelled(body: str, prompt: JudgePrompt, repairs: list[str]) -> Ruling:
    """The verdict of a reply in prose, read from what follows the word and from nowhere else."""
    said = {found.casefold() for found in _LABELLED.findall(body)}
    known = {label.casefold() for label in prompt.choices or {}}
    heard = said & known
    quoted = {found.casefold() for text in prompt.quoted for found in _LABELLED.findall(text)}
    if len(heard) != 1 or heard & quoted:
        raise InvalidReply("the reply has no verdict" if not heard else "the reply has more than one verdict")
    label, score = _choice(heard.pop(), prompt.choices or {})
    return Ruling(score=score, label=label, repairs=(*repairs, "prose for an object"))
