from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from evalfleet.errors import FailureKind
from evalfleet.model.assertion import AssertionPolicy, AssertionResult, AssertionRow, Result
from evalfleet.model.changes import Attribution, Change, ChangedBy, ChangeKind, FileFacts, Window
from evalfleet.model.coverage import COMPLETE_COVERAGE, Channel, partial
from evalfleet.model.events import (
    Compaction,
    ContextInjected,
    ErrorReported,
    InputOption,
    InputRequested,
    Message,
    OperationFinished,
    OperationStarted,
    OperationStatus,
    Role,
    SkillLoaded,
    Thinking,
    Unrecognised,
)
from evalfleet.model.report import AttemptDetail, AttemptView, CaseView
from evalfleet.model.sandbox import SandboxUse
from evalfleet.model.turn import InputFile, InputResponse, TurnInput, TurnRecord, TurnStatus
from evalfleet.model.usage import Usage
from evalfleet.model.verdict import CaseStatus, Outcome, Verdict
from evalfleet.reports.transcript import TranscriptParts, render_transcript

TURN = TurnRecord(
    session=0,
    index=0,
    sequence=0,
    input=TurnInput("What's the weather?"),
    status=TurnStatus.COMPLETED,
    events=(
        Message(Role.USER, "What's the weather?"),
        Thinking("two cities"),
        OperationStarted("1", "get_weather", {"city": "Brooklyn"}),
        OperationStarted("2", "get_weather", {"city": "Queens"}),
        OperationFinished("2", OperationStatus.FAILED, "timeout"),
        OperationFinished("1", OperationStatus.COMPLETED, {"sky": "sunny"}),
        Message(Role.ASSISTANT, "It is sunny.\nIn Brooklyn."),
    ),
    data=None,
    usage=Usage(input_tokens=1200, output_tokens=34),
    coverage=COMPLETE_COVERAGE,
    started_at=1.0,
    duration=0.8,
)

MISMATCH = AssertionRow(
    index=1,
    name="check",
    scope="value",
    criterion={"includes": "rain"},
    policy=AssertionPolicy(),
    outcome=AssertionResult(result=Result.MISMATCHED, expected="rain", actual="It is sunny."),
    source="evals/weather/brooklyn.eval.py:9",
    holds=False,
)


def detail(*assertions: AssertionRow, turn: TurnRecord = TURN, diagnostics: tuple[str, ...] = ()) -> AttemptDetail:
    view = AttemptView(
        attempt=1 << 40,
        case=0,
        number=1,
        outcome=Outcome.COMPLETED,
        settles=True,
        worker="w",
        started_at=1.0,
        duration=1.2,
        verdict=Verdict.FAILED,
        usage=TURN.usage,
        cost_usd=0.0012,
    )
    return AttemptDetail(view=view, turns=(turn,), assertions=assertions, diagnostics=diagnostics)


def transcript(case: CaseView, shown: AttemptDetail, parts: TranscriptParts | None = None) -> list[str]:
    return list(render_transcript(case, shown, parts or TranscriptParts()))


def test_the_whole_transcript(make_case: Callable[..., CaseView]) -> None:
    matched = replace(
        MISMATCH,
        index=0,
        name="succeeded",
        scope="turn/0/0",
        outcome=AssertionResult(result=Result.MATCHED),
        source=None,
        holds=True,
    )
    lines = transcript(make_case(status=CaseStatus.FAILED), detail(matched, MISMATCH))
    assert lines == [
        "weather/brooklyn #1 · arm small · attempt 1 · failed",
        "  1.2 s · 1,200 tokens in · 34 tokens out · $0.0012",
        "",
        "turn 1 · completed · 800 ms · 1,200 tokens in · 34 tokens out",
        "  user      What's the weather?",
        "  thinking  two cities",
        '  tool      get_weather({"city": "Brooklyn"})',
        '  tool      get_weather({"city": "Queens"})',
        '            ↳ get_weather failed: "timeout"',
        '            ↳ get_weather completed: {"sky": "sunny"}',
        "  assistant It is sunny.",
        "            In Brooklyn.",
        "",
        "assertions",
        "  ✓ succeeded · turn/0/0",
        "  ✗ check · value  evals/weather/brooklyn.eval.py:9",
        '      expected "rain"',
        '      actual   "It is sunny."',
    ]


def test_what_a_sandbox_took_is_said(make_case: Callable[..., CaseView]) -> None:
    use = SandboxUse(backend="local", starts=1, making=0.25, using=61, closing=0.04)
    head = transcript(make_case(), replace(detail(), sandbox=use))[2]
    assert head == "  sandbox local · 1 start · making 250 ms, using 1m 01s, closing 40 ms"
    head = transcript(make_case(), replace(detail(), sandbox=replace(use, kept="r1%2F9")))[2]
    assert head.endswith("closing 40 ms · kept: orchestrate sandbox enter r1%2F9")


def test_nothing_an_agent_says_reaches_the_terminal_raw(make_case: Callable[..., CaseView]) -> None:
    evil = "\x1b]0;title\x07\x1b[2J\r\x00\u202e\ud800"
    events = (
        Message(Role.ASSISTANT, evil),
        Thinking(evil),
        OperationStarted(evil, evil, {evil: evil}),
        OperationStarted("raw", evil, raw_input=evil),
        OperationFinished(evil, OperationStatus.COMPLETED, evil),
        OperationFinished("unknown" + evil),
        SkillLoaded(evil),
        InputRequested(evil, evil, evil, options=(InputOption(evil, evil),)),
        ContextInjected(evil, evil),
        Compaction(evil),
        ErrorReported(evil),
        Unrecognised(evil, evil),
    )
    turn = replace(
        TURN,
        events=events,
        input=TurnInput(
            evil, (InputFile(evil, evil, b""),), (InputResponse(evil, evil), InputResponse(evil, None, evil))
        ),
        coverage=COMPLETE_COVERAGE.downgrade({Channel.ACTIONS: partial(evil)}),
        failure=evil,
    )
    row = replace(
        MISMATCH,
        name=evil,
        label=evil,
        group=(evil,),
        source=evil,
        scope=f"value{evil}",
        outcome=AssertionResult(
            result=Result.ERRORED,
            reason=evil,
            expected=evil,
            actual=evil,
            children=(AssertionResult(result=Result.MISMATCHED, expected=evil, actual=evil),),
        ),
    )
    shown = detail(row, turn=turn, diagnostics=(evil,))
    shown = replace(shown, view=replace(shown.view, message=evil, code=evil, kind=FailureKind.AGENT))
    case = make_case(eval_id=evil, arm=evil, variants={evil: evil})
    for line in transcript(case, shown, TranscriptParts(diagnostics=True)):
        assert line.isprintable(), repr(line)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (
            replace(
                MISMATCH,
                outcome=AssertionResult(result=Result.UNAVAILABLE, reason="coverage:actions=partial (final only)"),
            ),
            "  ? check · value",
        ),
        (replace(MISMATCH, outcome=AssertionResult(result=Result.ERRORED, reason="ValueError")), "  ! check · value"),
        (
            replace(
                MISMATCH,
                policy=AssertionPolicy(gate=True, gate_min=0.8),
                outcome=AssertionResult(result=Result.MATCHED, measurement=0.5),
            ),
            "  ✗ check · value · gate ≥ 0.8 · measured 0.5",
        ),
        (
            replace(
                MISMATCH,
                policy=AssertionPolicy(points=3),
                outcome=AssertionResult(result=Result.MATCHED),
                holds=True,
                earned=3.0,
            ),
            "  ✓ check · value · 3 of 3 points",
        ),
        (
            replace(MISMATCH, policy=AssertionPolicy(points=3), outcome=AssertionResult(result=Result.UNAVAILABLE)),
            "  ? check · value · unknown of 3 points",
        ),
        (replace(MISMATCH, label="no rain", group=("weather",)), "  ✗ weather › no rain · check value"),
        (replace(MISMATCH, policy=AssertionPolicy(optional=True)), "  ✗ check · value · optional"),
    ],
)
def test_assertion_line(row: AssertionRow, expected: str, make_case: Callable[..., CaseView]) -> None:
    lines = transcript(make_case(), detail(row), TranscriptParts(turns=False, tools=False))
    line = next(line for line in lines if line.lstrip().startswith(tuple("✓✗?!")))
    assert line.removesuffix(f"  {row.source}") == expected


def test_why_something_is_unavailable_stands_below_it(make_case: Callable[..., CaseView]) -> None:
    reason = "coverage:actions=partial (final events only)"
    row = replace(MISMATCH, outcome=AssertionResult(result=Result.UNAVAILABLE, reason=reason))
    assert f"      unavailable: {reason}" in transcript(make_case(), detail(row))


def test_every_child_of_a_composite_is_shown(make_case: Callable[..., CaseView]) -> None:
    children = (
        AssertionResult(result=Result.MATCHED, expected={"includes": "sun"}),
        AssertionResult(result=Result.MISMATCHED, expected={"includes": "rain"}, actual="sunny"),
    )
    row = replace(MISMATCH, outcome=AssertionResult(result=Result.MISMATCHED, children=children))
    assert transcript(make_case(), detail(row))[-4:] == [
        '      expected {"includes": "rain"}',
        '      ✓ {"includes": "sun"}',
        '      ✗ {"includes": "rain"}',
        '          actual   "sunny"',
    ]


def test_cutting_a_text_says_so_and_changes_no_mark(make_case: Callable[..., CaseView]) -> None:
    long = replace(TURN, events=(Message(Role.ASSISTANT, "x" * 5000),))
    cut = transcript(make_case(), detail(MISMATCH, turn=long), TranscriptParts(limit=10))
    whole = transcript(make_case(), detail(MISMATCH, turn=long), TranscriptParts(limit=None))
    assert "  assistant xxxxxxxxxx… [4,990 more characters]" in cut
    assert "  assistant " + "x" * 5000 in whole
    assert [line[2] for line in cut if "· value" in line] == [line[2] for line in whole if "· value" in line] == ["✗"]


def test_incomplete_evidence_is_said_beside_the_turn(make_case: Callable[..., CaseView]) -> None:
    turn = replace(TURN, coverage=COMPLETE_COVERAGE.downgrade({Channel.ACTIONS: partial("final events only")}))
    assert "  evidence  actions partial: final events only" in transcript(make_case(), detail(turn=turn))


def test_parts_can_be_left_out(make_case: Callable[..., CaseView]) -> None:
    only_tools = transcript(make_case(), detail(MISMATCH), TranscriptParts(turns=False, assertions=False))
    assert not any(line.startswith("  assistant") for line in only_tools)
    assert any("get_weather" in line for line in only_tools)
    assert "assertions" not in only_tools


def changed() -> AttemptDetail:
    old, new = FileFacts(0o100644, 12, "a" * 40), FileFacts(0o100755, 20 << 20, "b" * 40)
    patch = b"diff --git a/a.py b/a.py\n@@ -1 +1 @@\n-old\n+new \x1b[31m\n"
    own = (
        Change(path="a.py", kind=ChangeKind.MODIFIED, before=old, after=old, patch=patch),
        Change(path="run.log", kind=ChangeKind.ADDED, after=old, ignored=True, patch=patch),
        Change(path="big\n.bin", kind=ChangeKind.MODIFIED, before=old, after=new, binary=True, patch=None),
    )
    windows = (
        Window(label="turn1", by=ChangedBy.EVAL, before="a", after="b", changes=own[:1]),
        Window(label="turn1", by=ChangedBy.AGENT, before="b", after="c", changes=own, omitted=2, unread=("x",)),
    )
    return replace(detail(), attribution=Attribution(windows=windows, error="turn2: git is gone"))


def test_changes_are_named_window_by_window(make_case: Callable[..., CaseView]) -> None:
    lines = transcript(make_case(), changed())
    start = lines.index("changes")
    assert lines[start : lines.index("", start)] == [
        "changes",
        "  turn1 · eval · 1 change",
        "    modified a.py (12 bytes)",
        "  turn1 · agent · 3 changes",
        "    modified a.py (12 bytes)",
        "    modified big\\n.bin (binary, 12 bytes → 20 MB, mode 100644 → 100755, content not kept)",
        "    left out by the project's .gitignore",
        "      added    run.log (12 bytes)",
        "    2 paths beyond the limits not followed or not kept",
        "    unreadable x",
        "  ✗ not known: turn2: git is gone",
    ]


def test_a_diff_shows_lines_and_no_control_characters(make_case: Callable[..., CaseView]) -> None:
    parts = TranscriptParts(turns=False, tools=False, assertions=False, judge=False, changes=False, diff=True)
    lines = list(render_transcript(make_case(), changed(), parts))
    assert "turn1 · agent · 3 changes" in lines[lines.index("changes") + 7]
    assert lines.count("      -old") == 2 and "      +new \\x1b[31m" in lines
    assert not any("conversation" in line or "✓" in line for line in lines)


def test_attached_documents_are_named_with_their_size(make_case: Callable[..., CaseView]) -> None:
    lines = transcript(make_case(), replace(detail(), attachments={"trace": [1, 2], "a\x1b": {}}))
    assert "attachment trace · 5 bytes of JSON, whole with --json" in lines
    assert "attachment a\\x1b · 2 bytes of JSON, whole with --json" in lines
