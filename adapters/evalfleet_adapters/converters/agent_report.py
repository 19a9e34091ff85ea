"""What the transcript of a coding agent says of one turn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from evalfleet.model.events import Event, Message, OperationStarted, Role, Unrecognised
from evalfleet.model.usage import Usage


class LastWord(StrEnum):
    """How the agent says that the turn ended; `none` when its transcript stops before it says so.

    `limited`: at a limit of its own, which can be graded. `no_model`: it got no answer of its model. `broken`: it
    broke.
    """

    COMPLETED = "completed"
    LIMITED = "limited"
    NO_MODEL = "no_model"
    BROKEN = "broken"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentReport:
    """One turn as its agent told it. `session` is its own id of the conversation, `error` what it says went wrong.

    `usage` is as the agent counts: of the turn, or of the conversation so far. `truncated`: its model's last answer was
    cut by a token limit.
    """

    session: str | None
    ended: LastWord
    events: tuple[Event, ...]
    usage: Usage | None = None
    error: str | None = None
    truncated: bool = False

    @property
    def unknown(self) -> tuple[str, ...]:
        """The names of what the converter does not know, each once."""
        return tuple(dict.fromkeys(event.name for event in self.events if isinstance(event, Unrecognised)))

    @property
    def is_empty(self) -> bool:
        """Whether the agent neither said nor did anything."""
        return not says_or_does(self.events)


class Reading:
    """A transcript while it is read; each program's own reading says in `take` what a document of it means."""

    def __init__(self) -> None:
        self.session: str | None = None
        self.ended = LastWord.NONE
        self.usage: Usage | None = None
        self.error: str | None = None
        self.truncated = False
        self.events: list[Event] = []

    def take(self, document: Mapping[str, Any]) -> None:
        """Take in the next document."""
        raise NotImplementedError

    def read(self, documents: Iterable[Mapping[str, Any]]) -> AgentReport:
        """The turn that all documents tell."""
        for document in documents:
            self.take(document)
        return AgentReport(
            session=self.session,
            ended=self.ended,
            events=tuple(self.events),
            usage=self.usage,
            error=self.error,
            truncated=self.truncated,
        )


def says_or_does(events: Iterable[Event]) -> bool:
    """Whether there is a text of the assistant or an operation among the events."""
    return any(
        isinstance(event, OperationStarted) or (isinstance(event, Message) and event.role is Role.ASSISTANT)
        for event in events
    )
