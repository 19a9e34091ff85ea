"""The machine-readable reason of an assertion, for each that there is: in one real run, read back from the store."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.codes.bodies import Body, evidence_of, submit, write_evals
from tests.acceptance.codes.test_codes_of_judges import WHY
from tests.architecture.source import product_sources
from tests.unit.semantics.test_requirements import names_in

if TYPE_CHECKING:
    from evalfleet.api.programmatic import CaseResult
    from tests.acceptance.cli.conftest import Orchestrate

AGENT = """
import asyncio

from evalfleet import (
    Channel, Compaction, COMPLETE_COVERAGE, OperationFinished, OperationStarted, Turn, Usage, agent, partial
)

EVENTS = {
    "bare": (OperationStarted("1", "f"), OperationFinished("1")),
    "orphan": (OperationFinished("1"),),
    "shell": (OperationStarted("1", "bash", {"command": "$TOOL --now"}, tool="shell"), OperationFinished("1")),
}

LOSSY = partial("a lossy stream")

@agent(coverage=COMPLETE_COVERAGE)
async def worker(turn, ctx):
    if turn.text == "slow":
        await asyncio.sleep(1)
    coverage = dict.fromkeys((Channel.ACTIONS, Channel.EVENTS), LOSSY) if turn.text == "lossy" else {}
    usage = None if turn.text == "free" else Usage(input_tokens=1, output_tokens=1)
    return Turn(reply="yes", events=EVENTS.get(turn.text, ()), usage=usage, coverage=coverage)
"""


@dataclass(frozen=True)
class Reason:
    """What an assertion comes to and why; `send` is what is sent before it, and `turn` what came back."""

    result: str
    reason: str
    assertion: str
    send: str | None = None

    def body(self) -> Body:
        sent = "" if self.send is None else f"turn = await t.send({self.send!r})\n"
        return Body(f"{sent}{self.assertion}")


def unavailable(reason: str, assertion: str, send: str | None = "bare") -> Reason:
    return Reason("unavailable", reason, assertion, send)


def broken(reason: str, match: str) -> Reason:
    return Reason("errored", f"evaluator-error:{reason}", f"t.check('a', {match})")


def scored(reason: str, answer: str) -> Reason:
    return Reason("errored", f"evaluator-error:{reason}", f"t.check(1, define_score_match('x', {answer})).gate(0.5)")


RUNNING = """
other = asyncio.ensure_future(t.new_session().send('slow'))
await asyncio.sleep(0)
t.used_no_tools()
await other"""
CUT_SHORT = """
t.check(1, equals(1))
await asyncio.sleep(60)"""

WAITS = """
async def waits(value):
    await asyncio.sleep(0.01)
    return True
turn.event(event_match('message', text=satisfies('waits', lambda said: waits(said))))"""

REASONS = {
    # evidence that is missing, or may be
    "channel": unavailable("coverage:actions=partial (a lossy stream)", "turn.used_no_tools()", "lossy"),
    "running": unavailable("coverage:actions=partial (scope-still-running)", RUNNING, None),
    "no_question": unavailable("coverage:events=partial (a lossy stream)", "t.require_input_request()", "lossy"),
    "input": unavailable("evidence:operation-input-missing", "turn.called_tool(tool_match('f', input={'x': 1}))"),
    "output": unavailable(
        "evidence:operation-output-missing", "turn.called_tool(tool_match('f', output=includes('x')))"
    ),
    "field": unavailable(
        "evidence:operation.started-field-missing", "turn.event(event_match('operation.started', input={'x': 1}))"
    ),
    "orphan": unavailable("evidence:orphan-finishes=1", "turn.used_no_tools()", "orphan"),
    "usage": unavailable("evidence:usage-unknown-turns=1", "turn.max_tokens(10)", "free"),
    "price": unavailable("evidence:unpriced-turns=1", "turn.max_cost(1)"),
    "opaque": unavailable("evidence:command-opaque", "turn.called_tool(command_match('rm'))", "shell"),
    "unclassified": unavailable("evidence:command-unclassified", "turn.called_tool(command_match('rm'))"),
    "cut_short": unavailable("not-evaluated", CUT_SHORT, None),
    "unscored": unavailable(
        "evaluator:unscored", "t.check(1, define_score_match('x', lambda _: None)).gate(0.5)", None
    ),
    # what does not hold
    "nothing_sent": Reason("mismatched", "evidence:no-activity", "t.succeeded()"),
    "type": Reason("mismatched", "wrong-type:int", "t.check(1, includes('x'))"),
    "difference": Reason("mismatched", "differs-at:", "t.check({'a': [1]}, equals({'a': [2]}))"),
    # matchers and graders that break
    "raised": broken("ZeroDivisionError", "satisfies('x', lambda _: 1 / 0)"),
    "no_boolean": broken("non-boolean (int)", "satisfies('x', lambda _: 1)"),
    "too_long": Reason("errored", "evaluator-error:text-too-long", "t.check('x' * 100_001, similarity('a')).gate(0.5)"),
    "waits": Reason("errored", "evaluator-error:async-predicate", WAITS, "hello"),
    "out_of_range": scored("out-of-range", "lambda _: 2"),
    "not_finite": scored("non-finite", "lambda _: float('nan')"),
    "no_number": scored("not-a-number (str)", "lambda _: 'y'"),
}

#: What the fold says of rows that no evaluation makes, a crash of our own judge, and what only judging again meets.
ELSEWHERE = {
    "coverage:unknown": "unit/grading/test_fold.py::test_the_blame_of_an_errored_verdict",
    "evaluator-error:measurement-out-of-range": "unit/grading/test_fold.py::test_the_blame_of_an_errored_verdict",
    "judge:not-declared": (
        "unit/suites/test_evaluate.py::test_without_a_judge_nothing_is_judged_and_without_material_nobody_is_asked"
    ),
    "judge-evaluator-error": "unit/execution/test_judging.py::test_a_crash_of_our_own_is_errored_and_no_answer",
    "not-recorded": "acceptance/codes/test_codes_of_later_commands.py::test_what_a_sandbox_gave_is_not_known_any_more",
}

#: A reason, or how one begins, as the source writes it; the exceptions are the status of a scope, that of a case, and
#: the mark of what is yet to be asked, which no outcome keeps.
WRITTEN = re.compile(r"(coverage|evidence|evaluator|evaluator-error|judge|wrong-type|differs-at|not)[:-][a-z=-]*")
NO_REASON = {"not-started", "not-needed", "not-needed:", "judge:not-asked"}


@pytest.fixture(scope="module")
def cases(orchestrate: Orchestrate, tmp_path_factory: pytest.TempPathFactory) -> dict[str, CaseResult]:
    project: Path = tmp_path_factory.mktemp("project")
    (project / "my_agents.py").write_text(AGENT)
    write_evals(project, "why", {name: reason.body() for name, reason in REASONS.items()})
    arms = {"mine": {"adapter": "python", "entry": "my_agents:worker"}}
    experiment = {"limits": {"attempt_timeout": "5s", "concurrency": 32}, "arms": arms}
    return {case.eval_id: case for case in evidence_of(orchestrate, submit(orchestrate, project, experiment))}


@pytest.mark.parametrize("name", REASONS)
def test_why_an_assertion_does_not_hold(cases: dict[str, CaseResult], name: str) -> None:
    case, wanted = cases[f"why/{name}"], REASONS[name]
    found = case.assertions[-1].outcome
    told = [found.reason, *(child.reason for child in found.children)]
    assert found.result == wanted.result
    assert any((reason or "").startswith(wanted.reason) for reason in told), told
    assert case.status == ("failed" if wanted.result == "mismatched" else "errored")


def test_every_reason_that_the_source_gives_is_shown() -> None:
    written = {
        node.value
        for source in product_sources()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and WRITTEN.fullmatch(node.value)
    }
    told = [*(each.reason for each in REASONS.values()), *(reason for _, reason in WHY.values()), *ELSEWHERE]
    assert {reason for reason in written - NO_REASON if not any(each.startswith(reason) for each in told)} == set()


@pytest.mark.parametrize("reason", ELSEWHERE)
def test_what_is_shown_elsewhere_is_shown_there(reason: str) -> None:
    file, _, test = ELSEWHERE[reason].partition("::")
    assert test in names_in(file)
