"""What is sent to an agent and what came back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from evalfleet.model.coverage import Channel, Coverage, CoverageEntry
from evalfleet.model.events import MISSING, Event, Message, Role
from evalfleet.model.usage import Usage


class TurnStatus(StrEnum):
    """How the agent ended a turn.

    `failed` is a trustworthy failure the protocol delivered; a crash or broken transport raises instead.
    `truncated` ended early at a token limit; `waiting` is parked on an input request.
    """

    COMPLETED = "completed"
    FAILED = "failed"
    WAITING = "waiting"
    TRUNCATED = "truncated"


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file sent with a turn. `data` holds the raw bytes."""

    name: str
    media_type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class InputResponse:
    """An answer to one input request: an option id or a text, never both."""

    request_id: str
    option_id: str | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class TurnInput:
    """One send. `output_schema` is a JSON Schema when the eval asked for structured output.

    `value` is the whole input of a scenario's step, a JSON object; `text` is then its field `text`, or all of it as
    JSON for agents that only read text.
    """

    text: str
    files: tuple[InputFile, ...] = ()
    responses: tuple[InputResponse, ...] = ()
    output_schema: Mapping[str, Any] | None = None
    value: Mapping[str, Any] | None = None


class StopKind(StrEnum):
    """Why an agent wants no further input: the conversation is over, or this case is not one for it."""

    COMPLETED = "completed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Stop:
    """An agent's word that it wants no further input in this attempt, and why."""

    kind: StopKind
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What an adapter returns for one send: an observation, no judgement.

    `reply` is a shortcut for one assistant message and is added as the last event when `events` holds no
    assistant message. `usage` is None when nobody reported it. `coverage` may only downgrade what the
    adapter declared. `observation` is a JSON object that scenarios check in place of what is built from the turn.
    `session_state` is a JSON object without secrets from which the adapter can open this session again after this
    turn. `stop` says that the agent wants no further input.
    """

    status: TurnStatus = TurnStatus.COMPLETED
    reply: str | None = None
    events: tuple[Event, ...] = ()
    data: Any = MISSING
    usage: Usage | None = None
    coverage: Mapping[Channel, CoverageEntry] = field(default_factory=dict[Channel, CoverageEntry])
    observation: Mapping[str, Any] | None = None
    session_state: Mapping[str, Any] | None = None
    stop: Stop | None = None

    def all_events(self) -> tuple[Event, ...]:
        """The adapter's events, with `reply` appended as a message when no assistant message stands there."""
        if self.reply is None:
            return self.events
        for event in self.events:
            if isinstance(event, Message) and event.role is Role.ASSISTANT:
                return self.events
        return (*self.events, Message(Role.ASSISTANT, self.reply))


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecord:
    """One recorded send of an attempt: what went in, what came back, and how far it can be trusted.

    `session` counts sessions and `index` turns in that session, both from 0. `sequence` numbers the
    attempt's turns in the order they were started. `events` begins with the user message that was sent.
    `coverage` is the effective one: the adapter's, downgraded by the turn. Times: `started_at` seconds
    since the epoch, `duration` seconds, without those `waited` for model calls to be allowed. `failure` names the send
    failure when nothing came back.
    """

    session: int
    index: int
    sequence: int
    input: TurnInput
    status: TurnStatus
    events: tuple[Event, ...]
    data: Any
    usage: Usage | None
    coverage: Coverage
    started_at: float
    duration: float
    failure: str | None = None
    observation: Mapping[str, Any] | None = None
    session_state: Mapping[str, Any] | None = None
    stop: Stop | None = None
    waited: float = 0.0

    @property
    def reply(self) -> str:
        """The assistant's texts of this turn, joined by blank lines."""
        return "\n\n".join(
            event.text for event in self.events if isinstance(event, Message) and event.role is Role.ASSISTANT
        )
