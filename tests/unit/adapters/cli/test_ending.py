"""The table of `ending.py`, row by row."""

from __future__ import annotations

import pytest

from evalfleet.errors import FailureKind, SendFailure
from evalfleet.model.coverage import Channel
from evalfleet.model.events import ErrorReported, Message, OperationStarted, Role
from evalfleet.model.turn import Turn, TurnStatus
from evalfleet.model.usage import Usage
from evalfleet_adapters.cli.ending import Ended, judge_ending
from evalfleet_adapters.converters.agent_report import AgentReport, LastWord

SAID = Message(Role.ASSISTANT, "ok")
ACTED = OperationStarted("c", "Bash", {})
USAGE = Usage(input_tokens=1, output_tokens=1)


def report(ended: LastWord, *events: Message | OperationStarted, **fields: object) -> AgentReport:
    return AgentReport(session="s", ended=ended, events=events, usage=USAGE, **fields)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("told", "ended", "status", "warned"),
    [
        (report(LastWord.COMPLETED, SAID), Ended(exit_code=0), TurnStatus.COMPLETED, False),
        (report(LastWord.COMPLETED, ACTED), Ended(exit_code=0), TurnStatus.COMPLETED, False),
        (report(LastWord.COMPLETED, SAID, truncated=True), Ended(exit_code=0), TurnStatus.TRUNCATED, False),
        (report(LastWord.COMPLETED, SAID), Ended(exit_code=1), TurnStatus.COMPLETED, True),
        (report(LastWord.COMPLETED, SAID), Ended(exit_code=None, signal=9, overdue=True), TurnStatus.COMPLETED, True),
        (report(LastWord.LIMITED, ACTED, error="at 1"), Ended(exit_code=1), TurnStatus.FAILED, False),
        (report(LastWord.NONE, SAID), Ended(exit_code=0), TurnStatus.COMPLETED, True),
    ],
)
def test_turns(told: AgentReport, ended: Ended, status: TurnStatus, warned: bool) -> None:
    judged = judge_ending(told, ended)
    assert isinstance(judged.turn, Turn)
    assert (judged.turn.status, judged.warning is not None) == (status, warned)


@pytest.mark.parametrize(
    ("told", "ended", "kind", "code", "says"),
    [
        (report(LastWord.COMPLETED), Ended(exit_code=0), FailureKind.PROVIDER, "EMPTY_RESPONSE", "without a text"),
        (
            report(LastWord.NO_MODEL, error="429"),
            Ended(exit_code=1),
            FailureKind.PROVIDER,
            "AGENT_WITHOUT_MODEL",
            "429",
        ),
        (report(LastWord.BROKEN, error="oh"), Ended(exit_code=1), FailureKind.AGENT, "AGENT_EXITED", "oh"),
        (report(LastWord.NONE), Ended(exit_code=0), FailureKind.PROVIDER, "EMPTY_RESPONSE", "no answer"),
        (
            report(LastWord.NONE),
            Ended(exit_code=127, stderr="not found"),
            FailureKind.ADAPTER,
            "AGENT_MISSING",
            "not found",
        ),
        (
            report(LastWord.NONE, SAID),
            Ended(exit_code=1, noise="on stdout"),
            FailureKind.AGENT,
            "AGENT_EXITED",
            "on stdout",
        ),
        (
            report(LastWord.NONE, SAID),
            Ended(exit_code=1, stderr="err", noise="out"),
            FailureKind.AGENT,
            "AGENT_EXITED",
            "err",
        ),
        (report(LastWord.NONE, SAID), Ended(exit_code=None, signal=9), FailureKind.AGENT, "AGENT_EXITED", "signal 9"),
    ],
)
def test_failures(told: AgentReport, ended: Ended, kind: FailureKind, code: str, says: str) -> None:
    failure = judge_ending(told, ended).turn
    assert isinstance(failure, SendFailure)
    assert (failure.kind, failure.code) == (kind, code)
    assert says in str(failure)
    assert failure.partial is not None and failure.partial.events == told.events


def test_cl_04_an_answer_without_a_last_event_is_kept_and_its_usage_is_unknown() -> None:
    turn = judge_ending(report(LastWord.NONE, SAID), Ended(exit_code=0)).turn
    assert isinstance(turn, Turn)
    assert (turn.usage, turn.events) == (None, (SAID,))
    assert set(turn.coverage) == {Channel.EVENTS, Channel.STATUS, Channel.USAGE}


def test_a_limit_is_told_as_an_error() -> None:
    turn = judge_ending(report(LastWord.LIMITED, error="at 1"), Ended(exit_code=0)).turn
    assert isinstance(turn, Turn)
    assert turn.events == (ErrorReported("at 1"),)
