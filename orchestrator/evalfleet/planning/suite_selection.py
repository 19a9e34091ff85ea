"""What of the suites an experiment means, among all its evals. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from evalfleet.errors import Problem
from evalfleet.model.definition import EvalDefinition
from evalfleet.model.experiment import Selection
from evalfleet.model.suite import DeclaredScenario
from evalfleet.suites.selection import SELECTION_EMPTY, SuiteSelection, selected, unknown_names


def select_scenarios(
    definitions: Sequence[EvalDefinition], selection: Selection
) -> tuple[tuple[EvalDefinition, ...], tuple[Problem, ...]]:
    """The definitions that stay, each scenario with the variants that stay; and what can't be meant.

    With `scenario_ids` only scenarios stay. Fields of problems are those of the experiment.
    """
    wanted = SuiteSelection(scenario_ids=selection.scenario_ids, variants=selection.variants)
    if wanted.scenario_ids is None and not wanted.variants:
        return tuple(definitions), ()
    scenarios = [each.body.scenario for each in definitions if isinstance(each.body, DeclaredScenario)]
    problems = [replace(each, field=f"evals.{each.field}") for each in unknown_names(scenarios, wanted)]
    kept: list[EvalDefinition] = []
    for definition in definitions:
        body = definition.body
        if not isinstance(body, DeclaredScenario):
            if wanted.scenario_ids is None:
                kept.append(definition)
        elif (scenario := selected(body.scenario, wanted)) is not None:
            kept.append(replace(definition, body=replace(body, scenario=scenario)))
    if not kept and not problems:
        field = "evals.variants" if wanted.scenario_ids is None else "evals.scenario_ids"
        problems.append(Problem(SELECTION_EMPTY, "the selection leaves no scenario", field=field))
    return tuple(kept), tuple(problems)
