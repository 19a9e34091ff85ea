"""Codes of what is done with a run later: judged again, gone on with, carried from; each read back from the store."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

import evalfleet
from evalfleet.reports.exit_code import ExitCode
from tests.acceptance.codes.bodies import Body, cases_of, shown, submit, write_evals

if TYPE_CHECKING:
    from tests.acceptance.cli.conftest import Orchestrate

PARROT = {"arms": {"parrot": {"adapter": "scripted"}}}
AGENT = """
from evalfleet import COMPLETE_COVERAGE, Turn, sandbox_agent

@sandbox_agent(coverage=COMPLETE_COVERAGE)
async def worker(turn, ctx):
    return Turn(reply=turn.text)
"""
IN_SANDBOX = {
    "arms": {"mine": {"adapter": "python", "entry": "my_agents:worker"}},
    "sandbox": {"backend": "local"},
    "limits": {"attempt_timeout": "3s"},
}
SENT = "turn = await t.send('hello')\nt.check(turn.reply, equals('hello'))\n"
RAN = "done = await t.sandbox.run('true')\n"

#: What a body says when it runs, and when it is judged again.
EDITED = {
    "REPLAY_DIVERGED": (SENT, SENT.replace("send('hello')", "send('good day')")),
    "REPLAY_TIMEOUT": (SENT, SENT + "await asyncio.sleep(60)"),
    "ASSERTS": (SENT + RAN, SENT + RAN + "t.check(done, command_succeeded())"),
    "DECIDES": (SENT + RAN, SENT + RAN + "if done.exit_code:\n    t.check(1, equals(2))"),
}


@pytest.fixture(scope="module")
def rescored(orchestrate: Orchestrate, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The run's cases after they were judged again, and before the same command what `rescore` said of them."""
    project = tmp_path_factory.mktemp("project")
    (project / "my_agents.py").write_text(AGENT)
    write_evals(project, "again", {name: Body(before) for name, (before, _) in EDITED.items()})
    ended = submit(orchestrate, project, IN_SANDBOX)
    assert ended.code == 0, ended.out
    later = project / "later"
    (later / "evals").mkdir(parents=True)
    write_evals(later, "again", {name: Body(after) for name, (_, after) in EDITED.items()})
    said = orchestrate("rescore", ended.values[-1]["run"]["id"], "--evals", str(later), "--json", cwd=project)
    assert said.values, said.err
    return {**cases_of(orchestrate, ended), "said": said.values[0]}


@pytest.mark.parametrize(("code", "kind"), [("REPLAY_DIVERGED", "authoring"), ("REPLAY_TIMEOUT", "grader")])
def test_a_code_of_judging_again(rescored: dict[str, Any], code: str, kind: str) -> None:
    case = rescored[f"again/{code.lower()}"]
    assert (case["status"], case["kind"], case["code"]) == ("errored", kind, code)


def test_what_a_sandbox_gave_is_not_known_any_more(orchestrate: Orchestrate, rescored: dict[str, Any]) -> None:
    case = rescored["again/asserts"]
    assert (case["status"], case["kind"], case["code"]) == ("errored", "grader", "ASSERTION_UNAVAILABLE")
    *_, unknown = shown(orchestrate, case)["attempt"]["assertions"]
    assert (unknown["outcome"]["result"], unknown["outcome"]["reason"]) == ("unavailable", "not-recorded")


def test_a_body_that_decides_by_it_keeps_its_verdict(rescored: dict[str, Any]) -> None:
    assert rescored["again/decides"]["status"] == "passed"
    assert rescored["said"]["bases"] == {"replayed": 3, "kept": 1}


# --- going on ----------------------------------------------------------------------------------------------------


def limited(orchestrate: Orchestrate, project: Path) -> dict[str, Any]:
    """A run that stopped since too many of its cases errored, as it is listed."""
    write_evals(project, "some", {f"E{n}": Body("raise ValueError") for n in range(6)})
    limits = {"max_failures": 2, "concurrency": 1}
    ended = submit(orchestrate, project, {**PARROT, "limits": limits})
    assert ended.code == ExitCode.LIMITED
    (run,) = orchestrate("status", ended.values[-1]["run"]["id"], "--json").values
    return run


def test_a_run_of_too_many_failures_is_limited_and_leaves_the_rest(orchestrate: Orchestrate, tmp_path: Path) -> None:
    run = limited(orchestrate, tmp_path)
    assert (run["run"]["status"], run["accepted"]) == ("limited", False)
    statuses = [case["status"] for case in orchestrate("show", run["run"]["id"], "--json").values]
    assert 2 <= statuses.count("errored") < 6 and set(statuses) == {"errored", "pending"}


def error_of(orchestrate: Orchestrate, *arguments: str, cwd: Path) -> dict[str, Any]:
    ended = orchestrate(*arguments, "--json", cwd=cwd)
    assert ended.code == 2, ended.out + ended.err
    return ended.values[-1]["error"]


def test_codes_of_going_on_with_what_has_changed_since(orchestrate: Orchestrate, tmp_path: Path) -> None:
    run = limited(orchestrate, tmp_path)["run"]["id"]
    files = [*(tmp_path / "evals" / "some").iterdir()]
    for file in files:
        file.write_text(file.read_text().replace("ValueError", "KeyError"))
    refused = error_of(orchestrate, "resume", run, "--inline", cwd=tmp_path)
    assert refused["code"] == "EVALUATION_RESUME_INCOMPATIBLE"
    assert {each["code"] for each in refused["problems"]} == {"DEFINITION_CHANGED"}
    for file in files:
        file.write_text(file.read_text().replace("@define_eval", "@define_score_eval"))
    assert error_of(orchestrate, "rescore", run, cwd=tmp_path)["code"] == "STYLE_CHANGED"
    for file in files:
        file.unlink()
    assert error_of(orchestrate, "rescore", run, cwd=tmp_path)["code"] == "UNKNOWN_EVAL"


def test_codes_of_calls_that_ask_for_what_there_is_not(orchestrate: Orchestrate, tmp_path: Path) -> None:
    """Nothing is planned for them."""
    write_evals(tmp_path, "some", {"FINE": Body("(await t.send('x')).succeeded()")})
    (tmp_path / "experiment.yaml").write_text(json.dumps({"schema_version": 1, "name": "calls", **PARROT}))
    for more in ((), ("--resume-unfinished",)):
        called = ("submit", "experiment.yaml", "--inline", "--retry", "failed", *more)
        refused = error_of(orchestrate, *called, cwd=tmp_path)
        assert refused["code"] == "EVALUATION_RESUME_REQUIRED", refused
        assert "orchestrate resume RUN --retry" in refused["message"]
    wrong = {"selct": ["a"], "select": "some", "event_deadline": 0, "overrides": {"limits.concurrency": 2}}
    with pytest.raises(evalfleet.DefinitionError) as raised:
        asyncio.run(evalfleet.run(tmp_path / "experiment.yaml", **wrong))  # type: ignore[arg-type]
    assert raised.value.code == "EVALUATION_OPTIONS_INVALID"
    assert [(each.field, each.hint) for each in raised.value.problems] == [
        ("selct", "did you mean 'select'?"),
        ("select", None),
        ("event_deadline", None),
        ("overrides", None),
    ]
    assert "calls" not in {run["name"] for run in orchestrate("runs", "--json", cwd=tmp_path).values}


def test_an_unfinished_run_goes_on_with_what_is_to_be_retried(orchestrate: Orchestrate, tmp_path: Path) -> None:
    run = limited(orchestrate, tmp_path)["run"]["id"]
    errored = len(orchestrate("show", run, "--status", "errored", "--json").values)
    called = ("submit", "experiment.yaml", "--inline", "--resume-unfinished", "--retry", "errored", "--json")
    ended = orchestrate(*called, cwd=tmp_path)
    assert ended.values[-1]["run"]["id"] == run
    again = [each for each in ended.values if each.get("event") == "case.started" and each["attempt"] == 2]
    assert len(again) == errored >= 2, ended.out


def test_a_rule_of_acceptance_that_this_version_does_not_read(orchestrate: Orchestrate, tmp_path: Path) -> None:
    run = limited(orchestrate, tmp_path)["run"]["id"]
    with psycopg.connect(orchestrate.database_url, autocommit=True) as connection:
        statement = "UPDATE runs SET experiment = (experiment::jsonb || %s)::text WHERE id = %s"
        connection.execute(statement, (Jsonb({"accept": {"pass_rate": {"min": 5}}}), run))
    assert error_of(orchestrate, "report", run, cwd=tmp_path)["code"] == "INVALID_ACCEPT"


# --- carrying ----------------------------------------------------------------------------------------------------

#: A body, and what is planned for its case after it ran: `RUN` is the run's id.
CARRIED = {
    "passes": (Body(SENT), "carry", "passed in run RUN"),
    "fails": (Body("t.check(1, equals(2))"), "carry", "failed in run RUN"),
    "errs": (Body("raise ValueError"), "run", "errored in run RUN, which is not an answer to carry"),
    "skips": (Body("t.skip('later')"), "run", "skipped in run RUN, which is not an answer to carry"),
    "writes": (
        Body(SENT, options="external=True"),
        "blocked",
        "the eval writes to the outside world and writes.allow_external is not set",
    ),
}


def test_why_a_case_is_carried_or_not(orchestrate: Orchestrate, tmp_path: Path) -> None:
    write_evals(tmp_path, "of", {name: body for name, (body, _, _) in CARRIED.items()})
    run = submit(orchestrate, tmp_path, PARROT).values[-1]["run"]["id"]
    write_evals(tmp_path, "new", {"never": Body(SENT)})
    edited = tmp_path / "evals" / "of" / "passes.eval.py"
    cases = planned(orchestrate, tmp_path)
    assert cases.pop("new/never") == ("run", "never settled before")
    assert cases == {f"of/{name}": (kind, why.replace("RUN", run)) for name, (_, kind, why) in CARRIED.items()}
    edited.write_text(f"{edited.read_text()}# edited\n")
    assert planned(orchestrate, tmp_path)["of/passes"] == ("run", f"changed since run {run}: source")


def planned(orchestrate: Orchestrate, project: Path) -> dict[str, tuple[str, str]]:
    """What `plan --reuse` says of each case."""
    ended = orchestrate("plan", "experiment.yaml", "--reuse", "--cases", "--json", cwd=project)
    return {case["eval"]: (case["action"], case["reason"]) for case in ended.values}
