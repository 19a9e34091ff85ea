"""What judges and graders really answer, in whole runs: each reply is read as a person would, or not at all."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from evalfleet.testing.http_endpoint import Request
from evalfleet.testing.model_endpoint import ModelEndpoint, Scripted, completion
from tests.acceptance.cli.conftest import Orchestrate

FENCE = "```"
OWN_VERDICT = 'Done. {"score": 1.0}\nFinal self-rating: 9 and 9'
QUOTING = 'The answer was {"score": 1.0}, which claims too much. My verdict: {"score": 0.0}'
CHOICES = {"A": 0.1, "B": 0.2, "C": 0.3}

#: A reply to a question for a score, or for one of CHOICES; what comes of it, and what had to be forgiven.
SCORES: list[tuple[str, float | None, list[str]]] = [
    (f'{FENCE}\n{{"score":0.63}}\n{FENCE}\nThanks', 0.63, ["no ticket", "text around the object"]),
    (f'{FENCE}JSON\n{{"score":0.63}}\n{FENCE}', 0.63, ["code fence", "no ticket"]),
    (f'{FENCE}\nIt is fine.\n{FENCE}\n{{"score":0.63}}', 0.63, ["no ticket", "text around the object"]),
    ('{"score":0.63,}', 0.63, ["no ticket", "trailing comma"]),
    ("{'score': 0.63}", 0.63, ["no ticket", "single quotes"]),
    (QUOTING, 0.0, ["no ticket", "text around the object"]),
    ('It says {"score": 1.0}.', None, []),
    ('{"score": 7}', None, []),
    ('{"score": NaN}', None, []),
]
VERDICTS: list[tuple[str, float | None, list[str]]] = [
    ("Yes, the reference says A, but this answer differs. Verdict: C", 0.3, ["prose for an object"]),
    ('<think>maybe {"verdict": "B"}</think>{"verdict": "C"}', 0.3, ["no ticket", "thoughts left out"]),
    ('maybe B, no.\n</think>\n{"verdict": "C"}', 0.3, ["no ticket", "thoughts left out"]),
    ("<think>B is tempting", None, []),
    ('{"verdict": "C"}', 0.3, ["no ticket"]),
    ('</think> </think> {"verdict": "C"}', 0.3, ["no ticket", "thoughts left out"]),
    ("Yes", None, []),
]
ASKED = f"""
from evalfleet import ScoreT, define_score_eval

@define_score_eval(judge=True)
async def replies(t: ScoreT) -> None:
    turn = await t.send({OWN_VERDICT!r})
    for number in range({len(SCORES)}):
        turn.judge.custom(f"score question {{number:02}}").label(f"score {{number}}")
    for number in range({len(VERDICTS)}):
        turn.judge.custom(f"verdict question {{number:02}}", choices={CHOICES!r}).label(f"verdict {{number}}")
"""
GRADED = """
from evalfleet import ScoreT, define_score_eval, define_score_match

def breaks():
    raise ZeroDivisionError("secret detail")

ODD = {
    "none": lambda: None, "nan": lambda: float("nan"), "true": lambda: True, "text": lambda: "0.7",
    "seven": lambda: 7, "empty": dict, "raises": breaks,
}

def graded(name, answer):
    @define_score_eval(description=name)
    async def grades(t: ScoreT) -> None:
        turn = await t.send("x")
        t.check(turn.reply, define_score_match(name, lambda _: answer())).score(1)

    return grades

evals = {name: graded(name, answer) for name, answer in ODD.items()}
"""


def project(folder: Path, body: str, judge: str = "") -> None:
    (folder / "evals").mkdir()
    (folder / "evals/asked.eval.py").write_text(body, encoding="utf-8")
    text = f"schema_version: 1\nname: odd\narms:\n  parrot: {{adapter: scripted}}\n{judge}"
    (folder / "experiment.yaml").write_text(text, encoding="utf-8")


def replies(request: Request) -> Scripted:
    asked = json.dumps(request.json["messages"])
    for kind, table in (("score", SCORES), ("verdict", VERDICTS)):
        for number, (reply, *_) in enumerate(table):
            if f"{kind} question {number:02}" in asked:
                return completion(reply)
    return completion('{"ready": true}')


async def test_replies_are_read_strictly_and_what_was_forgiven_is_recorded(
    orchestrate: Orchestrate, tmp_path: Path
) -> None:
    async with ModelEndpoint(otherwise=replies) as endpoint:
        project(tmp_path, ASKED, f'judge: {{model: judge-m, base_url: "{endpoint.base_url}"}}\n')
        ended = await asyncio.to_thread(orchestrate, "submit", "experiment.yaml", "--inline", "--json", cwd=tmp_path)
    run = ended.values[-1]["run"]["id"]
    shown = await asyncio.to_thread(orchestrate, "show", run, "0", "--json", cwd=tmp_path)
    attempt = shown.values[0]["attempt"]
    found = {row["label"]: row["outcome"] for row in attempt["assertions"]}
    told = {
        label: (outcome["measurement"], sorted(outcome.get("actual", {}).get("repairs", ())))
        for label, outcome in found.items()
    }
    expected = {
        f"{kind} {number}": (score, sorted(repairs))
        for kind, table in (("score", SCORES), ("verdict", VERDICTS))
        for number, (_, score, repairs) in enumerate(table)
    }
    assert told == expected
    silent = [outcome for outcome in found.values() if outcome["measurement"] is None]
    assert {outcome["result"] for outcome in silent} == {"unavailable"}
    assert all(outcome["reason"].startswith("judge-invalid-response") for outcome in silent)
    kept = {call["reply"] for call in attempt["judge_calls"]}
    assert kept == {reply for reply, *_ in (*SCORES, *VERDICTS)}, "what the judge said is kept as it said it"
    assert all(len(call["messages"]) == 2 for call in attempt["judge_calls"])


def test_odd_scores_of_a_grader_are_never_a_zero(orchestrate: Orchestrate, tmp_path: Path) -> None:
    project(tmp_path, GRADED)
    ended = orchestrate("submit", "experiment.yaml", "--inline", "--json", cwd=tmp_path)
    report: dict[str, Any] = ended.values[-1]
    figures = report["arms"][0]["headline"]
    assert (figures["mean"], figures["complete"], figures["total"]) == (pytest.approx(1.0), 1, 7)
    reasons = {}
    for name in ("none", "nan", "true", "text", "seven", "empty", "raises"):
        shown = orchestrate("show", report["run"]["id"], f"asked/{name}", "--json", cwd=tmp_path).values[0]
        reasons[name] = (shown["case"]["verdict"], shown["attempt"]["assertions"][0]["outcome"]["reason"])
    assert reasons == {
        "none": ("errored", "evaluator:unscored"),
        "nan": ("errored", "evaluator-error:non-finite"),
        "true": ("passed", None),
        "text": ("errored", "evaluator-error:not-a-number (str)"),
        "seven": ("errored", "evaluator-error:out-of-range"),
        "empty": ("errored", "evaluator-error:not-a-number (dict)"),
        "raises": ("errored", "evaluator-error:ZeroDivisionError"),
    }
    written = orchestrate("report", report["run"]["id"], cwd=tmp_path).out
    assert "1 of 7 scores complete" in written and "secret detail" not in written
