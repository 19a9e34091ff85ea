"""Codes of what runs attempts, stores them and judges them again: processes that die, a store that refuses."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.acceptance.codes.bodies import Body, cases_of, ends_so, shown, submit, write_evals
from tests.acceptance.judge.test_judged_runs import judged_by
from tests.acceptance.judge.test_killed_while_judging import Judge
from tests.integration.scheduling.test_commands import until

if TYPE_CHECKING:
    from tests.acceptance.cli.conftest import Orchestrate

FINE = Body("(await t.send('hello')).succeeded()")
PARROT: Mapping[str, Any] = {"arms": {"parrot": {"adapter": "scripted"}}}
ALONE: Mapping[str, Any] = {**PARROT, "isolation": "process"}

#: Only true in a process that has one attempt.
ISOLATED = "'evalfleet.api.child' in sys.orig_argv"
#: What ends an attempt in a process of its own; the second one's file can't be imported there.
APART = {
    "WORKER_CRASHED": Body("os._exit(3)", kind="worker"),
    "EVAL_NOT_LOADED": FINE,
}


def execute(orchestrate: Orchestrate, *statements: str) -> None:
    """What an operator does to the record store."""
    with psycopg.connect(orchestrate.database_url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def test_an_attempt_in_a_process_of_its_own(orchestrate: Orchestrate, tmp_path: Path) -> None:
    write_evals(tmp_path, "apart", {**APART, "FINE": FINE})
    broken = tmp_path / "evals" / "apart" / "eval_not_loaded.eval.py"
    broken.write_text(f"import sys\nassert not ({ISOLATED})\n{broken.read_text()}", encoding="utf-8")
    cases = cases_of(orchestrate, submit(orchestrate, tmp_path, ALONE))
    for code, body in APART.items():
        ends_so(orchestrate, cases[f"apart/{code.lower()}"], code, body)
    assert cases["apart/fine"]["status"] == "passed"


def test_a_process_that_does_not_begin(orchestrate: Orchestrate, tmp_path: Path) -> None:
    write_evals(tmp_path, "apart", {"FINE": FINE})
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(f"import sys\nif {ISOLATED}: sys.exit('no room')\n")
    paths = filter(None, [str(tmp_path / "site"), orchestrate.environment.get("PYTHONPATH")])
    command = replace(orchestrate, variables={"PYTHONPATH": ":".join(paths)})
    cases = cases_of(orchestrate, submit(command, tmp_path, ALONE))
    ends_so(orchestrate, cases["apart/fine"], "ISOLATION_FAILED", Body("", kind="infrastructure"))
    assert "no room" in shown(orchestrate, cases["apart/fine"])["case"]["message"]


@contextmanager
def refusing(orchestrate: Orchestrate) -> Iterator[None]:
    """A record store that takes no attempt which completed."""
    execute(orchestrate, "ALTER TABLE attempts ADD CONSTRAINT refused CHECK (outcome <> 'completed') NOT VALID")
    yield
    execute(orchestrate, "ALTER TABLE attempts DROP CONSTRAINT refused")


def test_a_record_that_the_store_refuses(orchestrate: Orchestrate, tmp_path: Path) -> None:
    write_evals(tmp_path, "stored", {"FINE": FINE, "RAISES": Body("raise ValueError")})
    assert orchestrate("db", "upgrade").code == 0
    with refusing(orchestrate):
        cases = cases_of(orchestrate, submit(orchestrate, tmp_path, PARROT))
    ends_so(orchestrate, cases["stored/fine"], "RECORD_REJECTED", Body("", kind="infrastructure"))
    assert cases["stored/raises"]["code"] == "EVAL_RAISED", "the others of its batch are kept"


#: The artifact store's folder is a file, for good or until `%s` seconds have passed.
LOSES_ARTIFACTS = """
from pathlib import Path
store = Path(os.environ["EVALFLEET_ARTIFACTS"])
store.write_text("in the way")
asyncio.get_running_loop().call_later(%s, store.unlink)
turn = await t.send("x" + os.urandom(4_000_000).hex())
"""


@pytest.mark.parametrize(
    ("code", "seconds", "asserting", "options"),
    [
        pytest.param("RECORDING_FAILED", 8, "turn.judge.rubric('Is it long?').gate(0.5)", "judge=True"),
        pytest.param("ARTIFACT_STORE_AWAY", 90, "turn.succeeded()", "", marks=pytest.mark.soak),
    ],
    ids=["before it is judged", "when it is sealed"],
)
def test_evidence_that_finds_no_place(
    orchestrate: Orchestrate, tmp_path: Path, code: str, seconds: float, asserting: str, options: str
) -> None:
    body = Body(LOSES_ARTIFACTS % seconds + asserting, kind="infrastructure", options=options)
    write_evals(tmp_path, "large", {code: body})
    command = replace(orchestrate, variables={"EVALFLEET_ARTIFACTS": str(tmp_path / "artifacts")})
    cases = cases_of(orchestrate, submit(command, tmp_path, PARROT))
    ends_so(orchestrate, cases[f"large/{code.lower()}"], code, body)


async def test_a_recording_that_is_damaged_when_it_is_to_be_judged(orchestrate: Orchestrate, tmp_path: Path) -> None:
    judge = Judge()
    async with judged_by(orchestrate, tmp_path, otherwise=judge) as project:
        project.write(rest="evals: {select: [cause]}\nrepetitions: 3\nretry: {max_attempts: 2}")
        process = orchestrate.start("submit", "experiment.yaml", "--inline", cwd=tmp_path)
        await asyncio.wait_for(judge.all_asked.wait(), 60)
        process.send_signal(signal.SIGKILL)
        _, said = await asyncio.to_thread(process.communicate)
        execute(orchestrate, r"UPDATE recordings SET body = '\x99'")
        judge.is_back = True
        run = said.splitlines()[0].removeprefix("run ")
        await project("resume", run, "--inline", "--json")
        cases = (await project("show", run, "--json")).values
    assert {case["code"] for case in cases} == {"RECORDING_UNREADABLE"}
    assert {case["kind"] for case in cases} == {"infrastructure"}


# --- writes to the outside, and a run that is killed ------------------------------------------------------------

WRITES = Body("(await t.send('write')).succeeded()", options="external=True")
HANGS = """
from pathlib import Path

from evalfleet import COMPLETE_COVERAGE, Turn, agent
import asyncio

FREE = Path(__file__).with_name("free")
STARTS = Path(__file__).with_name("starts")

@agent(coverage=COMPLETE_COVERAGE)
async def hangs(turn, ctx):
    with STARTS.open("a") as starts:
        starts.write("x")
    while not FREE.exists():
        await asyncio.sleep(0.05)
    return Turn(reply=turn.text)
"""


def test_a_write_to_the_outside_has_to_be_allowed(orchestrate: Orchestrate, tmp_path: Path) -> None:
    write_evals(tmp_path, "writing", {"OUTSIDE": WRITES, "FINE": FINE})
    cases = cases_of(orchestrate, submit(orchestrate, tmp_path, PARROT))
    outside = cases["writing/outside"]
    assert (outside["status"], outside["code"], outside["attempts"]) == ("blocked", "EXTERNAL_WRITES_NOT_AUTHORIZED", 0)
    assert cases["writing/fine"]["status"] == "passed"


async def test_what_a_killed_run_had_under_way(orchestrate: Orchestrate, tmp_path: Path) -> None:
    write_evals(tmp_path, "killed", {"OUTSIDE": WRITES, "FINE": FINE})
    (tmp_path / "my_agent.py").write_text(HANGS)
    (tmp_path / "experiment.yaml").write_text(
        "{schema_version: 1, name: killed, writes: {allow_external: true},"
        " arms: {mine: {adapter: python, entry: 'my_agent:hangs'}}}"
    )
    process = orchestrate.start("submit", "experiment.yaml", "--inline", cwd=tmp_path)
    starts, announced = tmp_path / "starts", "SELECT count(*) FROM intents WHERE closed_at IS NULL"
    with psycopg.connect(orchestrate.database_url, autocommit=True) as connection:
        await until(lambda: starts.exists() and starts.read_text() == "xx")
        await until(lambda: connection.execute(announced).fetchone() == (2,))
    process.send_signal(signal.SIGKILL)
    _, said = await asyncio.to_thread(process.communicate)
    (tmp_path / "free").touch()
    run = said.splitlines()[0].removeprefix("run ")
    ended = await asyncio.to_thread(orchestrate, "resume", run, "--inline", "--json", cwd=tmp_path)
    cases = cases_of(orchestrate, ended)
    outside, fine = cases["killed/outside"], cases["killed/fine"]
    assert (outside["status"], outside["code"]) == ("blocked", "EXTERNAL_WRITE_RESUME_REQUIRES_RECONCILIATION")
    assert starts.read_text() == "xxx", "what may have written is not sent again"
    lost, last = shown(orchestrate, fine)["attempts"]
    assert (lost["outcome"], lost["kind"], lost["code"]) == ("interrupted", "infrastructure", "RUN_INTERRUPTED")
    assert (last["outcome"], fine["status"]) == ("completed", "passed")


def test_a_failed_write_is_only_sent_again_when_a_person_has_looked(orchestrate: Orchestrate, tmp_path: Path) -> None:
    failing = Body("(await t.send('x')).succeeded(); t.check(1, equals(2))", options="external=True")
    breaking = Body("await t.send('x'); raise ValueError", options="external=True")
    write_evals(tmp_path, "outside", {"FAILS": failing, "BREAKS": breaking, "FINE": FINE})
    (tmp_path / "my_agent.py").write_text(HANGS)
    (tmp_path / "free").touch()
    arms = {"mine": {"adapter": "python", "entry": "my_agent:hangs"}}
    ended = submit(orchestrate, tmp_path, {"arms": arms, "writes": {"allow_external": True}})
    starts, run = tmp_path / "starts", ended.values[-1]["run"]["id"]
    assert starts.read_text() == "xxx"

    def retried(*statuses: str) -> tuple[list[tuple[str, str | None]], str]:
        """How the cases came out that were retried, and what has been sent by then."""
        options = [part for status in statuses for part in ("--retry", status)]
        again = orchestrate("resume", run, "--inline", *options, "--json", cwd=tmp_path)
        ends = [each for each in again.values if each.get("event") == "case.completed"]
        return sorted((each["status"], each.get("code")) for each in ends), starts.read_text()

    blocked = ("blocked", "EXTERNAL_WRITE_RETRY_REQUIRES_RECONCILIATION")
    assert retried("failed", "errored") == ([blocked, blocked], "xxx"), "nothing was sent"
    broken = cases_of(orchestrate, ended)["outside/breaks"]
    assert (broken["status"], broken["code"], broken["attempts"]) == (*blocked, 1)
    assert cases_of(orchestrate, ended)["outside/fails"]["status"] == "failed", "its first verdict counts"
    assert retried("blocked") == ([("errored", "EVAL_RAISED"), ("failed", None)], "xxxxx"), "a person allowed it"
    assert retried("errored") == ([blocked], "xxxxx"), "once"


# --- on Ray -----------------------------------------------------------------------------------------------------


@pytest.mark.ray
def test_a_case_that_kills_its_worker_twice(orchestrate: Orchestrate, tmp_path: Path) -> None:
    write_evals(tmp_path, "ray", {"WORKER_CRASHED": Body("os._exit(3)", kind="worker"), "FINE": FINE})
    experiment = "{schema_version: 1, name: crashing, arms: {parrot: {adapter: scripted}}}"
    (tmp_path / "experiment.yaml").write_text(experiment)
    ended = orchestrate("submit", "experiment.yaml", "--workers", "1", "--json", cwd=tmp_path)
    assert ended.values, ended.err
    cases = cases_of(orchestrate, ended)
    ends_so(orchestrate, cases["ray/worker_crashed"], "WORKER_CRASHED", Body("", kind="worker"))
    assert (cases["ray/worker_crashed"]["attempts"], cases["ray/fine"]["status"]) == (2, "passed")
