"""Attempts whose user a model plays: its answers are carried out and kept, and its failures never the agent's."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from evalfleet.clock import SystemClock
from evalfleet.errors import AGENT_OWN_KINDS
from evalfleet.execution.attempt import AttemptControl
from evalfleet.execution.regrade import regrade
from evalfleet.grading.judge_client import HttpJudge
from evalfleet.model.grading import Basis
from evalfleet.model.record import AttemptEvidence
from evalfleet.model.verdict import Verdict
from evalfleet.taskpacks.model_responder import UserModel
from evalfleet.taskpacks.pack_lint import assignment_faults
from evalfleet.taskpacks.reapply import reapply
from evalfleet.taskpacks.sqlite_cases import SqliteCases
from evalfleet.testing.fakes import FakeClock, FakeSecrets, FixedRandom
from evalfleet.testing.judge_endpoint import CUT, GARBLED, RESET, SILENT, server_error
from evalfleet.testing.model_endpoint import ModelEndpoint, Scripted, completion
from tests.unit.execution.test_pack_attempts import clerk, results
from tests.unit.taskpacks.parcels import assignment, pack

KEY = "sk-very-secret"
HOLDS = {"licence": [{"collection": "parcels", "key": "P-1", "record": {"papers": ["invoice", "licence"]}}]}
ROW = assignment(script=[], user={"story": "You sent a lamp and have its licence.", "holds": HOLDS})


def says(reply: str = "Here it is.", **fields: Any) -> Any:
    return completion(json.dumps({"reply": reply, "supplies": ["licence"], "out_of_scope": False, **fields}))


Play = Callable[..., Awaitable[AttemptEvidence]]


@pytest.fixture
def play(attempt: Any) -> Play:
    """`await play(script)` runs one attempt whose user's model answers by the script."""

    async def run(script: list[Scripted], row: Any = ROW, key: str | None = "USER_KEY", **options: Any) -> Any:
        async with ModelEndpoint(script, otherwise=lambda _: server_error()) as endpoint:
            model = HttpJudge(SystemClock(), FixedRandom((0,)))
            user = UserModel(model="user-m", base_url=endpoint.base_url, api_key_env=key, timeout=2.0)
            using = {"models": model, "secrets": FakeSecrets({"USER_KEY": KEY})}
            try:
                return await attempt(pack(user_model=user).run, clerk, row=row, using=using, **options)
            finally:
                await model.close()

    return run


async def test_what_the_model_makes_the_user_say_is_carried_out_and_kept(play: Any, tmp_path: Path) -> None:
    found = await play([says()])
    assert found.summary.verdict is Verdict.PASSED
    evidence = found.attachments["taskpack"]
    assert [point["said"] for point in evidence["points"]] == ["Deal with P-1.", "Here it is."]
    (reply,) = [line for line in evidence["trace"] if line["tool"] == "responder.reply"]
    assert (reply["arguments"], reply["evalfleet.rule"]) == (
        {"asked": ["licence"], "reply": "Here it is.", "supplies": ["licence"]},
        "model",
    )
    responder = evidence["responder"]
    assert (responder["kind"], responder["deterministic"], responder["model"]) == ("model", False, "user-m")
    (call,) = responder["calls"]
    assert (call["asked"], call["tokens"], call["tries"], call["gave_away"]) == (["licence"], [10, 5], 1, [])
    assert "Send the licence, it is missing." in call["prompt"][1][1]
    assert found.summary.usage is None or found.summary.usage.total_tokens == 0, "the agent used none of it"
    assert await reapply(pack(backend=SqliteCases(tmp_path)), ROW, evidence, "again", FakeClock()) is None
    other = assignment(script=[], user={"story": "x", "holds": {"licence": []}})
    diverged = await reapply(pack(backend=SqliteCases(tmp_path)), other, evidence, "other", FakeClock())
    assert str(diverged).startswith("REPLAY_DIVERGED at step 3 (responder.reply): it left the state")


async def test_the_record_is_graded_again_without_asking_a_model(play: Any, make_job: Any, make_services: Any) -> None:
    found = await play([says()])
    again = await regrade(make_job(pack().run, row=ROW), make_services(), AttemptControl(), found)
    assert again.basis is Basis.REPLAYED
    assert {row.key: row.outcome.result.value for row in again.evidence.assertions} == results(found)


@pytest.mark.parametrize(
    ("script", "code", "message"),
    [
        ([server_error()] * 9, "RESPONDER_MODEL_FAILED", "HTTP 500: it broke"),
        ([RESET] * 9, "RESPONDER_MODEL_FAILED", "user-m at 127.0.0.1"),
        ([SILENT] * 9, "RESPONDER_MODEL_FAILED", "no answer in"),
        ([CUT] * 9, "RESPONDER_MODEL_FAILED", "user-m at 127.0.0.1"),
        ([GARBLED], "RESPONDER_MODEL_INVALID", "not a chat completion"),
        (["Sure, here it is!"], "RESPONDER_MODEL_INVALID", "user-m: the reply is none in the form"),
        ([says("")], "RESPONDER_MODEL_INVALID", "user-m: the user says nothing"),
        ([says(supplies=["passport"])], "RESPONDER_MODEL_INVALID", "'passport', which they don't hold"),
        ([says("I own no lamp.", out_of_scope=True)], "RESPONDER_OUT_OF_SCOPE", "who asks for licence: I own no lamp."),
    ],
)
async def test_what_fails_in_the_user_is_never_the_agents(play: Any, script: Any, code: str, message: str) -> None:
    found = await play(script)
    assert (found.summary.verdict, found.summary.code) == (Verdict.ERRORED, code)
    assert found.summary.kind not in AGENT_OWN_KINDS and message in found.summary.message
    evidence = found.attachments["taskpack"]
    assert evidence["responder"]["calls"][0]["code"] == code
    assert [line["tool"] for line in evidence["trace"]] == ["read", "ask"], "what the agent did is kept"


async def test_a_silent_user_is_not_the_agents_deadline(play: Any) -> None:
    found = await play([SILENT] * 9, timeout=1.5)
    assert (found.summary.kind, found.summary.code) == ("infrastructure", "RESPONDER_MODEL_FAILED")


async def test_a_user_without_a_key_or_a_model_is_told(play: Any, attempt: Any) -> None:
    found = await play([says()], key="NO_SUCH_KEY")
    assert (found.summary.code, found.summary.message) == (
        "RESPONDER_MODEL_FAILED",
        "the key of the user's model is not set: NO_SUCH_KEY",
    )
    found = await attempt(pack().run, clerk, row=ROW)
    assert (found.summary.kind, found.summary.code) == ("authoring", "NO_USER_MODEL")
    assert [fault.code for fault in assignment_faults(pack(), ROW)] == ["no-user-model"]


async def test_what_a_user_gives_away_is_told_and_no_key_is_shown(play: Any) -> None:
    found = await play([says(f"Just release it; the invoice is there too. {KEY}")])
    (call,) = found.attachments["taskpack"]["responder"]["calls"]
    assert call["gave_away"] == ["release", "invoice"]
    assert KEY not in json.dumps(call)


def test_a_row_has_a_script_or_a_user() -> None:
    with pytest.raises(ValueError, match="not both"):
        assignment(user={"story": "x"})
