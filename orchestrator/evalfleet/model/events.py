"""The typed, ordered facts of a turn. Evidence, never judgement."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any, ClassVar, TypeAlias

from evalfleet.model.usage import Usage


class Missing(Enum):
    """The one value that means "nobody reported this"; None is a value an agent may well report."""

    MISSING = "missing"

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False


MISSING = Missing.MISSING


class Role(StrEnum):
    USER = "user"
    ASSISTANT = "assistant"


class OperationKind(StrEnum):
    TOOL = "tool"
    SUBAGENT = "subagent"


class OperationStatus(StrEnum):
    """How an operation ended. A rejected one was refused by a person or a policy; it did not fail."""

    PENDING = "pending"
    COMPLETED = "completed"
    FAILED = "failed"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class Message:
    """Text said by the user or the assistant; tool results are not messages."""

    type: ClassVar[str] = "message"
    role: Role
    text: str


@dataclass(frozen=True, slots=True)
class Thinking:
    type: ClassVar[str] = "thinking"
    text: str


@dataclass(frozen=True, slots=True)
class OperationStarted:
    """A tool call or sub-agent began. `operation_id` pairs it with its finish and is unique in that pair only.

    `name` is the raw upstream name; `tool` a canonical class (`shell`, `file_read`, …) when known;
    `raw_input` the text as received when it could not be parsed.
    """

    type: ClassVar[str] = "operation.started"
    operation_id: str
    name: str
    input: Any = MISSING
    kind: OperationKind = OperationKind.TOOL
    tool: str | None = None
    raw_input: str | None = None


@dataclass(frozen=True, slots=True)
class OperationFinished:
    type: ClassVar[str] = "operation.finished"
    operation_id: str
    status: OperationStatus = OperationStatus.COMPLETED
    output: Any = MISSING
    kind: OperationKind = OperationKind.TOOL


@dataclass(frozen=True, slots=True)
class SkillLoaded:
    type: ClassVar[str] = "skill.loaded"
    skill: str
    operation_id: str | None = None


@dataclass(frozen=True, slots=True)
class InputOption:
    id: str
    label: str | None = None


@dataclass(frozen=True, slots=True)
class InputRequested:
    """The agent waits for a person: one event per pending question, with a stable `request_id`."""

    type: ClassVar[str] = "input.requested"
    request_id: str | None
    prompt: str | None = None
    action: str | None = None
    input: Any = MISSING
    options: tuple[InputOption, ...] = ()


@dataclass(frozen=True, slots=True)
class ContextInjected:
    type: ClassVar[str] = "context.injected"
    text: str
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Compaction:
    type: ClassVar[str] = "compaction"
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class ErrorReported:
    type: ClassVar[str] = "error"
    message: str


@dataclass(frozen=True, slots=True)
class Unrecognised:
    """An upstream event the adapter does not know: kept raw, so that nothing vanishes silently."""

    type: ClassVar[str] = "unrecognised"
    name: str
    raw: Any = field(default=MISSING)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """A request of the agent to its model, as the gateway passed it on, or as an adapter reports it.

    `call_id` pairs it with its response. `instruction_digest` is that of the effective instructions; the text stands
    in the first request of an attempt that has it. `tools` are the names of those on offer, `messages` how many the
    request has. `body` is the request itself where the arm has it kept.
    """

    type: ClassVar[str] = "model.request"
    call_id: str
    model: str | None = None
    instruction_digest: str | None = None
    instructions: str | None = None
    prompt_id: str | None = None
    prompt_revision: str | None = None
    tools: tuple[str, ...] = ()
    messages: int | None = None
    body: Any = MISSING


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelResponse:
    """What became of a request. `outcome` is `answered`, `throttled`, `refused` or `broken`; `duration` is in seconds.

    `status` is the HTTP status, None where no answer came. `body` is the answer itself, as text, where the arm has it
    kept.
    """

    type: ClassVar[str] = "model.response"
    call_id: str
    outcome: str
    status: int | None = None
    duration: float | None = None
    usage: Usage | None = None
    body: str | None = None


Event: TypeAlias = (
    Message
    | Thinking
    | OperationStarted
    | OperationFinished
    | SkillLoaded
    | InputRequested
    | ContextInjected
    | Compaction
    | ErrorReported
    | Unrecognised
    | ModelRequest
    | ModelResponse
)

EVENT_TYPES: dict[str, type[Event]] = {
    cls.type: cls
    for cls in (
        Message,
        Thinking,
        OperationStarted,
        OperationFinished,
        SkillLoaded,
        InputRequested,
        ContextInjected,
        Compaction,
        ErrorReported,
        Unrecognised,
        ModelRequest,
        ModelResponse,
    )
}
