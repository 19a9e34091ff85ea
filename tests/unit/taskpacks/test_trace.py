"""A trace is JSONL of six fields and ours; intents are folded with what followed, and a cut last line is told of."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evalfleet.taskpacks.diff import Actor
from evalfleet.taskpacks.replay import divergence, to_reapply, unrepeatable
from evalfleet.taskpacks.state import RowKey
from evalfleet.taskpacks.trace import (
    CallStatus,
    CallTrace,
    Phase,
    TraceLine,
    completed,
    encode_line,
    read_lines,
    read_trace,
    result_ref,
    timestamp,
)
from evalfleet.taskpacks.writes import Write

T0 = 1_767_225_600.0
WRITES = (Write(1, Actor.AGENT, RowKey("cases", "C-1"), {"id": "C-1"}, None),)


def line(step: int, tool: str = "look", **more: Any) -> TraceLine:
    given = {
        "run_id": "41",
        "step": step,
        "tool": tool,
        "arguments": {"id": step},
        "result_ref": result_ref("x"),
        "timestamp": timestamp(T0 + step),
        **more,
    }
    return TraceLine.model_validate(given)


def file(*lines: TraceLine) -> bytes:
    return b"".join(map(encode_line, lines))


def test_a_line_has_exactly_the_six_fields_when_all_is_as_usual() -> None:
    assert json.loads(encode_line(line(1))) == {
        "run_id": "41",
        "step": 1,
        "tool": "look",
        "arguments": {"id": 1},
        "result_ref": result_ref("x"),
        "timestamp": "2026-01-01T00:00:01.000Z",
    }


def test_what_is_ours_stands_below_our_name() -> None:
    document = line(1, actor=Actor.RESPONDER, status=CallStatus.ERROR, error="TOOL_RAISED", turn=2).document()
    ours = {name: value for name, value in document.items() if "." in name}
    assert ours == {
        "evalfleet.actor": "responder",
        "evalfleet.status": "error",
        "evalfleet.error": "TOOL_RAISED",
        "evalfleet.turn": 2,
    }


def test_an_intent_and_its_end_are_one_call() -> None:
    intent = line(1, "close", phase=Phase.INTENT, status=CallStatus.UNKNOWN, result_ref=None)
    done = completed(intent, WRITES, result_ref=result_ref("y"), state_digest="ab")
    trace = read_trace(file(intent, TraceLine.model_validate(done.document()), line(2)))
    assert [(call.step, call.tool, call.status.value) for call in trace.calls] == [
        (1, "close", "ok"),
        (2, "look", "ok"),
    ]
    assert [(write.step, write.row.key, write.after) for write in trace.writes] == [(1, "C-1", None)]
    assert (trace.faults, trace.unfinished, trace.torn) == ((), (), False)


def test_an_intent_that_nothing_follows_has_an_unknown_outcome() -> None:
    intent = line(2, "close", phase=Phase.INTENT, status=CallStatus.UNKNOWN, result_ref=None)
    trace = read_trace(file(line(1), intent))
    assert [call.step for call in trace.unfinished] == [2]
    found = unrepeatable(trace)
    assert found is not None
    assert str(found) == "REPLAY_DIVERGED at step 2 (close): nobody knows whether this call was carried out"


@pytest.mark.parametrize("cut", range(1, len(encode_line(line(2)))))
def test_a_last_line_that_a_crash_cut_is_left_out_and_told_of(cut: int) -> None:
    whole, last = file(line(1)), encode_line(line(2))
    trace = read_trace(whole + last[:-cut])
    kept = 2 if cut == 1 else 1  # only its end is missing
    assert (len(trace.calls), trace.torn, trace.faults) == (kept, kept == 1, ())


def edited(**changes: Any) -> bytes:
    document = {**line(2).document(), **changes}
    kept = {name: value for name, value in document.items() if value is not ...}
    return file(line(1)) + json.dumps(kept).encode() + b"\n"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (edited(step=3), "line 2: step 3 follows step 1"),
        (edited(step=1), "line 2: step 1 is there already"),
        (edited(step="2"), "line 2: step: Input should be a valid integer"),
        (edited(run_id="42"), "line 2: run_id is '42' after '41'"),
        (edited(timestamp="2026-01-01T00:00:00.999Z"), "line 2: timestamp 2026-01-01T00:00:00.999Z is before"),
        (edited(timestamp="2026-01-01 00:00:02"), "line 2: timestamp: String should match pattern"),
        (edited(arguments="{}"), "line 2: arguments: Input should be a valid dictionary"),
        (edited(arguments=...), "line 2: arguments: Field required"),
        (edited(result_ref="x"), "line 2: result_ref: String should match pattern"),
        (edited(tool=""), "line 2: tool: String should have at least 1 character"),
        (edited(mood="good"), "line 2: mood: Extra inputs are not permitted"),
        (file(line(1)) + b"nonsense\n", "line 2: is not a JSON object"),
        (file(line(1)) + b"[]\n", "line 2: is not a JSON object"),
        (file(line(1)) + b"\n", "line 2: is not a JSON object"),
        (file(line(1)) + b"[" * 100_000 + b"\n", "line 2: is not a JSON object"),
        (file(line(2)), "line 1: the first step is 2, not 1"),
    ],
)
def test_what_is_wrong_with_a_file_is_told_by_line(data: bytes, message: str) -> None:
    (fault,) = read_trace(data).faults
    assert str(fault).startswith(message)


def test_an_intent_can_only_end_as_the_call_that_it_announced() -> None:
    intent = line(1, "close", phase=Phase.INTENT)
    for other in (line(1, "open"), line(1, "close", arguments={"id": 7})):
        (fault,) = read_trace(file(intent, other)).faults
        assert str(fault) == "line 2: step 1 is there already"


def test_nothing_is_a_trace_without_calls() -> None:
    assert read_trace(b"") == CallTrace()


def test_a_trace_kept_as_values_is_read_like_a_file() -> None:
    assert read_lines([line(1).document(), line(2).document()]) == read_trace(file(line(1), line(2)))


def test_only_calls_that_changed_the_store_are_repeated() -> None:
    trace = read_trace(
        file(
            line(1),
            line(2, "close", state_digest="ab"),
            line(3, "close", status=CallStatus.ERROR, state_digest="ab"),
            line(4, "reply", actor=Actor.RESPONDER, state_digest="cd"),
        )
    )
    assert [call.step for call in to_reapply(trace)] == [2, 4]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({}, None),
        ({"status": CallStatus.ERROR}, "it ended error, recorded is ok"),
        ({"result_ref": result_ref("z")}, f"it returned {result_ref('z')}, recorded is {result_ref('x')}"),
        ({"state_digest": "cd"}, "it left the state cd, recorded is ab"),
    ],
)
def test_where_a_repeated_call_differs(change: dict[str, Any], what: str | None) -> None:
    recorded = line(3, "close", state_digest="ab")
    found = divergence(recorded, recorded.model_copy(update=change))
    assert (None if found is None else str(found)) == (what and f"REPLAY_DIVERGED at step 3 (close): {what}")
