"""The trace of an attempt's tool calls: JSONL of `run_id, step, tool, arguments, result_ref, timestamp`. PURE.

Beside these six a line holds what concerns us, each named `evalfleet.…`:

| Name | Meaning |
|---|---|
| `evalfleet.phase` | `intent`: written before a mutating call runs; `done`: after it, or the only line of a call |
| `evalfleet.actor` | `agent`, `responder` or `harness` |
| `evalfleet.status` | `ok`, `error`, `denied` (unknown tool, arguments that don't fit), `unknown` (an intent) |
| `evalfleet.error` | a stable code when it is neither ok nor unknown |
| `evalfleet.turn` | the turn of the attempt, from 1 |
| `evalfleet.writes` | what a call wrote: `collection`, `key`, `before`, `after` |
| `evalfleet.state_digest` | the digest of the case store after a mutating call |
| `evalfleet.rule` | the responder's rule |
| `evalfleet.received` | what was received in place of a JSON object; `arguments` is then empty |

A mutating call has two lines of one step; folded, every call is one line, and an intent that nothing follows is a call
of which nobody knows what became. A last line that a crash cut is left out and told of.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evalfleet.model.canonical import canonical_bytes, digest, parse_exact
from evalfleet.taskpacks.diff import Actor
from evalfleet.taskpacks.state import HARNESS, RowKey
from evalfleet.taskpacks.writes import Write


class Phase(StrEnum):
    INTENT = "intent"
    DONE = "done"


class CallStatus(StrEnum):
    OK = "ok"
    ERROR = "error"
    DENIED = "denied"
    UNKNOWN = "unknown"


class WrittenRecord(BaseModel):
    """A write as a line keeps it; step and actor stand beside it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    collection: str
    key: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None


_STAMP = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$"


class TraceLine(BaseModel):
    """One line as it stands in a file: the six fields, and ours below their name."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_by_name=True, serialize_by_alias=True)

    run_id: str = Field(min_length=1)
    step: Annotated[int, Field(ge=1, strict=True)]
    tool: str = Field(min_length=1)
    arguments: dict[str, Any]
    result_ref: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")] | None
    timestamp: str = Field(pattern=_STAMP)
    phase: Phase = Field(Phase.DONE, alias="evalfleet.phase")
    actor: Actor = Field(Actor.AGENT, alias="evalfleet.actor")
    status: CallStatus = Field(CallStatus.OK, alias="evalfleet.status")
    error: str | None = Field(None, alias="evalfleet.error")
    turn: int | None = Field(None, alias="evalfleet.turn")
    written: tuple[WrittenRecord, ...] = Field((), alias="evalfleet.writes")
    state_digest: str | None = Field(None, alias="evalfleet.state_digest")
    rule: str | None = Field(None, alias="evalfleet.rule")
    received: Any = Field(None, alias="evalfleet.received")

    @property
    def writes(self) -> tuple[Write, ...]:
        """What the call wrote."""
        return tuple(
            Write(self.step, self._writer(each), RowKey(each.collection, each.key), each.before, each.after)
            for each in self.written
        )

    def _writer(self, written: WrittenRecord) -> Actor:
        """Who wrote: clock, counters and cursor are the harness's, whoever made them move."""
        return Actor.HARNESS if written.collection == HARNESS else self.actor

    def document(self) -> dict[str, Any]:
        """The line as JSON; what is as usual is left out."""
        return parse_exact(canonical_bytes(self.model_dump(exclude_defaults=True)))


@dataclass(frozen=True, slots=True)
class TraceFault:
    """What is wrong with a line, counted from 1."""

    line: int
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}"


@dataclass(frozen=True, slots=True)
class CallTrace:
    """A trace that was read: one line a call, what is wrong with it, and whether its last line was cut."""

    calls: tuple[TraceLine, ...] = ()
    faults: tuple[TraceFault, ...] = ()
    torn: bool = False

    @property
    def unfinished(self) -> tuple[TraceLine, ...]:
        """Mutating calls of which nobody knows what became."""
        return tuple(call for call in self.calls if call.phase is Phase.INTENT)

    @property
    def writes(self) -> tuple[Write, ...]:
        """Everything that was written, in order."""
        return tuple(write for call in self.calls for write in call.writes)


def encode_line(line: TraceLine) -> bytes:
    """A line of a file, with its end."""
    return json.dumps(line.document(), separators=(",", ":")).encode("ascii") + b"\n"


def read_trace(data: bytes) -> CallTrace:
    """The calls of a trace file. Lines that can't be read or are out of order are faults; the others stand."""
    *whole, last = data.split(b"\n")
    calls: list[TraceLine] = []
    faults: list[TraceFault] = []
    for number, text in enumerate([*whole, last] if last else whole, start=1):
        line = _read_line(text)
        if isinstance(line, str):
            if number > len(whole):
                return CallTrace(tuple(calls), tuple(faults), torn=True)
            faults.append(TraceFault(number, line))
            continue
        if (wrong := _out_of_order(calls[-1] if calls else None, line)) is not None:
            faults.append(TraceFault(number, wrong))
        if calls and calls[-1].step == line.step:
            calls[-1] = line
        else:
            calls.append(line)
    return CallTrace(tuple(calls), tuple(faults))


def read_lines(lines: Sequence[Mapping[str, Any]]) -> CallTrace:
    """The calls of a trace that is kept as JSON values."""
    return read_trace(b"".join(json.dumps(dict(line)).encode("ascii") + b"\n" for line in lines))


def result_ref(value: Any) -> str:
    """What a line says of a result in its place."""
    return f"sha256:{digest(value)}"


def timestamp(seconds: float) -> str:
    """Seconds since the epoch as UTC with milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def completed(intent: TraceLine, writes: Sequence[Write] = (), **found: Any) -> TraceLine:
    """The line that follows an intent: how the call ended, with fields of the line, and what it wrote."""
    written = tuple(WrittenRecord.model_validate(write.document()) for write in writes)
    return intent.model_copy(update={"phase": Phase.DONE, "status": CallStatus.OK, "written": written, **found})


def _read_line(text: bytes) -> TraceLine | str:
    try:
        return TraceLine.model_validate(_json(text))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    except (ValueError, RecursionError):
        return "is not a JSON object"


def _json(text: bytes) -> Any:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("no object")
    return value  # pyright: ignore[reportUnknownVariableType]


def _out_of_order(before: TraceLine | None, line: TraceLine) -> str | None:
    """Why `line` can't follow `before`: steps count from 1 without gaps, twice only for an intent and its end."""
    if before is None:
        return None if line.step == 1 else f"the first step is {line.step}, not 1"
    if line.run_id != before.run_id:
        return f"run_id is {line.run_id!r} after {before.run_id!r}"
    if line.timestamp < before.timestamp:
        return f"timestamp {line.timestamp} is before {before.timestamp}"
    if line.step == before.step:
        ends = before.phase is Phase.INTENT and line.phase is Phase.DONE
        same = (line.tool, digest(line.arguments)) == (before.tool, digest(before.arguments))
        return None if ends and same else f"step {line.step} is there already"
    return None if line.step == before.step + 1 else f"step {line.step} follows step {before.step}"
