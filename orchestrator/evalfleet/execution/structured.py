"""The turn of a send that asked for structured data: the answer, held against what was asked for, and read by type."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from evalfleet import plugins
from evalfleet.assertions.covered import CoveredModel
from evalfleet.assertions.evidence import coverage_reason
from evalfleet.assertions.match import Match, evaluate_now
from evalfleet.execution.inputs import OutputSchema
from evalfleet.execution.scoped import Author, H
from evalfleet.execution.turn_handle import TurnHandle
from evalfleet.model.assertion import AssertionResult
from evalfleet.model.coverage import Channel
from evalfleet.model.turn import TurnRecord

M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class AskedOutput:
    """What was asked for: a pydantic model or a JSON Schema, and the matcher that holds an answer against it."""

    schema: OutputSchema
    match: Match


def asked_for(output: OutputSchema | None) -> AskedOutput | None:
    """What `output` asks for. Raises AuthoringError when it is neither a model nor a schema."""
    return None if output is None else AskedOutput(output, plugins.schema_match().matches(output))


class StructuredTurn(TurnHandle[H], Generic[H, M]):
    """One turn whose `data` was asked for by a schema; what does not fit it is the agent's failure, not an error."""

    __slots__ = ("_asked", "_outcome", "_told")

    def __init__(self, author: Author[H], record: TurnRecord, asked: AskedOutput) -> None:
        super().__init__(author, record)
        self._asked = asked
        self._outcome = _held_against(asked.match, record)
        self._told = False
        if not self._outcome.holds:
            author.state.note(f"turn {record.sequence}: the data is not what was asked for: {self._outcome.reason}")

    @property
    def data(self) -> CoveredModel[M]:
        """The answer as JSON, for matchers; its `value` is the model that was asked for."""
        record = self._record
        return CoveredModel(record.data, Channel.DATA, record.coverage.data, self._read)

    def _read(self) -> M:
        """The answer by its type, on the record as a gate; ends the test body when it does not fit."""
        if not self._told or not self._outcome.holds:
            self._told = True
            self.author.ledger.decide("output", self._asked.match.describe(), self._snapshot(), self._outcome, 3)
        data, schema = self._record.data, self._asked.schema
        if isinstance(schema, Mapping):
            return data
        return cast("M", schema.model_validate_json(json.dumps(data), strict=True))


def turn_handle(author: Author[H], record: TurnRecord, asked: AskedOutput | None) -> TurnHandle[H]:
    """The handle of a turn, by whether structured data was asked for."""
    return TurnHandle(author, record) if asked is None else StructuredTurn[H, Any](author, record, asked)


def _held_against(match: Match, record: TurnRecord) -> AssertionResult:
    outcome, entry = evaluate_now(match, record.data), record.coverage.data
    return outcome if entry.is_complete else match.under_gap(outcome, coverage_reason(Channel.DATA, entry))
