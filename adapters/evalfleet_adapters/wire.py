"""What the APIs of models differ in. All of it is pure, but for the secrets that headers need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from evalfleet.model.events import OperationStatus
from evalfleet.model.model_call import Account
from evalfleet.model.turn import TurnInput
from evalfleet.model.usage import Usage
from evalfleet.ports import AdapterContext
from evalfleet_adapters.converters.model_reply import ModelReply, ProviderError, ToolCall


class Stream(Protocol):
    """The events of one streamed answer, added up to the document that would have come whole."""

    @property
    def finished(self) -> bool: ...
    def add(self, event: Any, /) -> None: ...
    def response(self) -> dict[str, Any]: ...


class Wire(Protocol):
    """An API of models: what is sent, and how the answer is read. A conversation is a list of the API's own items."""

    account: Account
    endpoint: str

    def opening(self) -> list[dict[str, Any]]:
        """What stands at the beginning of every conversation."""
        ...

    def said(self, turn: TurnInput) -> dict[str, Any]:
        """A turn's input. Raises SendFailure when the API has no place for it."""
        ...

    def answered(self, call: ToolCall, text: str, status: OperationStatus) -> dict[str, Any]:
        """What came of a call of the model."""
        ...

    def headers(self, ctx: AdapterContext) -> dict[str, str]: ...
    def body(
        self, conversation: Sequence[Mapping[str, Any]], schema: Mapping[str, Any] | None, ctx: AdapterContext
    ) -> dict[str, Any]: ...
    def stream(self) -> Stream: ...
    def read(self, document: Any) -> ModelReply:
        """The reply in an answer. Raises UnusableResponse."""
        ...

    def usage(self, document: Any) -> Usage | None:
        """What an answer, or an event of a stream, says that it used."""
        ...

    def error(self, document: Any) -> ProviderError | None:
        """The error that an answer, or an event of a stream, reports."""
        ...
