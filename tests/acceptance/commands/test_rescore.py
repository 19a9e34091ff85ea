"""`orchestrate rescore`: five hundred attempts judged by edited evals, and an agent that nobody calls again."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from evalfleet.testing.http_endpoint import HttpEndpoint, json_reply
from evalfleet.testing.model_endpoint import ModelEndpoint

if TYPE_CHECKING:
    from tests.acceptance.cli.conftest import Ended, Orchestrate

ROWS, REPETITIONS = 100, 5
COUNT = ROWS * REPETITIONS

EVAL = """
from evalfleet import Dataset, define_eval, includes, pattern, satisfies

@define_eval(dataset=Dataset.jsonl("rows.jsonl", id="name"))
async def sums(t, row):
    turn = await t.send(f"what is {row['n']} and one?")
    t.check(len(turn.reply), satisfies("short", lambda size: size < 4)).label("short")
    t.check(turn.reply, pattern("^[0-9]+$")).label("a number")
    other = t.new_session()
    t.check((await other.send("thanks")).reply, includes("welcome"))
"""
AGENT = """
from pathlib import Path

from evalfleet import COMPLETE_COVERAGE, Turn, agent

CALLS = Path(__file__).with_name("calls.txt")

@agent(coverage=COMPLETE_COVERAGE)
async def adder(turn, ctx):
    with CALLS.open("a") as calls:
        calls.write("x")
    number = "".join(filter(str.isdigit, turn.text))
    return Turn(reply=str(int(number) + 1) if number else "you are welcome")
"""
EXPERIMENT = f"""
schema_version: 1
name: rescored
repetitions: {REPETITIONS}
arms:
  own: {{adapter: python, entry: "own_agent:adder"}}
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "evals").mkdir()
    write(tmp_path, "own_agent.py", AGENT)
    write(tmp_path, "experiment.yaml", EXPERIMENT)
    write(tmp_path, "evals/sums.eval.py", EVAL)
    rows = [{"name": f"r{n}", "n": n} for n in range(ROWS)]
    write(tmp_path, "evals/rows.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    yield tmp_path


def write(project: Path, name: str, text: str) -> None:
    (project / name).write_text(textwrap.dedent(text), encoding="utf-8")


def calls(project: Path) -> int:
    return len((project / "calls.txt").read_text(encoding="utf-8"))


def submitted(orchestrate: Orchestrate, project: Path, *more: str) -> str:
    ended = orchestrate("submit", "experiment.yaml", "--inline", "--json", *more, cwd=project)
    assert ended.code in (0, 1, 5), ended.err
    return ended.values[-1]["run"]["id"]


def rescored(orchestrate: Orchestrate, run: str, *more: str) -> tuple[Ended, dict[str, Any]]:
    """The rescoring, which calls no agent: there is none to be found where it is called from."""
    ended = orchestrate("rescore", run, "--json", *more)
    (value,) = ended.values
    return ended, value


def shown(orchestrate: Orchestrate, run: str, case: str, *more: str) -> dict[str, Any]:
    (value,) = orchestrate("show", run, case, "--json", *more).values
    return value


def totals(orchestrate: Orchestrate, run: str, *more: str) -> dict[str, int]:
    (value,) = orchestrate("report", run, "--json", *more).values
    return {name: number for name, number in value["totals"].items() if number}


def test_five_hundred_attempts_are_judged_by_edited_thresholds_and_labels_without_the_agent(
    orchestrate: Orchestrate, project: Path
) -> None:
    run = submitted(orchestrate, project)
    asked = calls(project)
    assert asked == 2 * COUNT
    assert totals(orchestrate, run) == {"passed": COUNT}
    write(project, "evals/sums.eval.py", EVAL.replace("size < 4", "size < 2").replace('"short"', '"one digit"'))
    ended, value = rescored(orchestrate, run, "--reason", "one digit is enough")
    failed = (ROWS - 9) * REPETITIONS
    assert (ended.code, value["grading"], value["attempts"], value["bases"]) == (1, 1, COUNT, {"replayed": COUNT})
    assert value["changed"] == [{"from": "passed", "to": "failed", "attempts": failed}]
    assert (value["diverged"], value["report"]["run"]["grading"]) == (0, 1)
    assert calls(project) == asked
    assert totals(orchestrate, run) == {"passed": COUNT - failed, "failed": failed}
    assert totals(orchestrate, run, "--grading", "0") == {"passed": COUNT}
    case = next(each["case"] for each in orchestrate("show", run, "--json", "--status", "failed").values)
    now, before = shown(orchestrate, run, str(case)), shown(orchestrate, run, str(case), "--grading", "0")
    assert [row["label"] for row in now["attempt"]["assertions"]] == ["one digit", "a number", None]
    assert [row["label"] for row in before["attempt"]["assertions"]] == ["short", "a number", None]
    assert (now["case"]["verdict"], before["case"]["verdict"]) == ("failed", "passed")
    assert (now["attempt"]["basis"], before["attempt"]["basis"]) == ("replayed", None)
    for fact in ("turns", "usage", "cost_usd", "duration", "started_at", "outcome"):
        assert now["attempt"][fact] == before["attempt"][fact]


def test_an_edited_prompt_diverges_at_its_turn_and_two_gradings_are_kept_apart(
    orchestrate: Orchestrate, project: Path
) -> None:
    run = submitted(orchestrate, project, "--set", "repetitions=1", "--set", "evals.limit=20")
    asked = calls(project)
    write(project, "evals/sums.eval.py", EVAL.replace("^[0-9]+$", "^[a-z]+$"))
    assert rescored(orchestrate, run)[1]["changed"] == [{"from": "passed", "to": "failed", "attempts": 20}]
    write(project, "evals/sums.eval.py", EVAL.replace('send("thanks")', 'send("thank you")'))
    ended, value = rescored(orchestrate, run)
    assert (ended.code, value["grading"], value["diverged"]) == (1, 2, 20)
    assert value["changed"] == [{"from": "failed", "to": "errored", "attempts": 20}]
    case = shown(orchestrate, run, "0")["case"]
    assert (case["kind"], case["code"]) == ("authoring", "REPLAY_DIVERGED")
    assert case["message"] == "session 2, turn 1: the text was 'thanks' and is 'thank you'"
    assert [totals(orchestrate, run, "--grading", number) for number in "012"] == [
        {"passed": 20},
        {"failed": 20},
        {"errored_other": 20},
    ]
    text = orchestrate("report", run).out
    assert "completed, grading 2" in text.splitlines()[0]
    assert "grading" not in orchestrate("report", run, "--grading", "0").out
    assert "judged again: its body ran on the record" in orchestrate("show", run, "0").out
    assert calls(project) == asked
    gone = orchestrate("report", run, "--grading", "7")
    assert (gone.code, gone.err.strip()) == (2, f"error: run {run} has no grading 7, only 0 to 2")


def test_a_body_that_was_mended_is_judged_and_one_that_may_not_be_replayed_is_folded(
    orchestrate: Orchestrate, project: Path
) -> None:
    write(project, "evals/sums.eval.py", EVAL.replace("len(turn.reply)", "len(turn.answer)"))
    few = ("--set", "repetitions=1", "--set", "evals.limit=6")
    run = submitted(orchestrate, project, *few)
    assert totals(orchestrate, run) == {"errored_other": 6}
    write(project, "evals/sums.eval.py", EVAL)
    _, value = rescored(orchestrate, run)
    assert (value["changed"], value["diverged"]) == ([], 6), "the recorded conversation ends where the body raised"
    write(project, "evals/sums.eval.py", EVAL.split("    other = ")[0])
    assert rescored(orchestrate, run)[1]["changed"] == [{"from": "errored", "to": "passed", "attempts": 6}]
    assert totals(orchestrate, run) == {"passed": 6}

    once = EVAL.replace('id="name"))', 'id="name"), replayable=False)')
    write(project, "evals/sums.eval.py", once)
    fixed = submitted(orchestrate, project, *few)
    write(project, "evals/sums.eval.py", once.replace("size < 4", "size < 1"))
    _, value = rescored(orchestrate, fixed)
    assert (value["bases"], value["changed"]) == ({"folded": 6}, [])
    assert totals(orchestrate, fixed) == {"passed": 6}


def test_only_what_is_unavailable_is_judged_and_the_others_keep_their_verdicts(
    orchestrate: Orchestrate, project: Path
) -> None:
    broken = """
        from evalfleet import Dataset, define_eval, equals, satisfies

        def fails(value):
            raise RuntimeError("the service is away")

        @define_eval(dataset=Dataset.jsonl("rows.jsonl", id="name"))
        async def sums(t, row):
            turn = await t.send(f"what is {row['n']} and one?")
            t.check(turn.reply, satisfies("known", fails if row["n"] % 2 else lambda reply: True))
    """
    write(project, "evals/sums.eval.py", broken)
    run = submitted(orchestrate, project, "--set", "repetitions=1")
    assert totals(orchestrate, run) == {"passed": 50, "errored_other": 50}
    asked = calls(project)
    mended = broken.replace("fails if row", "bool if row").replace("reply: True", "reply: False")
    write(project, "evals/sums.eval.py", mended)
    ended, value = rescored(orchestrate, run, "--only-unavailable")
    assert (ended.code, value["attempts"], value["changed"]) == (
        0,
        50,
        [{"from": "errored", "to": "passed", "attempts": 50}],
    )
    assert totals(orchestrate, run) == {"passed": 100}
    _, again = rescored(orchestrate, run, "--only-unavailable")
    assert (again["grading"], again["attempts"]) == (None, 0)
    assert "nothing of run" in orchestrate("rescore", run, "--only-unavailable").out
    assert calls(project) == asked


def test_evals_of_another_project_judge_and_what_can_not_judge_is_said_at_once(
    orchestrate: Orchestrate, project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run = submitted(orchestrate, project, "--set", "repetitions=1", "--set", "evals.limit=5")
    other = tmp_path_factory.mktemp("other")
    (other / "evals").mkdir()
    write(other, "evals/rows.jsonl", (project / "evals/rows.jsonl").read_text(encoding="utf-8"))
    write(other, "evals/sums.eval.py", EVAL.replace("^[0-9]+$", "^[a-z]+$"))
    for path in (other, other / "evals"):
        assert rescored(orchestrate, run, "--evals", str(path))[1]["report"]["totals"]["failed"] == 5
    write(other, "evals/sums.eval.py", EVAL.replace("define_eval", "define_score_eval"))
    ended = orchestrate("rescore", run, "--evals", str(other))
    assert (ended.code, "STYLE_CHANGED" in ended.err) == (2, True)
    (other / "evals/sums.eval.py").rename(other / "evals/more.eval.py")
    ended = orchestrate("rescore", run, "--evals", str(other))
    assert ended.code == 2
    assert f"run {run} has cases of the eval 'sums', which is gone" in ended.err
    (project / "evals/sums.eval.py").write_text("def broken(:", encoding="utf-8")
    assert (orchestrate("rescore", run).code, totals(orchestrate, run)) == (2, {"failed": 5})


def test_a_score_is_folded_again_and_the_verdict_of_a_skipped_case(orchestrate: Orchestrate, project: Path) -> None:
    scored = """
        from evalfleet import Dataset, define_score_eval, pattern

        @define_score_eval(dataset=Dataset.jsonl("rows.jsonl", id="name"))
        async def sums(t, row):
            turn = await t.send(f"what is {row['n']} and one?")
            t.check(turn.reply, pattern("^[0-9]+$")).score(2)
            t.check(turn.reply, pattern("^1")).score(1)
            if row["n"] == 3:
                t.skip("not today")
    """
    write(project, "evals/sums.eval.py", scored)
    run = submitted(orchestrate, project, "--set", "repetitions=1", "--set", "evals.limit=100")
    (before,) = orchestrate("report", run, "--json").values
    write(project, "evals/sums.eval.py", scored.replace(".score(2)", ".score(5)").replace("== 3", "== -1"))
    _, value = rescored(orchestrate, run)
    (after,) = orchestrate("report", run, "--json").values
    assert value["changed"] == [{"from": "skipped", "to": "passed", "attempts": 1}]
    means = [report["arms"][0]["headline"]["mean"] for report in (before, after)]
    assert means == pytest.approx([2 + 12 / 99, 5 + 12 / 100])


def test_a_new_judge_is_asked_about_what_was_recorded_and_again_only_where_it_was_away(
    orchestrate: Orchestrate, project: Path
) -> None:
    run = submitted(orchestrate, project, "--set", "repetitions=1", "--set", "evals.limit=6")
    asked = calls(project)

    def judged_by(url: str) -> None:
        judge = f"judge={{'model': 'judge-m', 'base_url': {url!r}, 'api_key_env': None, 'timeout': 5}}"
        edited = EVAL.replace('id="name"))', f'id="name"), {judge})')
        question = '    turn.judge.closed_qa("Is it a number?").gate(0.5)\n    other ='
        write(project, "evals/sums.eval.py", edited.replace("    other =", question))

    async def rescoring(*more: str) -> tuple[dict[str, Any], int]:
        async with ModelEndpoint(otherwise=lambda request: '{"verdict": "no"}') as model:
            judged_by(model.base_url)
            _, value = await asyncio.to_thread(rescored, orchestrate, run, *more)
            return value, len(model.bodies)

    judged_by("http://127.0.0.1:9/v1")
    assert rescored(orchestrate, run)[1]["changed"] == [{"from": "passed", "to": "errored", "attempts": 6}]
    case = shown(orchestrate, run, "0")["case"]
    assert (case["kind"], case["code"]) == ("judge", "ASSERTION_UNAVAILABLE")
    value, questions = asyncio.run(rescoring("--only-unavailable"))
    assert (value["changed"], questions) == ([{"from": "errored", "to": "failed", "attempts": 6}], 6)
    assert asyncio.run(rescoring("--only-unavailable"))[0]["grading"] is None
    assert calls(project) == asked


def test_a_secret_that_the_experiment_names_stays_out_of_messages(
    orchestrate: Orchestrate, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_KEY", "s3cret-value")
    arms = "  shop: {adapter: http, url: URL, headers_env: {x-key: SHOP_KEY}}"
    body = """
        from evalfleet import define_eval, includes

        @define_eval
        async def tells(t):
            t.check((await t.send("hello")).reply, includes("nothing"))
    """
    write(project, "evals/tells.eval.py", body)

    async def submitting() -> str:
        async with HttpEndpoint(lambda request: json_reply({"reply": request.headers["x-key"]})) as endpoint:
            experiment = f"{EXPERIMENT.split('  own')[0]}{arms.replace('URL', endpoint.url)}\n"
            write(project, "experiment.yaml", f"{experiment}evals: {{select: [tells]}}\n")
            return await asyncio.to_thread(submitted, orchestrate, project, "--set", "repetitions=1")

    run = asyncio.run(submitting())
    write(project, "evals/tells.eval.py", body.replace("nothing", "no key"))
    rescored(orchestrate, run)
    messages = [shown(orchestrate, run, "0", "--grading", number)["case"]["message"] for number in "01"]
    assert messages == [
        'check: expected includes "nothing", got "[secret]"',
        'check: expected includes "no key", got "[secret]"',
    ]


def test_python_rescores_too(orchestrate: Orchestrate, project: Path) -> None:
    run = submitted(orchestrate, project, "--set", "repetitions=1", "--set", "evals.limit=5")
    write(project, "evals/sums.eval.py", EVAL.replace("^[0-9]+$", "^[a-z]+$"))
    script = f"""
        import asyncio, evalfleet

        with evalfleet.open({run!r}) as run:
            found = asyncio.run(evalfleet.rescore(run, reason="letters"))
            print(found.grading, sum(found.changes.values()), found.diverged)
            print([(each.number, each.why) for each in run.gradings])
            print(len(list(run.cases("failed"))))
        with evalfleet.open({run!r}, grading=0) as sealed:
            print(len(list(sealed.cases("passed"))))
    """
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script)],
        env=orchestrate.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.stdout.splitlines(), ended.stderr) == (["1 5 0", "[(1, 'letters')]", "5", "5"], "")
