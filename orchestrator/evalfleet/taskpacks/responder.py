"""The scripted responder: what the other side answers when it is asked for requirements. PURE, and no model.

A rule speaks on the *set* of requirement ids that were asked for, on the turn and on what was supplied before; the
first that fits, in the order declared, answers, and may supply a part of what was asked for only. Where no rule fits
there is no answer: the attempt ends ungraded, since its script and not its agent is at fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Protocol, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, model_validator

from evalfleet.taskpacks.state import Record

#: The code of an attempt whose agent asked for what the script does not know.
RESPONDER_NO_RULE = "RESPONDER_NO_RULE"

#: A set of ids; as JSON in an order of its own, so that digests of it are the same everywhere.
Names: TypeAlias = Annotated[frozenset[str], PlainSerializer(sorted, return_type=list[str])]


class ScriptWrite(BaseModel):
    """A record that the responder adds, or fields that it sets in the record `key`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    collection: str
    key: str | None = None
    record: dict[str, Any] = Field(min_length=1)


class ScriptRule(BaseModel):
    """One rule. `asked` are requirement ids and `how` they compare with what was asked for: `exactly` these, `all` of
    them and perhaps more, or `any` of them. `turn` counts the responder's answers from 1, `supplied` names what must
    have been supplied before. A `fallback` fits whatever is asked. With `once` it answers a single time.

    `supplies` says which requirements the reply brings, `writes` what the case store then holds.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(min_length=1)
    asked: Names = frozenset()
    how: Literal["exactly", "all", "any"] = "exactly"
    turn: int | None = Field(None, ge=1)
    supplied: Names = frozenset()
    fallback: bool = False
    once: bool = False
    reply: str = Field(min_length=1)
    supplies: Names = frozenset()
    writes: tuple[ScriptWrite, ...] = ()

    @model_validator(mode="after")
    def _speaks_of_something(self) -> ScriptRule:
        if self.fallback == bool(self.asked):
            raise ValueError("a rule names what is `asked`, or is the `fallback`")
        return self


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far the script has come: the answers given, how often each rule fired, what was supplied."""

    answers: int = 0
    fired: Mapping[str, int] = field(default_factory=dict[str, int])
    supplied: frozenset[str] = frozenset()

    def document(self) -> dict[str, Any]:
        """The cursor as JSON."""
        return {"answers": self.answers, "fired": dict(self.fired), "supplied": sorted(self.supplied)}


def read_cursor(record: Record | None) -> Cursor:
    """The cursor of a record that the harness keeps; a fresh one without."""
    if record is None:
        return Cursor()
    return Cursor(record["answers"], dict(record["fired"]), frozenset(record["supplied"]))


@dataclass(frozen=True, slots=True)
class Answer:
    """What the responder says and does. `asked_again` had been supplied before. `said` is what a trace must keep to
    repeat an answer that no script would give again.
    """

    rule: ScriptRule
    cursor: Cursor
    asked_again: frozenset[str]
    said: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Responder(Protocol):
    """Who answers the agent of one attempt."""

    def document(self) -> dict[str, Any]:
        """Who it is, and whether it answers the same each time, as JSON."""
        ...

    async def answer(self, asked: Sequence[str], said: str, cursor: Cursor) -> Answer | None:
        """What it answers to who asks for requirements and says that; None when it has no answer."""
        ...


class Script:
    """The responder that a list of rules is."""

    def __init__(self, rules: Sequence[ScriptRule]) -> None:
        self._rules = tuple(rules)

    def document(self) -> dict[str, Any]:
        return {"kind": "script", "deterministic": True}

    async def answer(self, asked: Sequence[str], said: str, cursor: Cursor) -> Answer | None:
        return answer(self._rules, asked, cursor)


def answer(rules: Sequence[ScriptRule], asked: Iterable[str], cursor: Cursor) -> Answer | None:
    """The answer of the first rule that fits, None when none does."""
    wanted = frozenset(asked)
    rule = next((rule for rule in rules if _fits(rule, wanted, cursor)), None)
    if rule is None:
        return None
    fired = {**cursor.fired, rule.id: cursor.fired.get(rule.id, 0) + 1}
    after = Cursor(cursor.answers + 1, fired, cursor.supplied | rule.supplies)
    return Answer(rule, after, wanted & cursor.supplied)


def _fits(rule: ScriptRule, asked: frozenset[str], cursor: Cursor) -> bool:
    if rule.once and cursor.fired.get(rule.id):
        return False
    if rule.turn not in (None, cursor.answers + 1) or not rule.supplied <= cursor.supplied:
        return False
    if rule.fallback:
        return True
    compared = {"exactly": asked == rule.asked, "all": rule.asked <= asked, "any": bool(rule.asked & asked)}
    return compared[rule.how]
