"""One row of a Task pack: where an attempt starts, what the agent is told, what is right, and what is answered."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from evalfleet.taskpacks.graders import Gold
from evalfleet.taskpacks.responder import Names, ScriptRule
from evalfleet.taskpacks.user_prompt import UserBrief


class GoldPoint(BaseModel):
    """What is right after turn `at`, from 1; without `at`, in the end."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    at: int | None = Field(None, ge=1)
    decision: str = Field(min_length=1)
    unmet: Names = frozenset()

    @property
    def gold(self) -> Gold:
        return Gold(self.decision, self.unmet)


class Assignment(BaseModel):
    """A row. `snapshot` holds the records of the case store by collection; the agent reads nothing else of the row but
    the `prompt`. With a `script`, or a `user` that the pack's model plays, the conversation goes on, for up to
    `max_turns` sends, while the agent asks.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(min_length=1)
    profile: str = ""
    prompt: str = Field(min_length=1)
    snapshot: dict[str, list[dict[str, Any]]]
    gold: tuple[GoldPoint, ...] = Field(min_length=1)
    script: tuple[ScriptRule, ...] = ()
    user: UserBrief | None = None
    max_turns: int = Field(4, ge=1, le=50)
    facts: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _ends_once(self) -> Assignment:
        ends = [point.at for point in self.gold]
        if ends.count(None) != 1 or len(set(ends)) != len(ends):
            raise ValueError("gold has one point without `at`, the end, and at most one for each turn")
        if self.script and self.user is not None:
            raise ValueError("either the script answers or the user that a model plays, not both")
        return self

    @property
    def is_answered(self) -> bool:
        """Whether anybody answers an agent that asks."""
        return bool(self.script) or self.user is not None
