"""Each code that an attempt can end with, triggered in a real run and read back from the record store."""

from __future__ import annotations

import json
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

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
    if turn.text == "ask":
        request = InputRequested("q1", "May I?", options=(InputOption("yes"), InputOption("no")))
        return Turn(status=TurnStatus.WAITING, reply="May I?", events=(request,), usage=KNOWN)
    return Turn(reply=turn.text, usage=None if turn.text == "mute" else KNOWN)
"""

EXPERIMENT = """
schema_version: 1
name: codes
evals: {select: [%(select)s]}
limits: {turn_timeout: %(turn)s, attempt_timeout: %(attempt)s}
retry: {max_attempts: 1}
arms:
  mine: {adapter: python, entry: "my_agents:worker"}
"""

HEADER = "import asyncio, os\nfrom evalfleet import *\n\n"


@dataclass(frozen=True)
class Body:
    """A body that ends with a code, whose fault that is, and the reason of its last assertion."""

    source: str
    kind: str = "authoring"
    reason: str | None = None


SENT = 'turn = await t.send("hello")\n'

BODIES = {
    # the eval's
    "EVAL_RAISED": Body("raise ValueError('mine')"),
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
    "TURN_TIMEOUT": Body("await t.send('slow')", kind="deadline"),
    "ATTEMPT_TIMEOUT": Body("await asyncio.sleep(60)", kind="deadline"),
}

#: One that passes, although its agent does not report what it says it always reports.
MUTE = Body("turn = await t.send('mute')\nturn.succeeded()")

SCORED = {
    "SCORE_OUT_OF_RANGE": Body("t.check(1, equals(1)).score(1.7e308)\nt.check(1, equals(1)).score(1.7e308)"),
    "ASSERTION_UNAVAILABLE": Body(
        SENT + "turn.used_no_tools().score(1)", kind="adapter", reason="coverage:actions=partial (a lossy stream)"
    ),
}


def write(project: Path, folder: str, decorator: str, bodies: dict[str, Body]) -> None:
    (project / "evals" / folder).mkdir(parents=True)
    for code, body in bodies.items():
        written = textwrap.indent(body.source, "    ")
        source = f'{HEADER}@{decorator}(description="Ends with {code}.")\nasync def body(t):\n{written}\n'
        (project / "evals" / folder / f"{code.lower()}.eval.py").write_text(source)


def submitted(orchestrate: Orchestrate, project: Path, select: str, **limits: str) -> dict[str, Any]:
    """The cases of a run by their eval, as the store has them."""
    experiment = project / "experiment.yaml"
    experiment.write_text(EXPERIMENT % {"select": select, "turn": "2s", "attempt": "4s", **limits})
    ended = orchestrate("submit", "experiment.yaml", "--inline", "--json", cwd=project)
    assert ended.code == 1, ended.err
    run = ended.values[0]["run"]["id"]
    cases = orchestrate("show", run, "--json", cwd=project).values
    return {case["eval"]: {**case, "run": run} for case in cases}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "my_agents.py").write_text(AGENT)
    write(folder, "pass", "define_eval", {**BODIES, "COVERAGE_CONTRADICTED": MUTE})
    write(folder, "score", "define_score_eval", SCORED)
    return folder


@pytest.fixture(scope="module")
def passing(orchestrate: Orchestrate, project: Path) -> dict[str, Any]:
    return submitted(orchestrate, project, "pass")


@pytest.fixture(scope="module")
def scoring(orchestrate: Orchestrate, project: Path) -> dict[str, Any]:
    return submitted(orchestrate, project, "score")


def ends_so(orchestrate: Orchestrate, case: dict[str, Any], code: str, body: Body) -> None:
    assert (case["status"], case["kind"], case["code"]) == ("errored", body.kind, code), json.dumps(case)
    if body.reason is not None:
        [shown] = orchestrate("show", case["run"], str(case["case"]), "--assertions", "--json").values
        assert body.reason in json.dumps(shown)


@pytest.mark.parametrize("code", BODIES)
def test_a_code_of_a_pass_style_attempt(orchestrate: Orchestrate, passing: dict[str, Any], code: str) -> None:
    ends_so(orchestrate, passing[f"pass/{code.lower()}"], code, BODIES[code])


@pytest.mark.parametrize("code", SCORED)
def test_a_code_of_a_score_style_attempt(orchestrate: Orchestrate, scoring: dict[str, Any], code: str) -> None:
    ends_so(orchestrate, scoring[f"score/{code.lower()}"], code, SCORED[code])


def test_a_contradiction_is_told_of_the_attempt_and_counted_for_the_run(
    orchestrate: Orchestrate, passing: dict[str, Any]
) -> None:
    case = passing["pass/coverage_contradicted"]
    assert (case["status"], case["code"]) == ("passed", None)
    shown = orchestrate("show", case["run"], str(case["case"]), "--diagnostics").out
    assert "COVERAGE_CONTRADICTED usage: the adapter declares it complete, but tokens are not known" in shown
    lines = orchestrate("report", case["run"]).out.splitlines()
    [line] = [line.strip() for line in lines if "contradict" in line]
    assert line.endswith("1 of 27 attempts contradict the coverage that the adapter declares: show a case with "
                         "--diagnostics")  # fmt: skip
