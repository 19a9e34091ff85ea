"""How the tables spell their columns."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from sqlalchemy import Column, DateTime, Enum, ForeignKeyConstraint, MetaData, func, text
from sqlalchemy.types import TypeEngine

from evalfleet.errors import FailureKind
from evalfleet.model.assertion import Result
from evalfleet.model.events import OperationKind, OperationStatus
from evalfleet.model.grading import Basis
from evalfleet.model.record import IntentKind
from evalfleet.model.run_events import MARKS
from evalfleet.model.sandbox import SandboxState
from evalfleet.model.verdict import Outcome, RunKind, RunStatus, ScoreState, Settlement, Style, Verdict

metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "ck": "%(table_name)s_%(constraint_name)s_check",
        "fk": "%(table_name)s_%(column_0_name)s_fkey",
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
    }
)


def _enum(kind: Iterable[StrEnum], name: str) -> Enum:
    return Enum(*(item.value for item in kind), name=name, metadata=metadata)


RUN_KIND = _enum(RunKind, "run_kind")
RUN_MARK = _enum(MARKS, "run_mark")
RUN_STATUS = _enum(RunStatus, "run_status")
STYLE = _enum(Style, "style")
OUTCOME = _enum(Outcome, "outcome")
VERDICT = _enum(Verdict, "verdict")
FAILURE_KIND = _enum(FailureKind, "failure_kind")
SCORE_STATE = _enum(ScoreState, "score_state")
SETTLEMENT = _enum(Settlement, "settlement")
RESULT = _enum(Result, "result")
BASIS = _enum(Basis, "basis")
INTENT_KIND = _enum(IntentKind, "intent_kind")
SANDBOX_STATE = _enum(SandboxState, "sandbox_state")
OPERATION_KIND = _enum(OperationKind, "operation_kind")
OPERATION_STATUS = _enum(OperationStatus, "operation_status")

TIME = DateTime(timezone=True)


def of(name: str, kind: TypeEngine[Any] | type[TypeEngine[Any]], default: str | None = None) -> Column[Any]:
    """A column that is never NULL."""
    return Column(name, kind, nullable=False, server_default=None if default is None else text(default))


def maybe(name: str, kind: TypeEngine[Any] | type[TypeEngine[Any]]) -> Column[Any]:
    return Column(name, kind, nullable=True)


def now(name: str) -> Column[Any]:
    return Column(name, TIME, nullable=False, server_default=func.clock_timestamp())


def run_owned() -> ForeignKeyConstraint:
    """For the small tables; the ones that grow with cases are kept whole by the writer, not row by row."""
    return ForeignKeyConstraint(["run_key"], ["runs.run_key"], ondelete="CASCADE")
