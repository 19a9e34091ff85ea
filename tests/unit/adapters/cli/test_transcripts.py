"""The transcripts of coding agents: what each line means, and that a cut one says nothing that was not there."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from evalfleet.model.events import (
    MISSING,
    Compaction,
    ContextInjected,
    ErrorReported,
    Event,
    Message,
    OperationFinished,
    OperationKind,
    OperationStarted,
    OperationStatus,
    Role,
    SkillLoaded,
    Thinking,
    Unrecognised,
)
from evalfleet.model.usage import Usage
from evalfleet_adapters.cli.spending import spent_since
from evalfleet_adapters.converters import claude_code, codex_exec, opencode_run
from evalfleet_adapters.converters.agent_report import AgentReport, LastWord
from evalfleet_adapters.converters.json_output import read_output

FIXTURES = Path(__file__).parents[1] / "fixtures"
SAYS = Role.ASSISTANT
KINDS = pytest.mark.parametrize("module", [codex_exec, claude_code, opencode_run], ids=["codex", "claude", "opencode"])


def fixture(module: ModuleType) -> bytes:
    return (FIXTURES / f"{module.__name__.rpartition('.')[2]}.jsonl").read_bytes()


def read(module: ModuleType, data: bytes) -> AgentReport:
    return module.read_transcript(read_output(data).documents)


def of(module: ModuleType, *documents: Any) -> AgentReport:
    return read(module, "\n".join(json.dumps(document) for document in documents).encode())


def test_codex_says_what_it_did() -> None:
    report = read(codex_exec, fixture(codex_exec))
    changes = [{"path": "/w/b.txt", "kind": "add"}]
    expected: list[Event] = [
        ErrorReported("no metadata of the model"),
        Thinking("Look first."),
        Message(SAYS, "I look — then I edit."),
        OperationStarted("item_3", "command_execution", {"command": "/bin/bash -lc 'cat a.txt'"}, tool="shell"),
        OperationFinished("item_3", OperationStatus.FAILED, {"aggregated_output": "hi", "exit_code": 1}),
        OperationStarted("item_4", "file_change", {"changes": changes}, tool="file_edit"),
        OperationFinished("item_4", OperationStatus.COMPLETED, MISSING),
        OperationStarted("item_5", "refund", {"order": 7}),
        OperationFinished("item_5", OperationStatus.COMPLETED, {"content": []}),
        OperationStarted("item_6", "command_execution", {"command": "rm -rf /"}, tool="shell"),
        OperationFinished("item_6", OperationStatus.REJECTED, {"aggregated_output": "", "exit_code": None}),
        OperationStarted("item_7", "command_execution", {"command": "sleep 9"}, tool="shell"),
        Message(SAYS, "Done."),
    ]
    assert list(report.events) == expected
    assert (report.session, report.ended) == ("0199a213-81c0-7800-8aa1-bbab2a035a53", LastWord.COMPLETED)
    assert report.usage == Usage(
        input_tokens=190, output_tokens=40, cache_read_tokens=60, cache_write_tokens=10, reasoning_tokens=10
    )


def test_claude_says_what_it_and_its_sub_agents_did() -> None:
    report = read(claude_code, fixture(claude_code))
    below = OperationKind.SUBAGENT
    expected: list[Event] = [
        Thinking("Look first."),
        Message(SAYS, "I look — then I edit."),
        OperationStarted("c1", "Bash", {"command": "cat a.txt; false"}, tool="shell"),
        OperationFinished("c1", OperationStatus.FAILED, "Exit code 1\nhi"),
        OperationStarted("c2", "Explore", {"prompt": "sub do", "subagent_type": "Explore"}, kind=below),
        ContextInjected("below", "subagent c2"),
        OperationStarted("c3", "Read", {"file_path": "a.txt"}, tool="file_read"),
        OperationFinished("c3", OperationStatus.COMPLETED, "hi"),
        OperationFinished("c2", OperationStatus.COMPLETED, "sub says\nmore", kind=below),
        OperationStarted("c5", "refund", {"order": 7}),
        SkillLoaded("verify", "c4"),
        OperationFinished("c5", OperationStatus.REJECTED, "denied"),
        Compaction("auto"),
        Message(SAYS, "Done."),
    ]
    assert list(report.events) == expected
    assert (report.session, report.ended, report.error) == ("s-1", LastWord.COMPLETED, None)
    assert report.usage == Usage(input_tokens=30, output_tokens=15, cache_read_tokens=4, cache_write_tokens=2)


def test_opencode_says_what_it_did_and_an_error_that_it_got_over_is_not_the_end() -> None:
    report = read(opencode_run, fixture(opencode_run))
    below = OperationKind.SUBAGENT
    expected: list[Event] = [
        Message(SAYS, "I look — then I edit."),
        OperationStarted("c1", "bash", {"command": "cat a.txt; false"}, tool="shell"),
        OperationFinished("c1", OperationStatus.COMPLETED, "hi"),
        OperationStarted("c2", "read", {"filePath": "/no"}, tool="file_read"),
        OperationFinished("c2", OperationStatus.FAILED, "File not found: /no"),
        OperationStarted("c3", "explore", {"prompt": "sub do", "subagent_type": "explore"}, kind=below),
        OperationFinished("c3", OperationStatus.COMPLETED, "sub says", kind=below),
        SkillLoaded("verify", "c4"),
        OperationStarted("c5", "nosuch", {"tool": "nosuch", "error": "unavailable"}),
        OperationFinished("c5", OperationStatus.FAILED, "it is invalid"),
        ErrorReported("the connection broke"),
        Thinking("Enough."),
        Message(SAYS, "Done."),
    ]
    assert list(report.events) == expected
    assert (report.session, report.ended, report.truncated) == ("ses_1", LastWord.COMPLETED, False)
    assert report.usage == Usage(
        input_tokens=190, output_tokens=40, cache_read_tokens=70, cache_write_tokens=2, reasoning_tokens=10
    )


COUNTED = {"type": "step_finish", "part": {"reason": "tool-calls", "tokens": {"input": 1, "output": 1}}}


@pytest.mark.parametrize(
    ("documents", "ended", "usage"),
    [
        ([{"type": "error", "error": {"name": "X"}}], LastWord.NO_MODEL, None),
        ([{"type": "step_finish", "part": {"reason": "stop"}}], LastWord.COMPLETED, None),
        ([COUNTED, {"type": "step_finish", "part": {"reason": "stop"}}], LastWord.COMPLETED, None),
        ([COUNTED], LastWord.NONE, Usage(input_tokens=1, output_tokens=1)),
    ],
)
def test_opencode_ends(documents: list[Any], ended: LastWord, usage: Usage | None) -> None:
    report = of(opencode_run, *documents)
    assert (report.ended, report.usage) == (ended, usage)


@KINDS
def test_a_transcript_that_is_cut_anywhere_says_no_more_than_its_lines(module: ModuleType) -> None:
    data = fixture(module)
    whole = read(module, data)
    for end in range(len(data)):
        report = read(module, data[:end])
        # a refusal is only told by the last line, so that the status of a call may still be another
        assert [type(event) for event in report.events] == [type(event) for event in whole.events[: len(report.events)]]
        # the last line is whole without its newline
        assert end >= len(data.rstrip()) or report.ended is not LastWord.COMPLETED


@KINDS
def test_an_array_says_the_same_as_lines_and_banners_are_noise(module: ModuleType) -> None:
    data = fixture(module)
    whole = read(module, data)
    documents = [json.loads(line) for line in data.splitlines()]
    for indent in (None, 2):
        array = json.dumps(documents, indent=indent).encode()
        output = read_output(b"Welcome! v1\n{not json}\n" + array + b"\nbye\n")
        assert output.noise == ("Welcome! v1", "{not json}", "bye")
        assert module.read_transcript(output.documents) == whole
        for cut in range(1, len(array), 97):
            assert read(module, array[:cut]).events == (), "what is inside of an array that is cut is no event"


@KINDS
@pytest.mark.parametrize(
    "value",
    [None, 1, "x", [], {}, [1], {"type": {}}, {"x": [{}]}, [{"type": "text", "text": 1}], {"content": 3}],
    ids=lambda value: json.dumps(value),
)
def test_nothing_that_a_field_may_hold_breaks_a_converter(module: ModuleType, value: Any) -> None:
    for line in fixture(module).splitlines():
        document = json.loads(line)
        for change in _changed(document, value):
            of(module, change)


def _changed(document: Any, value: Any) -> list[Any]:
    """The document, with each of its values in turn replaced."""
    if isinstance(document, dict):
        return [{**document, key: new} for key, old in document.items() for new in (value, *_changed(old, value))]
    if isinstance(document, list):
        return [
            [*document[:i], new, *document[i + 1 :]] for i, old in enumerate(document) for new in _changed(old, value)
        ]
    return []


@KINDS
def test_cl_05_what_nobody_knows_is_kept_and_counts_nothing(module: ModuleType) -> None:
    raw = {"type": "brand_new", "part": {"tokens": {"in": 5, "out": 2}}}
    report = of(module, raw, raw)
    assert report.events == (Unrecognised("brand_new", raw), Unrecognised("brand_new", raw))
    assert (report.unknown, report.usage, report.ended) == (("brand_new",), None, LastWord.NONE)


def test_claude_answers_in_its_result_when_it_says_nothing_else() -> None:
    result = {"type": "result", "subtype": "success", "is_error": False, "result": "ok"}
    report = of(claude_code, [{"type": "system", "subtype": "init"}, result])
    assert (report.events, report.ended) == ((Message(SAYS, "ok"),), LastWord.COMPLETED)


@pytest.mark.parametrize(
    ("result", "ended", "error"),
    [
        ({"subtype": "success", "is_error": True, "result": "API Error: 429"}, LastWord.NO_MODEL, "API Error: 429"),
        ({"subtype": "error_max_turns", "is_error": True, "errors": ["at 1"]}, LastWord.LIMITED, "at 1"),
        ({"subtype": "error_during_execution", "is_error": True}, LastWord.BROKEN, "error_during_execution"),
    ],
)
def test_claude_says_how_a_turn_failed(result: dict[str, Any], ended: LastWord, error: str) -> None:
    report = of(claude_code, {"type": "result", **result})
    assert (report.ended, report.error, report.events) == (ended, error, ())


def test_an_error_that_claude_makes_a_message_of_is_none_of_its_model() -> None:
    said = {"model": "<synthetic>", "role": "assistant", "content": [{"type": "text", "text": "API Error: 400"}]}
    assert of(claude_code, {"type": "assistant", "message": said}).events == (ErrorReported("API Error: 400"),)


def test_codex_gets_no_answer_of_its_model() -> None:
    report = of(codex_exec, {"type": "error", "message": "429"}, {"type": "turn.failed", "error": {"message": "429"}})
    assert (report.ended, report.error, report.events) == (LastWord.NO_MODEL, "429", (ErrorReported("429"),))


@pytest.mark.parametrize(
    ("before", "now", "spent"),
    [
        (None, Usage(input_tokens=5), Usage(input_tokens=5)),
        (
            Usage(input_tokens=5, output_tokens=1),
            Usage(input_tokens=9, output_tokens=1),
            Usage(input_tokens=4, output_tokens=0),
        ),
        (Usage(input_tokens=5), None, None),
        (Usage(input_tokens=5), Usage(input_tokens=3, output_tokens=2), Usage(input_tokens=3, output_tokens=2)),
    ],
)
def test_a_turn_has_used_what_its_conversation_used_since(
    before: Usage | None, now: Usage, spent: Usage | None
) -> None:
    assert spent_since(before, now) == spent
