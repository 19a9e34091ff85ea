"""What authors of evals and agents import, and the Python API over runs.

Every name is loaded from its home when it is first used, so that importing any part of evalfleet costs only that
part.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evalfleet.api.programmatic import Run, compare, compare_sync, events, open, rescore, run, run_sync, watch
    from evalfleet.api.standalone import evaluate_assertions
    from evalfleet.assertions.commands import command_match
    from evalfleet.assertions.matchers import (
        all_of,
        any_of,
        approx,
        command_succeeded,
        define_match,
        define_score_match,
        equals,
        excludes,
        has_sections,
        includes,
        includes_url,
        is_defined,
        is_false,
        is_true,
        json_match,
        negate,
        one_of,
        pattern,
        references_any_path,
        satisfies,
        similarity,
    )
    from evalfleet.assertions.schema_match import matches
    from evalfleet.assertions.tools import event_match, subagent_match, tool_match
    from evalfleet.errors import DefinitionError, EvalfleetError, FailureKind, ObserverFailed, SendFailure
    from evalfleet.execution.context import ScoreT, SyncT, T
    from evalfleet.model.agent import agent, sandbox_agent
    from evalfleet.model.changes import TrackChanges
    from evalfleet.model.coverage import COMPLETE_COVERAGE, Channel, Coverage, complete, partial, unavailable
    from evalfleet.model.definition import EvalDefinition, Resources, SandboxSpec
    from evalfleet.model.events import (
        Compaction,
        ContextInjected,
        ErrorReported,
        InputOption,
        InputRequested,
        Message,
        ModelRequest,
        ModelResponse,
        OperationFinished,
        OperationKind,
        OperationStarted,
        OperationStatus,
        Role,
        SkillLoaded,
        Thinking,
    )
    from evalfleet.model.tool import tool
    from evalfleet.model.turn import InputFile, InputResponse, Stop, StopKind, Turn, TurnInput, TurnStatus
    from evalfleet.model.usage import Usage
    from evalfleet.planning.dataset import Dataset
    from evalfleet.planning.define import define_eval, define_score_eval
    from evalfleet.ports import AdapterContext
    from evalfleet.suites.context import EvaluationContext
    from evalfleet.suites.registry import evaluator
    from evalfleet.taskpacks.assignment import Assignment
    from evalfleet.taskpacks.cases import Cases
    from evalfleet.taskpacks.diff import Operation
    from evalfleet.taskpacks.model_responder import UserModel
    from evalfleet.taskpacks.pack import TaskPack
    from evalfleet.taskpacks.pack_tool import pack_tool
    from evalfleet.taskpacks.policy import Allowed
    from evalfleet.taskpacks.reader import CallReader
    from evalfleet.taskpacks.state import Collection

_HOMES = {
    "Run": "evalfleet.api.programmatic",
    "compare": "evalfleet.api.programmatic",
    "compare_sync": "evalfleet.api.programmatic",
    "events": "evalfleet.api.programmatic",
    "open": "evalfleet.api.programmatic",
    "rescore": "evalfleet.api.programmatic",
    "run": "evalfleet.api.programmatic",
    "run_sync": "evalfleet.api.programmatic",
    "watch": "evalfleet.api.programmatic",
    "evaluate_assertions": "evalfleet.api.standalone",
    "command_match": "evalfleet.assertions.commands",
    "all_of": "evalfleet.assertions.matchers",
    "any_of": "evalfleet.assertions.matchers",
    "approx": "evalfleet.assertions.matchers",
    "command_succeeded": "evalfleet.assertions.matchers",
    "define_match": "evalfleet.assertions.matchers",
    "define_score_match": "evalfleet.assertions.matchers",
    "equals": "evalfleet.assertions.matchers",
    "excludes": "evalfleet.assertions.matchers",
    "has_sections": "evalfleet.assertions.matchers",
    "includes": "evalfleet.assertions.matchers",
    "includes_url": "evalfleet.assertions.matchers",
    "is_defined": "evalfleet.assertions.matchers",
    "is_false": "evalfleet.assertions.matchers",
    "is_true": "evalfleet.assertions.matchers",
    "json_match": "evalfleet.assertions.matchers",
    "negate": "evalfleet.assertions.matchers",
    "one_of": "evalfleet.assertions.matchers",
    "pattern": "evalfleet.assertions.matchers",
    "references_any_path": "evalfleet.assertions.matchers",
    "satisfies": "evalfleet.assertions.matchers",
    "similarity": "evalfleet.assertions.matchers",
    "matches": "evalfleet.assertions.schema_match",
    "event_match": "evalfleet.assertions.tools",
    "subagent_match": "evalfleet.assertions.tools",
    "tool_match": "evalfleet.assertions.tools",
    "DefinitionError": "evalfleet.errors",
    "EvalfleetError": "evalfleet.errors",
    "FailureKind": "evalfleet.errors",
    "ObserverFailed": "evalfleet.errors",
    "SendFailure": "evalfleet.errors",
    "ScoreT": "evalfleet.execution.context",
    "SyncT": "evalfleet.execution.context",
    "T": "evalfleet.execution.context",
    "agent": "evalfleet.model.agent",
    "sandbox_agent": "evalfleet.model.agent",
    "TrackChanges": "evalfleet.model.changes",
    "COMPLETE_COVERAGE": "evalfleet.model.coverage",
    "Channel": "evalfleet.model.coverage",
    "Coverage": "evalfleet.model.coverage",
    "complete": "evalfleet.model.coverage",
    "partial": "evalfleet.model.coverage",
    "unavailable": "evalfleet.model.coverage",
    "EvalDefinition": "evalfleet.model.definition",
    "Resources": "evalfleet.model.definition",
    "SandboxSpec": "evalfleet.model.definition",
    "Compaction": "evalfleet.model.events",
    "ContextInjected": "evalfleet.model.events",
    "ErrorReported": "evalfleet.model.events",
    "InputOption": "evalfleet.model.events",
    "InputRequested": "evalfleet.model.events",
    "Message": "evalfleet.model.events",
    "ModelRequest": "evalfleet.model.events",
    "ModelResponse": "evalfleet.model.events",
    "OperationFinished": "evalfleet.model.events",
    "OperationKind": "evalfleet.model.events",
    "OperationStarted": "evalfleet.model.events",
    "OperationStatus": "evalfleet.model.events",
    "Role": "evalfleet.model.events",
    "SkillLoaded": "evalfleet.model.events",
    "Thinking": "evalfleet.model.events",
    "tool": "evalfleet.model.tool",
    "InputFile": "evalfleet.model.turn",
    "InputResponse": "evalfleet.model.turn",
    "Turn": "evalfleet.model.turn",
    "Stop": "evalfleet.model.turn",
    "StopKind": "evalfleet.model.turn",
    "TurnInput": "evalfleet.model.turn",
    "TurnStatus": "evalfleet.model.turn",
    "Usage": "evalfleet.model.usage",
    "Dataset": "evalfleet.planning.dataset",
    "define_eval": "evalfleet.planning.define",
    "define_score_eval": "evalfleet.planning.define",
    "AdapterContext": "evalfleet.ports",
    "Assignment": "evalfleet.taskpacks.assignment",
    "Cases": "evalfleet.taskpacks.cases",
    "Operation": "evalfleet.taskpacks.diff",
    "UserModel": "evalfleet.taskpacks.model_responder",
    "TaskPack": "evalfleet.taskpacks.pack",
    "pack_tool": "evalfleet.taskpacks.pack_tool",
    "Allowed": "evalfleet.taskpacks.policy",
    "CallReader": "evalfleet.taskpacks.reader",
    "Collection": "evalfleet.taskpacks.state",
    "EvaluationContext": "evalfleet.suites.context",
    "evaluator": "evalfleet.suites.registry",
}

__all__ = [
    "COMPLETE_COVERAGE",
    "AdapterContext",
    "Allowed",
    "Assignment",
    "CallReader",
    "Cases",
    "Channel",
    "Collection",
    "Compaction",
    "ContextInjected",
    "Coverage",
    "Dataset",
    "DefinitionError",
    "ErrorReported",
    "EvalDefinition",
    "EvalfleetError",
    "EvaluationContext",
    "FailureKind",
    "InputFile",
    "InputOption",
    "InputRequested",
    "InputResponse",
    "Message",
    "ModelRequest",
    "ModelResponse",
    "ObserverFailed",
    "Operation",
    "OperationFinished",
    "OperationKind",
    "OperationStarted",
    "OperationStatus",
    "Resources",
    "Role",
    "Run",
    "SandboxSpec",
    "ScoreT",
    "SendFailure",
    "SkillLoaded",
    "Stop",
    "StopKind",
    "SyncT",
    "T",
    "TaskPack",
    "Thinking",
    "TrackChanges",
    "Turn",
    "TurnInput",
    "TurnStatus",
    "Usage",
    "UserModel",
    "agent",
    "all_of",
    "any_of",
    "approx",
    "command_match",
    "command_succeeded",
    "compare",
    "compare_sync",
    "complete",
    "define_eval",
    "define_match",
    "define_score_eval",
    "define_score_match",
    "equals",
    "evaluate_assertions",
    "evaluator",
    "event_match",
    "events",
    "excludes",
    "has_sections",
    "includes",
    "includes_url",
    "is_defined",
    "is_false",
    "is_true",
    "json_match",
    "matches",
    "negate",
    "one_of",
    "open",
    "pack_tool",
    "partial",
    "pattern",
    "references_any_path",
    "rescore",
    "run",
    "run_sync",
    "sandbox_agent",
    "satisfies",
    "similarity",
    "subagent_match",
    "tool",
    "tool_match",
    "unavailable",
    "watch",
]


if not TYPE_CHECKING:  # or type checkers would take any name for one of ours

    def __getattr__(name: str) -> Any:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'evalfleet' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(home), name)
        return value


def __dir__() -> list[str]:
    return __all__
