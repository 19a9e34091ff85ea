"""Whether the budget of an experiment can be kept: what can't be is refused before anything runs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from evalfleet.errors import Problem
from evalfleet.grading.prices import PriceList
from evalfleet.model.experiment import Experiment
from evalfleet.planning.arms import ArmPlan
from evalfleet.planning.yaml_source import Source

#: How parameters of a model's API call the most tokens of an answer.
_LIMITS = frozenset({"max_completion_tokens", "max_output_tokens", "max_tokens"})


def budget_problems(
    source: Source,
    experiment: Experiment | None,
    arms: Sequence[ArmPlan],
    options: Mapping[str, BaseModel],
    shown: Callable[[str, BaseModel | None], bool],
) -> list[Problem]:
    """What keeps a hard budget from being a promise; `shown` says of an adapter and its options
    that its model calls can be seen."""
    if experiment is None or not experiment.budget.is_hard:
        return []
    found: dict[tuple[Any, ...], Problem] = {}
    for place, code, message, hint in _problems(experiment, arms, options, shown):
        found.setdefault((place, code, message), source.problem(code, message, place, hint=hint))
    return list(found.values())


_Found = tuple[tuple[str | int, ...], str, str, str]


def _problems(
    experiment: Experiment,
    arms: Sequence[ArmPlan],
    options: Mapping[str, BaseModel],
    shown: Callable[[str, BaseModel | None], bool],
) -> Iterator[_Found]:
    prices = PriceList(experiment.prices)
    for arm in arms:
        usd, tokens = experiment.budget.limits(arm.name)
        if not usd and not tokens:
            continue
        if not shown(arm.settings.adapter, options.get(arm.name)) or experiment.isolation == "process":
            yield from _whole(experiment, arm, usd=usd, tokens=tokens)
            continue
        if usd and not prices.knows(arm.settings.model):
            message = f"nobody knows what {arm.settings.model!r} costs, so a hard budget in usd can't be kept"
            yield ("arms", arm.base), "PRICE_UNKNOWN", message, "add the model to `prices`, or say `budget.stop: soft`"
        if not _is_bounded(options.get(arm.name)):
            message = "the answers of its model have no limit, so a hard budget can't be kept"
            yield ("arms", arm.base), "BUDGET_NOT_COVERED", message, "set `max_tokens`, or say `budget.stop: soft`"
    yield from _judge(experiment, prices)


def _whole(experiment: Experiment, arm: ArmPlan, *, usd: bool, tokens: bool) -> Iterator[_Found]:
    why = f"the model calls of the adapter {arm.settings.adapter!r} can't be seen"
    if experiment.isolation == "process":
        why = "attempts in processes of their own can't ask for money"
    budget = experiment.budget
    lacks = [
        name
        for name, limited, value in (
            ("attempt_usd", usd, budget.attempt_usd),
            ("attempt_tokens", tokens, budget.attempt_tokens),
        )
        if limited and value is None
    ]
    for name in lacks:
        message = f"the arm {arm.name!r} needs `budget.{name}`: {why}, so each attempt is given a whole amount"
        yield ("budget",), "BUDGET_NOT_COVERED", message, f"set `budget.{name}`, or say `budget.stop: soft`"


def _is_bounded(options: BaseModel | None) -> bool:
    params: Any = getattr(options, "params", None) or {}
    return options is None or getattr(options, "max_tokens", None) is not None or bool(_LIMITS & set(params))


def _judge(experiment: Experiment, prices: PriceList) -> Iterator[_Found]:
    judge, budget = experiment.judge, experiment.budget
    if judge is None or judge.model is None or (budget.usd is None and budget.tokens is None):
        return
    if budget.usd is not None and not prices.knows(judge.model):
        message = f"nobody knows what the judge {judge.model!r} costs, so a hard budget in usd can't be kept"
        yield ("judge", "model"), "PRICE_UNKNOWN", message, "add the model to `prices`, or say `budget.stop: soft`"
    if judge.max_tokens is None:
        message = "the judge's answers have no limit, so a hard budget can't be kept"
        yield ("judge",), "BUDGET_NOT_COVERED", message, "set `judge.max_tokens`, or say `budget.stop: soft`"
