"""Each code that an attempt can end with, triggered in a real run and read back from the record store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.codes.bodies import Body, cases_of, ends_so, submit, write_evals

if TYPE_CHECKING:
    from tests.acceptance.cli.conftest import Orchestrate

AGENT = """
import asyncio
from evalfleet import Coverage, InputOption, InputRequested, SendFailure, FailureKind, Turn, TurnStatus, Usage, agent
from evalfleet import complete, partial

KNOWN = Usage(input_tokens=1, output_tokens=1)

@agent(coverage=Coverage(events=complete, actions=partial("a lossy stream"), messages=complete, usage=complete,
                         status=complete, data=complete))
async def worker(turn, ctx):
    if turn.text == "slow":
        await asyncio.sleep(60)
    if turn.text == "raise":
        raise ZeroDivisionError("broken on order")
    if turn.text == "odd":
        return 3
    if turn.text == "fail":
        raise SendFailure("no such luck", kind=FailureKind.PROVIDER, code="PROVIDER_UNAVAILABLE")
    if turn.text == "fail somehow":
        raise SendFailure("no such luck")
    if turn.text == "ask":
        request = InputRequested("q1", "May I?", options=(InputOption("yes"), InputOption("no")))
        return Turn(status=TurnStatus.WAITING, reply="May I?", events=(request,), usage=KNOWN)
    return Turn(reply=turn.text, usage=None if turn.text == "mute" else KNOWN)
"""

EXPERIMENT = {
    "limits": {"turn_timeout": "2s", "attempt_timeout": "4s"},
    "arms": {"mine": {"adapter": "python", "entry": "my_agents:worker"}},
}

SENT = 'turn = await t.send("hello")\n'

BODIES = {
    # the eval's
    "EVAL_RAISED": Body("raise ValueError('mine')"),
    "EXECUTION_FAILED": Body("raise GeneratorExit"),
    "NO_ASSERTIONS": Body(SENT),
    "NEVER_AWAITED": Body("t.send('hello')\nt.check(1, equals(1))"),
    "SEND_NOT_AWAITED": Body("asyncio.ensure_future(t.send('slow'))\nawait asyncio.sleep(0)\nt.check(1, equals(1))"),
    "SEND_IN_FLIGHT": Body("first = asyncio.ensure_future(t.send('slow'))\nawait asyncio.sleep(0)\nawait t.send('x')"),
    "SEND_CANCELLED": Body(
        "first = asyncio.ensure_future(t.send('slow'))\nawait asyncio.sleep(0.01)\nfirst.cancel()\n"
        "await asyncio.wait([first])\nawait t.send('x')"
    ),
    "BODY_CANCELLED": Body("asyncio.current_task().cancel()\nawait asyncio.sleep(0)"),
    "AFTER_THE_END": Body(
        "async def late(value):\n    t.check(1, equals(1))\n    return True\nt.check(1, satisfies('late', late))"
    ),
    "INVALID_ASSERTION": Body("t.check(1, 1)"),
    "AUTHORING_ERROR": Body(SENT + "turn.max_tokens(-1)"),
    "ASSERTION_MISCONFIGURED": Body("t.check(1, equals(1)).gate().gate()"),
    "TOO_MANY_ASSERTIONS": Body("for n in range(5_000):\n    t.check(1, equals(1))"),
    "PASS_MEASUREMENT_THRESHOLD_MISSING": Body("t.check('a', similarity('a'))"),
    "INVALID_BODY": Body("yield"),
    "INVALID_SEND": Body("await t.send(3)"),
    "INVALID_RESPONSE": Body("await t.send('ask')\nawait t.respond(InputResponse('q1', option_id='yess'))"),
    "INVALID_GROUP": Body("with t.group(''):\n    pass"),
    "SKIP_WITHOUT_REASON": Body("t.skip('')"),
    "NO_FIXTURE": Body("t.fixture"),
    "NO_SANDBOX": Body("t.sandbox"),
    # evidence
    "ASSERTION_UNAVAILABLE": Body(
        SENT + "turn.used_no_tools()", kind="adapter", reason="coverage:actions=partial (a lossy stream)"
    ),
    "ASSERTION_ERRORED": Body(
        SENT + "t.check(turn.reply, satisfies('x', lambda _: 1))",
        kind="grader",
        reason="evaluator-error:non-boolean (int)",
    ),
    "INVALID_TURN": Body("await t.send('odd')", kind="agent"),
    # the agent's and the provider's
    "AGENT_RAISED": Body("await t.send('raise')", kind="agent"),
    "PROVIDER_UNAVAILABLE": Body("await t.send('fail')", kind="provider"),
    "SEND_FAILED": Body("await t.send('fail somehow')", kind="adapter"),
    "TURN_TIMEOUT": Body("await t.send('slow')", kind="deadline"),
    "ATTEMPT_TIMEOUT": Body("await asyncio.sleep(60)", kind="deadline"),
}

#: One that passes, although its agent does not report what it says it always reports.
MUTE = Body("turn = await t.send('mute')\nturn.succeeded()")

#: What takes as long as the engine's patience.
SLOW = {
    "EVALUATION_FAILED": Body(
        "async def never(value):\n    await asyncio.sleep(600)\nt.check(1, satisfies('never', never))",
        kind="grader",
        reason="not-evaluated",
    ),
}

SCORED = {
    "SCORE_OUT_OF_RANGE": Body("t.check(1, equals(1)).score(1.7e308)\nt.check(1, equals(1)).score(1.7e308)"),
    "ASSERTION_UNAVAILABLE": Body(
        SENT + "turn.used_no_tools().score(1)", kind="adapter", reason="coverage:actions=partial (a lossy stream)"
    ),
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "my_agents.py").write_text(AGENT)
    write_evals(folder, "pass", {**BODIES, "COVERAGE_CONTRADICTED": MUTE})
    write_evals(folder, "slow", SLOW)
    write_evals(folder, "score", SCORED, "define_score_eval")
    return folder


@pytest.fixture(scope="module")
def passing(orchestrate: Orchestrate, project: Path) -> dict[str, Any]:
    return cases_of(orchestrate, submit(orchestrate, project, {**EXPERIMENT, "evals": {"select": ["pass"]}}))


@pytest.fixture(scope="module")
def scoring(orchestrate: Orchestrate, project: Path) -> dict[str, Any]:
    return cases_of(orchestrate, submit(orchestrate, project, {**EXPERIMENT, "evals": {"select": ["score"]}}))


@pytest.mark.parametrize("code", BODIES)
def test_a_code_of_a_pass_style_attempt(orchestrate: Orchestrate, passing: dict[str, Any], code: str) -> None:
    ends_so(orchestrate, passing[f"pass/{code.lower()}"], code, BODIES[code])


@pytest.mark.parametrize("code", SCORED)
def test_a_code_of_a_score_style_attempt(orchestrate: Orchestrate, scoring: dict[str, Any], code: str) -> None:
    ends_so(orchestrate, scoring[f"score/{code.lower()}"], code, SCORED[code])


@pytest.mark.soak
def test_a_code_that_takes_its_time(orchestrate: Orchestrate, project: Path) -> None:
    cases = cases_of(orchestrate, submit(orchestrate, project, {**EXPERIMENT, "evals": {"select": ["slow"]}}))
    for code, body in SLOW.items():
        ends_so(orchestrate, cases[f"slow/{code.lower()}"], code, body)


def test_a_contradiction_is_told_of_the_attempt_and_counted_for_the_run(
    orchestrate: Orchestrate, passing: dict[str, Any]
) -> None:
    case = passing["pass/coverage_contradicted"]
    assert (case["status"], case["code"]) == ("passed", None)
    shown = orchestrate("show", case["run"], str(case["case"]), "--diagnostics").out
    assert "COVERAGE_CONTRADICTED usage: the adapter declares it complete, but tokens are not known" in shown
    lines = orchestrate("report", case["run"]).out.splitlines()
    [line] = [line.strip() for line in lines if "contradict" in line]
    said = f"1 of {len(passing)} attempts contradict the coverage that the adapter declares"
    assert line.endswith(f"{said}: show a case with --diagnostics")
