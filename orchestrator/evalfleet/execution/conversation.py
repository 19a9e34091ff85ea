"""What an author reads off a conversation line, and the ways to continue it from async and from plain bodies."""

from __future__ import annotations

import asyncio
import mimetypes
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, overload

from pydantic import BaseModel

from evalfleet.assertions.covered import CoveredStr, CoveredValue, covered
from evalfleet.assertions.json_match import as_match
from evalfleet.assertions.match import Match
from evalfleet.execution.handles import Assertion, SyncAssertion
from evalfleet.execution.input_requests import RequestFilter, response_input, response_to_all
from evalfleet.execution.inputs import OutputSchema, text_input
from evalfleet.execution.ledger import Snapshot
from evalfleet.execution.scoped import Author, H, Scoped
from evalfleet.execution.sessions import SessionLine
from evalfleet.execution.structured import AskedOutput, StructuredTurn, asked_for, turn_handle
from evalfleet.execution.threads import Bridge
from evalfleet.execution.turn_handle import TurnHandle, read_reply
from evalfleet.model.assertion import ScopeKind
from evalfleet.model.coverage import COMPLETE_COVERAGE, Channel, worst
from evalfleet.model.events import MISSING, Event, InputRequested
from evalfleet.model.turn import InputFile, InputResponse, TurnInput, TurnRecord
from evalfleet.model.usage import Usage

M = TypeVar("M", bound=BaseModel)


class Conversation(Scoped[H]):
    """One conversation line. Its assertions look at its turns so far."""

    __slots__ = ("line",)

    def __init__(self, author: Author[H], line: SessionLine) -> None:
        super().__init__(author)
        self.line = line

    @property
    def reply(self) -> CoveredStr:
        """The assistant's texts of the last turn, joined by blank lines; empty before the first."""
        last = self._last()
        return read_reply(last) if last else CoveredStr("", Channel.MESSAGES, COMPLETE_COVERAGE.messages)

    @property
    def data(self) -> CoveredStr | CoveredValue:
        """The structured answer of the last turn; its `value` is MISSING when there was none."""
        last = self._last()
        if last is None:
            return CoveredValue(MISSING, Channel.DATA, COMPLETE_COVERAGE.data)
        return covered(last.data, Channel.DATA, last.coverage.data)

    @property
    def events(self) -> tuple[Event, ...]:
        """All events so far, in order."""
        return tuple(event for turn in self._turns() for event in turn.events)

    @property
    def usage(self) -> CoveredValue:
        """The `Usage` so far; its `value` is None when nobody reported any."""
        turns = self._turns()
        return CoveredValue(total_usage(turns), Channel.USAGE, worst(turn.coverage for turn in turns).usage)

    @property
    def pending_requests(self) -> tuple[InputRequested, ...]:
        """The questions that the last turn left open."""
        return self.line.pending_requests

    def require_input_request(
        self,
        request_id: str | None = None,
        *,
        prompt: str | Match | None = None,
        action: str | Match | None = None,
        options: Sequence[str] | None = None,
        input: Any = None,
    ) -> InputRequested:
        """The one pending request that fits: `options` are all its option ids in any order, `input` a matcher on what
        the action would get, or what `json_match` takes.

        Recorded as a gate: with none or several, the test body ends and the attempt fails.
        """
        match = None if input is None else as_match(input, "require_input_request input")
        wanted = RequestFilter(request_id, prompt, action, None if options is None else frozenset(options), match)
        return self.author.ledger.require_request(wanted, self.pending_requests, self._last())

    def _turns(self) -> Sequence[TurnRecord]:
        return tuple(self.line.turns)

    def _last(self) -> TurnRecord | None:
        return self.line.turns[-1] if self.line.turns else None

    def _snapshot(self) -> Snapshot:
        line = self.line
        return Snapshot(ScopeKind.SESSION, f"session/{line.number}", tuple(line.turns), line.in_flight)


class SessionHandle(Conversation[Assertion]):
    """A conversation line of an `async def` test body."""

    __slots__ = ()

    @overload
    def send(
        self, text: str, *, files: Sequence[InputFile] = (), output: type[M]
    ) -> Coroutine[Any, Any, StructuredTurn[Assertion, M]]: ...

    @overload
    def send(
        self, text: str, *, files: Sequence[InputFile] = (), output: Mapping[str, Any]
    ) -> Coroutine[Any, Any, StructuredTurn[Assertion, Any]]: ...

    @overload
    def send(
        self, text: str, *, files: Sequence[InputFile] = (), output: None = None
    ) -> Coroutine[Any, Any, TurnHandle[Assertion]]: ...

    def send(
        self, text: str, *, files: Sequence[InputFile] = (), output: OutputSchema | None = None
    ) -> Coroutine[Any, Any, TurnHandle[Assertion]]:
        """Send `text` and wait for the turn.

        `output`, a pydantic model or a JSON Schema, asks the agent for structured data, which is then held against
        it: `turn.data.value` is the model. Raises AuthoringError when a send of this session is in flight,
        AttemptFailure when no turn came back.
        """
        return self.author.state.promise(self._exchange(text_input(text, files, output), asked_for(output)))

    def send_file(self, path: str | Path, text: str = "") -> Coroutine[Any, Any, TurnHandle[Assertion]]:
        """Send a file, whose path is relative to the eval file, with an optional text."""
        return self.author.state.promise(self._send_file(path, text))

    def respond(self, *answers: str | InputResponse) -> Coroutine[Any, Any, TurnHandle[Assertion]]:
        """Answer pending requests: a text for the only one, or an InputResponse for each."""
        return self.author.state.promise(self._exchange(response_input(self.pending_requests, answers)))

    def respond_all(self, option_id: str) -> Coroutine[Any, Any, TurnHandle[Assertion]]:
        """Answer every pending request with the same option."""
        return self.author.state.promise(self._exchange(response_to_all(self.pending_requests, option_id)))

    async def _exchange(self, given: TurnInput, asked: AskedOutput | None = None) -> TurnHandle[Assertion]:
        return turn_handle(self.author, await self.line.send(given), asked)

    async def _send_file(self, path: str | Path, text: str) -> TurnHandle[Assertion]:
        return await self._exchange(await _file_input(self.author.state.job.folder / path, text))


class SyncSessionHandle(Conversation[SyncAssertion]):
    """A conversation line of a plain `def` test body: each call waits in the body's own thread."""

    __slots__ = ("bridge",)

    def __init__(self, author: Author[SyncAssertion], line: SessionLine, bridge: Bridge) -> None:
        super().__init__(author, line)
        self.bridge = bridge

    @overload
    def send(
        self, text: str, *, files: Sequence[InputFile] = (), output: type[M]
    ) -> StructuredTurn[SyncAssertion, M]: ...

    @overload
    def send(
        self, text: str, *, files: Sequence[InputFile] = (), output: Mapping[str, Any]
    ) -> StructuredTurn[SyncAssertion, Any]: ...

    @overload
    def send(self, text: str, *, files: Sequence[InputFile] = (), output: None = None) -> TurnHandle[SyncAssertion]: ...

    def send(
        self, text: str, *, files: Sequence[InputFile] = (), output: OutputSchema | None = None
    ) -> TurnHandle[SyncAssertion]:
        """Send `text` and wait for the turn; see `SessionHandle.send`."""
        return self._exchange(text_input(text, files, output), asked_for(output))

    def send_file(self, path: str | Path, text: str = "") -> TurnHandle[SyncAssertion]:
        """Send a file, whose path is relative to the eval file, with an optional text."""
        return self._exchange(self.bridge.call(_file_input(self.author.state.job.folder / path, text)))

    def respond(self, *answers: str | InputResponse) -> TurnHandle[SyncAssertion]:
        """Answer pending requests: a text for the only one, or an InputResponse for each."""
        return self._exchange(response_input(self.pending_requests, answers))

    def respond_all(self, option_id: str) -> TurnHandle[SyncAssertion]:
        """Answer every pending request with the same option."""
        return self._exchange(response_to_all(self.pending_requests, option_id))

    def _exchange(self, given: TurnInput, asked: AskedOutput | None = None) -> TurnHandle[SyncAssertion]:
        return turn_handle(self.author, self.bridge.call(self.line.send(given)), asked)


async def _file_input(path: Path, text: str) -> TurnInput:
    media_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    data = await asyncio.to_thread(path.read_bytes)
    return text_input(text, (InputFile(path.name, media_type, data),), None)


def total_usage(turns: Iterable[TurnRecord]) -> Usage | None:
    """What all turns consumed together; None when nobody reported any."""
    total: Usage | None = None
    for turn in turns:
        if turn.usage is not None:
            total = turn.usage if total is None else total + turn.usage
    return total
