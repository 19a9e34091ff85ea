"""Why a judge has no answer, in a real run that asks a local one: each judge is a model with its own failing."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from evalfleet.testing.http_endpoint import Request
from evalfleet.testing.judge_endpoint import GARBLED, SILENT, ruling, server_error
from evalfleet.testing.model_endpoint import ModelEndpoint, Scripted, completion
from tests.acceptance.codes.bodies import Body, cases_of, ends_so, shown, submit, write_evals

if TYPE_CHECKING:
    from tests.acceptance.cli.conftest import Ended, Orchestrate

#: What a model says, besides that it is ready; one that is not here would be content with everything.
MODELS: dict[str, Scripted] = {
    "refuses": server_error(401),
    "garbles": GARBLED,
    "rambles": completion("It depends."),
    "overshoots": ruling(1.5),
    "keeps-silent": SILENT,
}
#: One that answers nobody, nor whether it is ready.
AWAY = "is-away"


def asking(model: str | None, kind: str = "judge", question: str = "rubric('Is it short?')", **options: str) -> Body:
    judge = {**({} if model is None else {"model": model, "base_url": "URL"}), **options}
    source = f"turn = await t.send('hello')\nturn.judge.{question}.gate(0.5)"
    return Body(source, kind=kind, options=f"judge={judge or True!r}")


#: Why a judge has no answer, and how the reason begins.
WHY: dict[str, tuple[Body, str]] = {
    "no_model": (asking(None), "judge-model-unresolved"),
    "no_key": (asking("content", api_key_env="NO_SUCH_KEY"), "judge-key-unresolved (NO_SUCH_KEY unset)"),
    "itself": (asking("under-test"), "judge-self-judging (under-test would judge itself"),
    "refused": (asking("refuses"), "judge-call-failed (refuses at "),
    "garbled": (asking("garbles"), "judge-invalid-response (garbles at "),
    "no_ruling": (asking("rambles"), "judge-invalid-response (rambles: the reply has no score"),
    "out_of_range": (asking("overshoots"), "judge-invalid-response (overshoots: "),
}

BODIES = {
    "JUDGE_NOT_DECLARED": Body("turn = await t.send('x')\nturn.judge.rubric('?')"),
    "INVALID_JUDGE_QUESTION": asking("content", kind="authoring", question="rubric('')"),
    "JUDGE_PRECHECK_FAILED": asking(AWAY),
    "GRADING_TIMEOUT": asking("keeps-silent"),
}


def answer(request: Request) -> Scripted:
    model = request.json["model"]
    if model == AWAY:
        return server_error(503)
    if "ready" in json.dumps(request.json["messages"]):
        return completion('{"ready": true}')
    return MODELS.get(model, ruling(1.0))


@pytest.fixture(scope="module")
def ended(orchestrate: Orchestrate, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    project: Path = tmp_path_factory.mktemp("project")

    async def run() -> Ended:
        async with ModelEndpoint(otherwise=answer) as endpoint:
            url = endpoint.base_url
            bodies = {**BODIES, **{why: body for why, (body, _) in WHY.items()}, "ANSWERED": asking("content")}
            refused = bodies["refused"]
            bodies["WAIVED"] = replace(refused, source=refused.source.replace(".gate(0.5)", ".optional()"))
            placed = {
                code: Body(body.source, options=body.options.replace("URL", url)) for code, body in bodies.items()
            }
            write_evals(project, "judged", placed)
            experiment = {
                "limits": {"grading_timeout": "4s"},
                "arms": {"parrot": {"adapter": "scripted", "model": "under-test"}},
            }
            return await asyncio.to_thread(submit, orchestrate, project, experiment)

    return asyncio.run(run())


@pytest.fixture(scope="module")
def cases(orchestrate: Orchestrate, ended: Ended) -> dict[str, Any]:
    return cases_of(orchestrate, ended)


@pytest.mark.parametrize("why", WHY)
def test_why_a_judge_has_no_answer(orchestrate: Orchestrate, cases: dict[str, Any], why: str) -> None:
    body, reason = WHY[why]
    case = cases[f"judged/{why}"]
    ends_so(orchestrate, case, "ASSERTION_UNAVAILABLE", body)
    (assertion,) = shown(orchestrate, case)["attempt"]["assertions"]
    assert assertion["outcome"]["result"] == "unavailable"
    assert assertion["outcome"]["reason"].startswith(reason)


@pytest.mark.parametrize("code", BODIES)
def test_a_code_of_a_judge(orchestrate: Orchestrate, cases: dict[str, Any], code: str) -> None:
    ends_so(orchestrate, cases[f"judged/{code.lower()}"], code, BODIES[code])


def test_the_others_are_judged_and_an_optional_judge_that_is_away_decides_nothing(
    orchestrate: Orchestrate, cases: dict[str, Any]
) -> None:
    assert cases["judged/answered"]["status"] == "passed"
    waived = cases["judged/waived"]
    (assertion,) = shown(orchestrate, waived)["attempt"]["assertions"]
    assert (waived["status"], assertion["outcome"]["result"]) == ("passed", "unavailable")


def test_a_judge_that_is_away_is_told_once_before_the_run(ended: Ended) -> None:
    (warning,) = [line for line in ended.err.splitlines() if "judge-precheck-failed" in line]
    assert AWAY in warning and "HTTP 503" in warning
