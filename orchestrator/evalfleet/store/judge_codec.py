"""Judge calls as lists for JSON, and back, exactly. PURE. Fields are only ever added at the end of a list."""

from __future__ import annotations

from typing import Any

from evalfleet.model.judge import JudgeCall, JudgeMessage, Ruling
from evalfleet.store.usage_codec import encode_usage, read_usage


def encode_judge_call(call: JudgeCall) -> list[Any]:
    ruling = call.ruling
    return [
        call.assertion,
        call.repetition,
        call.vote,
        call.recipe,
        call.version,
        call.model,
        call.request,
        call.prompt,
        [[message.role, message.text] for message in call.messages],
        call.started_at,
        call.latency,
        call.tries,
        call.cached,
        call.reply,
        None if ruling is None else [ruling.score, ruling.label, ruling.rationale, ruling.repairs],
        encode_usage(call.usage),
        call.cost_usd,
        call.code,
        call.message,
    ]


def read_judge_call(call: list[Any]) -> JudgeCall:
    assertion, repetition, vote, recipe, version, model, request, prompt, messages = call[:9]
    started_at, latency, tries, cached, reply, ruling, usage, cost_usd, code, message = call[9:19]
    return JudgeCall(
        assertion=assertion,
        repetition=repetition,
        vote=vote,
        recipe=recipe,
        version=version,
        model=model,
        request=request,
        prompt=prompt,
        messages=tuple(JudgeMessage(role, text) for role, text in messages),
        started_at=started_at,
        latency=latency,
        tries=tries,
        cached=cached,
        reply=reply,
        ruling=None if ruling is None else _read_ruling(ruling),
        usage=read_usage(usage),
        cost_usd=cost_usd,
        code=code,
        message=message,
    )


def _read_ruling(ruling: list[Any]) -> Ruling:
    score, label, rationale, repairs = ruling[:4]
    return Ruling(score=score, label=label, rationale=rationale, repairs=tuple(repairs))
