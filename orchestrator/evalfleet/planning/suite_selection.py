"""What of the suites an experiment means: scenarios by their ids, and variants of steps. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from evalfleet.errors import Problem
from evalfleet.model.definition import EvalDefinition
from evalfleet.model.experiment import Selection
from evalfleet.model.suite import DeclaredScenario, Scenario, Step
from evalfleet.suites.locations import nearest
from evalfleet.suites.matrix import SCENARIO_NOT_FOUND, VARIANT_NOT_FOUND


def select_scenarios(
    definitions: Sequence[EvalDefinition], selection: Selection
) -> tuple[tuple[EvalDefinition, ...], tuple[Problem, ...]]:
    """The definitions that stay, each scenario with the variants that stay; and names that nothing bears.

    With `scenario_ids` only scenarios stay. A scenario goes when a step of it is left without any of its variants.
    """
    wanted, variants = selection.scenario_ids, selection.variants
    if wanted is None and not variants:
        return tuple(definitions), ()
    scenarios = [each.body.scenario for each in definitions if isinstance(each.body, DeclaredScenario)]
    problems = (*_unknown_scenarios(scenarios, wanted or ()), *_unknown_variants(scenarios, variants))
    kept: list[EvalDefinition] = []
    for definition in definitions:
        body = definition.body
        if not isinstance(body, DeclaredScenario):
            if wanted is None:
                kept.append(definition)
        elif wanted is None or body.scenario.id in wanted:
            scenario = _with_variants(body.scenario, variants)
            if scenario is not None:
                kept.append(replace(definition, body=replace(body, scenario=scenario)))
    return tuple(kept), problems


def _with_variants(scenario: Scenario, wanted: Mapping[str, Sequence[str]]) -> Scenario | None:
    steps: list[Step] = []
    for step in scenario.steps:
        kept = tuple(each for each in step.variants if step.id not in wanted or each.id in wanted[step.id])
        if step.variants and not kept:
            return None
        steps.append(step if len(kept) == len(step.variants) else replace(step, variants=kept))
    return replace(scenario, steps=tuple(steps))


def _unknown_scenarios(scenarios: Sequence[Scenario], wanted: Sequence[str]) -> Iterator[Problem]:
    known = {scenario.id for scenario in scenarios}
    for index, name in enumerate(wanted):
        if name not in known:
            message = f"no suite has a scenario {name!r}"
            field = f"evals.scenario_ids.{index}"
            yield Problem(SCENARIO_NOT_FOUND, message, field=field, hint=nearest(name, known))


def _unknown_variants(scenarios: Sequence[Scenario], wanted: Mapping[str, Sequence[str]]) -> Iterator[Problem]:
    known: dict[str, set[str]] = {}
    for step in (step for scenario in scenarios for step in scenario.steps if step.variants):
        known.setdefault(step.id, set()).update(variant.id for variant in step.variants)
    for step_id, names in wanted.items():
        field = f"evals.variants.{step_id}"
        if step_id not in known:
            message = f"no scenario has a step {step_id!r} with variants"
            yield Problem(VARIANT_NOT_FOUND, message, field=field, hint=nearest(step_id, known))
            continue
        for index, name in enumerate(names):
            if name not in known[step_id]:
                message = f"no step {step_id!r} has a variant {name!r}"
                hint = nearest(name, known[step_id])
                yield Problem(VARIANT_NOT_FOUND, message, field=f"{field}.{index}", hint=hint)
