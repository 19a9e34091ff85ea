"""The judges of a run: the one that the environment names, and whether they answer before the run begins."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace

from evalfleet.api.blueprint import RunBlueprint
from evalfleet.clock import SystemClock
from evalfleet.errors import ConfigurationError, JudgeFailure
from evalfleet.model.experiment import JudgeLayer
from evalfleet.model.judge import JudgeConfig, JudgeMessage, JudgeRequest
from evalfleet.plugins import judge_model
from evalfleet.ports import JudgeModel, Secrets
from evalfleet.randomness import SystemRandom
from evalfleet.settings import EnvironmentSecrets, Settings

#: Seconds and tries that a judge has to answer before the run begins.
_PATIENCE, _TRIES = 20.0, 2

_SCHEMA = {
    "type": "object",
    "properties": {"ready": {"type": "boolean"}},
    "required": ["ready"],
    "additionalProperties": False,
}

_log = logging.getLogger("evalfleet")


def default_judge(settings: Settings) -> JudgeLayer:
    """The judge that the environment names, for whoever names none."""
    return JudgeLayer(
        model=settings.judge_model, base_url=settings.judge_base_url, api_key_env=settings.judge_api_key_env
    )


async def with_judges_tried(blueprint: RunBlueprint) -> RunBlueprint:
    """The blueprint with the evals whose judge does not answer: they are errored without running their agent.

    Warns once about each such judge.
    """
    if not blueprint.judges:
        return blueprint
    model = judge_model(SystemClock(), SystemRandom())
    try:
        away = await judges_away(blueprint.judges, model, EnvironmentSecrets())
    finally:
        await model.close()
    for message in dict.fromkeys(away.values()):
        evals = sum(told == message for told in away.values())
        _log.warning("judge-precheck-failed: %s; evals that ask it and will be errored: %d", message, evals)
    return replace(blueprint, judges_away=away)


async def judges_away(judges: Mapping[str, JudgeConfig], model: JudgeModel, secrets: Secrets) -> dict[str, str]:
    """By definition, what is wrong with its judge. One without a model or a key is not asked: assertions say so."""
    found: dict[tuple[str, str, str | None], asyncio.Task[str | None]] = {}
    async with asyncio.TaskGroup() as tasks:
        for judge in judges.values():
            place = (judge.model or "", judge.base_url, judge.api_key_env)
            if judge.model is not None and place not in found:
                found[place] = tasks.create_task(_fault(judge, model, secrets))
    faults = {place: task.result() for place, task in found.items()}
    told = {name: faults.get((judge.model or "", judge.base_url, judge.api_key_env)) for name, judge in judges.items()}
    return {name: fault for name, fault in told.items() if fault is not None}


async def _fault(judge: JudgeConfig, model: JudgeModel, secrets: Secrets) -> str | None:
    try:
        key = None if judge.api_key_env is None else secrets.resolve(judge.api_key_env)
    except ConfigurationError:
        return None
    request = JudgeRequest(
        model=judge.model or "",
        base_url=judge.base_url,
        messages=(JudgeMessage("user", 'Answer with the JSON object {"ready": true} and nothing else.'),),
        schema=_SCHEMA,
        temperature=judge.temperature,
        max_tokens=judge.max_tokens,
        timeout=_PATIENCE,
        tries=_TRIES,
    )
    try:
        await model.ask(request, key)
    except JudgeFailure as failure:
        return f"the judge does not answer: {failure}"
    return None
