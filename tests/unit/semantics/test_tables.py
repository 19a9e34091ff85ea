"""What a result means, table by table: counts over evidence, the verdict, the score, waiting for a person, ids."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evalfleet.assertions.criteria import CalledTool, NoFailedActions, ScopeCriterion, Succeeded, evaluate
from evalfleet.assertions.match import evaluate_now
from evalfleet.assertions.matchers import equals, includes, json_match
from evalfleet.assertions.tools import ToolMatch, tool_match
from evalfleet.errors import AttemptFailure, AuthoringError, DefinitionError, FailureKind
from evalfleet.execution.input_requests import response_input
from evalfleet.grading.fold import fold
from evalfleet.model.assertion import AssertionPolicy, AssertionResult, AssertionRow, Result
from evalfleet.model.coverage import Channel
from evalfleet.model.events import Event, InputOption, InputRequested
from evalfleet.model.turn import InputResponse, TurnRecord
from evalfleet.model.verdict import Style
from evalfleet.planning.discover import discover
from tests.unit.assertions.traces import asked, called, covering, scope, turn
from tests.unit.planning.projects import write

WORDS = {"passes": Result.MATCHED, "fails": Result.MISMATCHED, "unknown": Result.UNAVAILABLE}


# --- how often ------------------------------------------------------------------------------------------------


def calls(hits: int, undecidable: int, state: str) -> TurnRecord:
    """Calls whose output matches, and calls whose output nobody reported."""
    events: list[Event] = []
    for number in range(hits):
        events += called("f", id=f"hit{number}", output="x")
    for number in range(undecidable):
        events += called("f", id=f"blind{number}")
    return turn(*events, coverage=covering(Channel.ACTIONS, state))


WANTED = tool_match("f", output=includes("x"))
COUNTS: dict[str, ToolMatch] = {
    "called": WANTED,
    "exactly 1": WANTED.exactly(1),
    "exactly 2": WANTED.exactly(2),
    "at least 2": WANTED.at_least(2),
    "at most 1": WANTED.at_most(1),
    "never": WANTED.never(),
}


@pytest.mark.parametrize(
    ("evidence", "hits", "blind", "state", "answers"),
    [
        # the answers stand in the order of COUNTS: called, exactly 1, exactly 2, at least 2, at most 1, never
        ("nothing", 0, 0, "complete", "fails fails fails fails passes passes"),
        ("nothing", 0, 0, "partial", "unknown unknown unknown unknown unknown unknown"),
        ("one hit", 1, 0, "complete", "passes passes fails fails passes fails"),
        ("one hit", 1, 0, "partial", "passes unknown unknown unknown unknown fails"),
        ("two hits", 2, 0, "complete", "passes fails passes passes fails fails"),
        ("two hits", 2, 0, "partial", "passes fails unknown passes fails fails"),
        ("one undecidable", 0, 1, "complete", "unknown unknown unknown unknown unknown unknown"),
        ("a hit and one undecidable", 1, 1, "complete", "passes unknown unknown unknown unknown fails"),
    ],
)
def test_how_often(evidence: str, hits: int, blind: int, state: str, answers: str) -> None:
    record = calls(hits, blind, state)
    found = {name: evaluate(CalledTool(match), scope(record)).result for name, match in COUNTS.items()}
    assert found == dict(zip(COUNTS, map(WORDS.__getitem__, answers.split()), strict=True)), evidence


# --- the verdict ----------------------------------------------------------------------------------------------


def row(result: Result, **policy: Any) -> AssertionRow:
    reason = "coverage:actions=partial (lossy)" if result is Result.UNAVAILABLE else None
    return AssertionRow(
        index=0,
        name="check",
        scope="value",
        criterion=None,
        policy=AssertionPolicy(**policy),
        outcome=AssertionResult(result=result, reason=reason),
    )


HOLDS, FAILS, UNKNOWN = row(Result.MATCHED), row(Result.MISMATCHED), row(Result.UNAVAILABLE)
BROKEN = row(Result.ERRORED)
FAILURE = AttemptFailure(FailureKind.AGENT, "AGENT_RAISED", "broken")


@pytest.mark.parametrize(
    ("execution", "rows", "skip", "verdict"),
    [
        (FAILURE, [HOLDS], None, "errored"),
        (FAILURE, [UNKNOWN, FAILS], "why", "errored"),
        (None, [UNKNOWN, FAILS], "why", "errored"),
        (None, [BROKEN, HOLDS], None, "errored"),
        (None, [FAILS], "why", "failed"),
        (None, [FAILS, HOLDS], None, "failed"),
        (None, [HOLDS], "why", "skipped"),
        (None, [HOLDS], None, "passed"),
        (None, [HOLDS, row(Result.UNAVAILABLE, optional=True)], None, "passed"),
    ],
)
def test_the_verdict(
    execution: AttemptFailure | None, rows: list[AssertionRow], skip: str | None, verdict: str
) -> None:
    assert fold(Style.PASS, execution, rows, skip).verdict.value == verdict


# --- the score ------------------------------------------------------------------------------------------------

EARNS, EARNS_NOTHING = row(Result.MATCHED, points=3), row(Result.MISMATCHED, points=2)
UNKNOWN_POINTS = row(Result.UNAVAILABLE, points=2)


@pytest.mark.parametrize(
    ("contributions", "execution", "state", "earned"),
    [
        ([], None, "complete", 0.0),
        ([EARNS, EARNS_NOTHING], None, "complete", 3.0),
        ([EARNS_NOTHING], None, "complete", 0.0),
        ([EARNS, UNKNOWN_POINTS], None, "partial", 3.0),
        ([UNKNOWN_POINTS], None, "unavailable", None),
        ([EARNS], FAILURE, "partial", 3.0),
        ([], FAILURE, "unavailable", None),
    ],
)
def test_the_score(
    contributions: list[AssertionRow], execution: AttemptFailure | None, state: str, earned: float | None
) -> None:
    score = fold(Style.SCORE, execution, contributions).score
    assert score is not None
    assert (score.state.value, score.earned) == (state, earned)


def test_a_failed_gate_keeps_the_score_that_was_earned() -> None:
    judged = fold(Style.SCORE, None, [EARNS, row(Result.MISMATCHED, gate=True)])
    assert judged.score is not None
    assert (judged.verdict.value, judged.score.state.value, judged.score.earned) == ("failed", "complete", 3.0)


# --- waiting for a person -------------------------------------------------------------------------------------

PARKED = turn(*called("rm", {"path": "x"}, status="pending"), asked(), status="waiting")
DENIED = turn(*called("rm", status="rejected"))


@pytest.mark.parametrize(
    ("situation", "record", "criterion", "answer"),
    [
        ("a waiting turn has not succeeded", PARKED, Succeeded(), "fails"),
        ("a call that waits is pending", PARKED, CalledTool(tool_match("rm", status="pending")), "passes"),
        ("its output is not known", PARKED, CalledTool(tool_match("rm", output=includes("x"))), "unknown"),
        ("what was denied did not fail", DENIED, NoFailedActions(), "passes"),
        ("what was denied was rejected", DENIED, CalledTool(tool_match("rm", status="rejected")), "passes"),
    ],
)
def test_waiting_for_a_person(situation: str, record: TurnRecord, criterion: ScopeCriterion, answer: str) -> None:
    assert evaluate(criterion, scope(record)).result is WORDS[answer], situation


YES_NO = InputRequested("q1", "May I?", options=(InputOption("yes"), InputOption("no")))


@pytest.mark.parametrize(
    ("situation", "pending", "answer", "says"),
    [
        ("two are pending", [YES_NO, InputRequested("q2")], "yes", "2 pending requests"),
        ("the option has a typo", [YES_NO], InputResponse("q1", option_id="yess"), "no option 'yess'; it has: yes, no"),
        ("the request has no id", [InputRequested(None)], "yes", "has no id"),
    ],
)
def test_an_answer_that_is_refused(situation: str, pending: list[InputRequested], answer: Any, says: str) -> None:
    with pytest.raises(AuthoringError, match=says):
        response_input(pending, [answer])


# --- ids ------------------------------------------------------------------------------------------------------

IMPORT = "from evalfleet.planning.define import define_eval\n\n"
ONE = f"{IMPORT}@define_eval\nasync def one(t): ...\n"
LISTED = f"{IMPORT}async def body(t): ...\nevals = "


def ids(project: Path) -> list[str]:
    return [definition.id for definition in discover(project).definitions]


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"evals/f.eval.py": f"{LISTED}[define_eval(body) for _ in range(3)]\n"}, ["f/0000", "f/0001", "f/0002"]),
        ({"evals/f.eval.py": f"{LISTED}{{key: define_eval(body) for key in 'ba'}}\n"}, ["f/a", "f/b"]),
        ({"evals/f/eval.py": ONE}, ["f"]),
    ],
)
def test_ids(tmp_path: Path, files: dict[str, str], found: list[str]) -> None:
    assert ids(write(tmp_path, files)) == found


def test_two_files_of_one_id_are_an_error_that_names_both(tmp_path: Path) -> None:
    write(tmp_path, {"evals/a.eval.py": ONE, "evals/a/eval.py": ONE})
    with pytest.raises(DefinitionError) as raised:
        ids(tmp_path)
    assert [problem.code for problem in raised.value.problems] == ["DUPLICATE_ID"]


def test_keys_that_are_no_part_of_a_path_are_all_named(tmp_path: Path) -> None:
    keys = ["", ".", "..", "x/y", "x\\y", "nul\0", "del\x7f"]
    write(tmp_path, {"evals/f.eval.py": f"{LISTED}{{key: define_eval(body) for key in {keys!r}}}\n"})
    with pytest.raises(DefinitionError) as raised:
        ids(tmp_path)
    assert [problem.code for problem in raised.value.problems] == ["INVALID_ID"] * len(keys)


MATCHES: dict[str, Callable[[], Any]] = {
    "exactly": lambda: WANTED.exactly(0),
    "at_least": lambda: WANTED.at_least(-1),
    "at_most": lambda: WANTED.at_most(0),
}


@pytest.mark.parametrize("count", MATCHES)
def test_a_count_is_at_least_one(count: str) -> None:
    with pytest.raises(AuthoringError, match="at least 1"):
        MATCHES[count]()


# --- values are compared by type ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "found", "holds"),
    [
        (True, True, True),
        (True, "true", False),
        (True, "True", False),
        (True, 1, False),
        ("true", "true", True),
        ("true", "True", False),
        (1, 1.0, True),
        ("1", 1, False),
        (None, "null", False),
    ],
)
def test_cf_05_a_value_equals_its_own_type_only(expected: Any, found: Any, holds: bool) -> None:
    assert evaluate_now(equals(expected), found).holds is holds
    assert evaluate_now(json_match({"blocked": expected}), {"blocked": found}).holds is holds
