"""Whole runs that ask a judge, against a real local one that misbehaves on order; what is left stands in Postgres."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from evalfleet.testing.http_endpoint import Request
from evalfleet.testing.judge_endpoint import CUT, GARBLED, RESET, rate_limited, ruling, server_error
from evalfleet.testing.model_endpoint import ModelEndpoint, Scripted, completion
from tests.acceptance.cli.conftest import Ended, Orchestrate

EVALS = {
    "evals/cause.eval.py": """
from evalfleet import T, define_eval

@define_eval(judge=True)
async def cause(t: T) -> None:
    turn = await t.send("Why did it rain?")
    turn.judge.closed_qa("Is the cause named?").gate(0.5)
""",
    "evals/plain.eval.py": """
from evalfleet import T, define_eval

@define_eval
async def plain(t: T) -> None:
    (await t.send("Hello")).succeeded()
""",
    "evals/sync.eval.py": """
from evalfleet import SyncT, define_eval

@define_eval(judge={"votes": 2, "reducer": "min"})
def sync(t: SyncT) -> None:
    turn = t.send("Tell me")
    turn.judge.rubric("Says something.").gate(0.5).or_stop()
    turn.succeeded()
""",
}
EXPERIMENT = """
schema_version: 1
name: judged
arms:
  parrot: {{adapter: scripted, model: parrot-1}}
judge: {{model: judge-m, base_url: "{url}"{more}}}
{rest}
"""


class Project:
    """A project with a judge; `script` answers what is asked of it, in order, then `otherwise`."""

    def __init__(self, folder: Path, orchestrate: Orchestrate, endpoint: ModelEndpoint) -> None:
        self.folder = folder
        self.orchestrate = orchestrate
        self.endpoint = endpoint
        for name, text in EVALS.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        self.write()

    def write(self, more: str = "", rest: str = "") -> None:
        text = EXPERIMENT.format(url=self.endpoint.base_url, more=more, rest=rest)
        (self.folder / "experiment.yaml").write_text(text, encoding="utf-8")

    async def __call__(self, *arguments: str) -> Ended:
        return await asyncio.to_thread(self.orchestrate, *arguments, cwd=self.folder)

    async def submit(self, *arguments: str) -> tuple[Ended, dict[str, Any]]:
        ended = await self("submit", "experiment.yaml", *arguments, "--inline", "--json")
        assert ended.values, ended.err
        return ended, ended.values[-1]

    async def case(self, report: dict[str, Any], name: str) -> dict[str, Any]:
        ended = await self("show", report["run"]["id"], name, "--json")
        return ended.values[0]

    def rows(self, statement: str, run: str) -> list[tuple[Any, ...]]:
        where = "judge_calls j JOIN runs r USING (run_key) WHERE r.id = %s ORDER BY j.attempt, j.call"
        with psycopg.connect(self.orchestrate.database_url) as connection:
            return connection.execute(f"SELECT {statement} FROM {where}".encode(), (run,)).fetchall()

    def progress(self, run: str) -> dict[str, Any]:
        """The live counters that the run's coordinator wrote last."""
        statement = "SELECT p.body FROM run_progress p JOIN runs r USING (run_key) WHERE r.id = %s"
        with psycopg.connect(self.orchestrate.database_url) as connection:
            (body,) = connection.execute(statement, (run,)).fetchone() or ("{}",)
        return json.loads(body)


def is_precheck(request: Request) -> bool:
    return "ready" in json.dumps(request.json["messages"])


def after_precheck(script: list[Scripted], otherwise: Scripted) -> Any:
    """Answers the precheck always, and everything else by the script."""
    left = list(script)

    def answer(request: Request) -> Scripted:
        if is_precheck(request):
            return completion('{"ready": true}')
        return left.pop(0) if left else otherwise

    return answer


def rules(request: Request) -> Scripted:
    """A judge that is content with everything."""
    return ruling("yes" if "verdict" in request.json["messages"][0]["content"] else 0.75)


@asynccontextmanager
async def judged_by(
    orchestrate: Orchestrate, folder: Path, script: list[Scripted] | None = None, otherwise: Any = rules
) -> AsyncIterator[Project]:
    async with ModelEndpoint(otherwise=after_precheck(script or [], otherwise)) as endpoint:
        yield Project(folder, orchestrate, endpoint)


async def test_async_and_plain_bodies_are_judged_and_every_call_is_a_row(
    orchestrate: Orchestrate, tmp_path: Path
) -> None:
    async with judged_by(orchestrate, tmp_path) as project:
        ended, report = await project.submit()
        assert ended.code == 0, ended.out + ended.err
        assert report["totals"]["passed"] == 3
        rows = project.rows("recipe, vote, model, score, label, cached, tries, code, input_tokens", report["run"]["id"])
        assert sorted(rows) == [
            ("closed_qa", 0, "judge-m", 1.0, "yes", False, 1, None, 100),
            ("rubric", 0, "judge-m", 0.75, None, False, 1, None, 100),
            ("rubric", 1, "judge-m", 0.75, None, False, 1, None, 100),
        ]
        shown = await project.case(report, "cause")
        (call,) = shown["attempt"]["judge_calls"]
        assert (call["recipe"], call["ruling"]["label"], call["usage"]["output_tokens"]) == ("closed_qa", "yes", 20)
        assert [message["role"] for message in call["messages"]] == ["system", "user"]


@pytest.mark.parametrize(
    ("script", "verdict", "tries", "reason"),
    [
        ([rate_limited(0)], "passed", 2, None),
        ([server_error(), server_error()], "passed", 3, None),
        ([RESET], "passed", 2, None),
        ([CUT], "passed", 2, None),
        ([server_error()] * 3, "errored", 3, "judge-call-failed (judge-m at "),
        ([GARBLED], "errored", 1, "judge-invalid-response (judge-m at "),
        ([completion("maybe")], "errored", 1, "judge-invalid-response (judge-m: the reply has no verdict)"),
        ([ruling("no")], "failed", 1, None),
    ],
    ids=["429", "500 twice", "reset", "cut", "500 for ever", "garbled", "unreadable", "no"],
)
async def test_a_judge_that_misbehaves(
    orchestrate: Orchestrate,
    tmp_path: Path,
    script: list[Scripted],
    verdict: str,
    tries: int,
    reason: str | None,
) -> None:
    async with judged_by(orchestrate, tmp_path, script) as project:
        _, report = await project.submit("cause")
        shown = await project.case(report, "cause")
        assert shown["case"]["verdict"] == verdict
        assert shown["case"]["kind"] == ("judge" if verdict == "errored" else None)
        (row,) = project.rows("tries, code, message, score", report["run"]["id"])
        assert row[0] == tries
        if reason is not None:
            assert shown["attempt"]["assertions"][0]["outcome"]["reason"].startswith(reason)
            assert reason.startswith(row[1]) and row[3] is None


async def test_a_judge_that_dies_in_the_middle_of_a_run_costs_only_what_it_did_not_answer(
    orchestrate: Orchestrate, tmp_path: Path
) -> None:
    async with judged_by(orchestrate, tmp_path, [ruling("yes")], RESET) as project:
        project.write(rest="repetitions: 3\nlimits: {concurrency: 1}")
        ended, report = await project.submit("cause")
        assert ended.code != 0
        assert (report["totals"]["passed"], report["totals"]["errored_other"]) == (1, 2)
        assert report["arms"][0]["failures_by_kind"] == {"judge": 2}
        assert report["arms"][0]["attempts"] == 3, "a judge's outage is retried by its own calls alone"


async def test_a_judge_that_never_answers_errors_only_the_evals_that_ask_it(
    orchestrate: Orchestrate, tmp_path: Path
) -> None:
    async with ModelEndpoint(otherwise=lambda _: server_error(503)) as endpoint:
        project = Project(tmp_path, orchestrate, endpoint)
        ended, report = await project.submit()
        assert (report["totals"]["passed"], report["totals"]["errored_other"]) == (1, 2)
        warnings = [line for line in ended.err.splitlines() if "judge-precheck-failed" in line]
        assert len(warnings) == 1 and "evals that ask it and will be errored: 2" in warnings[0]
        assert len(endpoint.requests) == 2, "the precheck's tries, and no assertion is judged"
        shown = await project.case(report, "cause")
        assert (shown["case"]["kind"], shown["case"]["code"]) == ("judge", "JUDGE_PRECHECK_FAILED")
        assert shown["attempt"]["turns"] == [] and shown["case"]["attempts"] == 1
        assert "HTTP 503" in shown["case"]["message"]


async def test_a_judge_may_not_be_the_model_under_test(orchestrate: Orchestrate, tmp_path: Path) -> None:
    async with judged_by(orchestrate, tmp_path) as project:
        for more, verdict in ((", allow_self: true", "passed"), ("", "errored")):
            project.write(more=more)
            text = (tmp_path / "experiment.yaml").read_text(encoding="utf-8").replace("parrot-1", "judge-m")
            (tmp_path / "experiment.yaml").write_text(text, encoding="utf-8")
            _, report = await project.submit("cause")
            shown = await project.case(report, "cause")
            assert shown["case"]["verdict"] == verdict
        assert "judge-self-judging (judge-m" in shown["case"]["message"]
        assert project.rows("call", report["run"]["id"]) == []


async def test_replies_are_taken_from_the_cache_for_the_same_draw_and_no_other(
    orchestrate: Orchestrate, tmp_path: Path
) -> None:
    async with judged_by(orchestrate, tmp_path) as project:
        project.write(rest="repetitions: 2")
        _, first = await project.submit("cause")
        asked = len(project.endpoint.requests)
        assert project.rows("repetition, cached", first["run"]["id"]) == [(0, False), (1, False)]
        _, second = await project.submit("cause")
        assert len(project.endpoint.requests) == asked + 1, "only the precheck"
        assert project.rows("repetition, cached, cost_usd, score", second["run"]["id"]) == [
            (0, True, 0.0, 1.0),
            (1, True, 0.0, 1.0),
        ]
        project.write(more=", cache: false", rest="repetitions: 2")
        _, third = await project.submit("cause")
        assert project.rows("repetition, cached", third["run"]["id"]) == [(0, False), (1, False)]


async def test_a_run_that_is_judged_again_takes_its_own_replies_and_asks_edited_questions(
    orchestrate: Orchestrate, tmp_path: Path
) -> None:
    async with judged_by(orchestrate, tmp_path) as project:
        _, report = await project.submit("cause")
        run, asked = report["run"]["id"], len(project.endpoint.requests)
        again = await project("rescore", run)
        assert again.code == 0, again.out + again.err
        assert len(project.endpoint.requests) == asked
        edited = EVALS["evals/cause.eval.py"].replace("Is the cause named?", "Is it named at all?")
        (tmp_path / "evals/cause.eval.py").write_text(edited, encoding="utf-8")
        assert (await project("rescore", run)).code == 0
        assert len(project.endpoint.requests) == asked + 1
        assert project.rows("j.grading, cached, label", run) == [(0, False, "yes"), (1, True, "yes"), (2, False, "yes")]
        lines = (await project("report", run)).out.splitlines()
        assert "  parrot: 1 judge call · 100 / 20 tokens · –" in lines
        assert "  parrot: judged again: 1 judge call · 100 / 20 tokens · –" in lines
        lines = (await project("report", run, "--grading", "1")).out.splitlines()
        assert "  parrot: judged again: 1 judge call, 1 cached · 0 / 0 tokens · $0.00" in lines


async def test_another_judge_runs_a_case_again_and_another_key_does_not(
    orchestrate: Orchestrate, tmp_path: Path
) -> None:
    async with judged_by(orchestrate, tmp_path) as project:
        project.write(more=", timeout: 60s")
        await project.submit()

        async def reasons(more: str) -> set[str]:
            project.write(more=more)
            ended = await project("plan", "experiment.yaml", "--reuse", "--cases", "--json")
            return {f"{value['eval']} {value['action']} {','.join(value['changed'])}".strip() for value in ended.values}

        carried = {"cause carry", "plain carry", "sync carry"}
        assert await reasons(", timeout: 5s, cache: false") == carried
        assert await reasons(", temperature: 0.5") == {"cause run judge", "plain carry", "sync run judge"}
        assert await reasons(", votes: 3") == {"cause run judge", "plain carry", "sync carry"}


async def test_people_see_what_was_asked_and_what_it_cost(orchestrate: Orchestrate, tmp_path: Path) -> None:
    def strict(request: Request) -> Scripted:
        asks_verdict = "verdict" in request.json["messages"][0]["content"]
        return ruling("no" if asks_verdict else 0.75, "It names no cause.")

    async with judged_by(orchestrate, tmp_path, otherwise=strict) as project:
        project.write(rest="prices: {judge-m: {input: 10, output: 100}}")
        _, report = await project.submit("cause", "sync")
        counts = report["arms"][0]["judge"]
        assert (counts["calls"], counts["failed"], counts["input_tokens"]) == (3, 0, 300)
        assert counts["cost_usd"] == pytest.approx(0.009)
        assert report["arms"][0]["cost_usd"] == 0.0, "the agent cost nothing"
        live = project.progress(report["run"]["id"])
        assert (live["cost_usd"], live["judge_usd"], live["unknown_judge_cost"]) == (0.0, pytest.approx(0.009), 0)
        assert [judge["uncalibrated"] for judge in report["judges"]] == ["no labelled examples were judged"] * 2
        written = await project("report", report["run"]["id"], "--format", "text")
        assert "3 judge calls · 300 / 60 tokens · $0.0090" in written.out
        assert "judge judge-m, asked by 1 eval: uncalibrated judge, no labelled examples were judged" in written.out
        assert "judge judge-m, min of 2 votes, asked by 1 eval: uncalibrated judge" in written.out
        shown = await project("show", report["run"]["id"], "cause", "--judge")
        lines = shown.out.splitlines()
        start = lines.index("judge calls")
        facts = lines[start + 1].split(" · ")
        assert facts[:4] == ["  assertion 1", "closed_qa v1", "judge-m", "0 (no)"] and facts[-1] == "$0.0030"
        assert lines[start + 2] == "      It names no cause."
        assert not any(line.startswith("turn 1") for line in lines), "only what was named"


async def test_a_calibration_is_told_with_every_report_until_the_judge_changes(
    orchestrate: Orchestrate, tmp_path: Path
) -> None:
    async with judged_by(orchestrate, tmp_path) as project:
        example = {"recipe": "closed_qa", "question": "Is the cause named?"}
        labels = [{**example, "output": f"No. {n}", "label": n % 2 == 0} for n in range(4)]
        (tmp_path / "labels.jsonl").write_text("\n".join(map(json.dumps, labels)), encoding="utf-8")
        arguments = ("labels.jsonl", "--experiment", "experiment.yaml", "--output", "c.json")
        done = await project("judge", "calibrate", *arguments)
        assert done.code == 0, done.err
        assert done.out.splitlines()[2].split() == [
            "closed_qa", "4", "0", "50.0", "%", "0.00", "0.500", "2", "2", "0", "0",
        ]  # fmt: skip
        project.write(more=", calibration: c.json")
        planned = await project("plan", "experiment.yaml", "cause")
        assert "agrees with people on closed_qa 50.0 % (kappa 0.00, 4 examples)" in planned.out
        _, report = await project.submit("cause")
        assert report["judges"][0]["recipes"]["closed_qa"]["accuracy"] == 0.5
        project.write(more=", calibration: c.json, temperature: 1.0")
        planned = await project("plan", "experiment.yaml", "cause")
        assert "uncalibrated judge, its calibration is of another model, or of other parameters" in planned.out


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{}", "labels.jsonl:2: recipe: field required [INVALID_LABEL]"),
        ('{"recipe": "closed_qa", "output": "x", "label": 1}', "labels.jsonl:2: the recipe closed_qa needs a question"),
        ('{"recipe": "factuality", "output": "x", "label": 1}', "the recipe factuality needs a reference"),
        ('{"recipe": "closed_qa", "question": "?", "output": "x", "label": 2}', "labels.jsonl:2: label"),
        ("not json", "labels.jsonl:2: invalid JSON"),
    ],
)
async def test_labels_that_are_none_are_named_by_their_line(
    orchestrate: Orchestrate, tmp_path: Path, line: str, said: str
) -> None:
    good = '{"recipe": "closed_qa", "question": "?", "output": "x", "label": true}'
    (tmp_path / "labels.jsonl").write_text(f"{good}\n{line}\n", encoding="utf-8")
    ended = await asyncio.to_thread(orchestrate, "judge", "calibrate", "labels.jsonl", "--model", "m", cwd=tmp_path)
    assert ended.code == 2 and said in ended.err, ended.err


async def test_a_calibration_that_could_not_ask_says_why(orchestrate: Orchestrate, tmp_path: Path) -> None:
    example = '{"recipe": "rubric", "question": "?", "output": "x", "label": 0.5}'
    (tmp_path / "labels.jsonl").write_text(example, encoding="utf-8")

    async def calibrated(*arguments: str) -> Ended:
        return await asyncio.to_thread(orchestrate, "judge", "calibrate", "labels.jsonl", *arguments, cwd=tmp_path)

    assert "no judge is named" in (await calibrated()).err
    assert "NO_SUCH_KEY is not set" in (await calibrated("--model", "m", "--api-key-env", "NO_SUCH_KEY")).err
    async with ModelEndpoint(otherwise=lambda _: server_error(401)) as endpoint:
        ended = await calibrated("--model", "m", "--base-url", endpoint.base_url, "--json")
    (value,) = ended.values
    assert value["recipes"]["rubric"]["unread"] == 1 and value["recipes"]["rubric"]["accuracy"] is None
    (why,) = value["unread_because"]
    assert why.startswith("judge-call-failed (m at ") and why.endswith("1 try: HTTP 401: it broke)")
