"""What of suites is meant: scenarios by their ids, variants of steps, and names that nothing bears. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from evalfleet.errors import Problem
from evalfleet.model.suite import Scenario, Step
from evalfleet.suites.locations import nearest

SCENARIO_NOT_FOUND = "EVALUATION_SCENARIO_NOT_FOUND"
VARIANT_NOT_FOUND = "EVALUATION_VARIANT_NOT_FOUND"
SELECTION_EMPTY = "EVALUATION_SELECTION_EMPTY"
CASE_LIMIT = "EVALUATION_CASE_LIMIT"
UNKNOWN_TAG = "UNKNOWN_TAG"


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteSelection:
    """None leaves the scenarios free, an empty list keeps none; `variants` keeps, of a step by its id, those named."""

    scenario_ids: Sequence[str] | None = None
    variants: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])


def selected(scenario: Scenario, selection: SuiteSelection) -> Scenario | None:
    """The scenario with the variants that stay; None when it goes, or a step is left without any of its variants."""
    if selection.scenario_ids is not None and scenario.id not in selection.scenario_ids:
        return None
    steps: list[Step] = []
    for step in scenario.steps:
        wanted = selection.variants.get(step.id)
        kept = step.variants if wanted is None else tuple(each for each in step.variants if each.id in wanted)
        if step.variants and not kept:
            return None
        steps.append(step if len(kept) == len(step.variants) else replace(step, variants=kept))
    return replace(scenario, steps=tuple(steps)) if selection.variants else scenario


def unknown_names(scenarios: Sequence[Scenario], selection: SuiteSelection) -> Iterator[Problem]:
    """What the selection names and no scenario bears, each with its field and the nearest name."""
    ids = {scenario.id for scenario in scenarios}
    for index, name in enumerate(selection.scenario_ids or ()):
        if name not in ids:
            message = f"no suite has a scenario {name!r}"
            yield Problem(SCENARIO_NOT_FOUND, message, field=f"scenario_ids.{index}", hint=nearest(name, ids))
    known: dict[str, set[str]] = {}
    for step in (step for scenario in scenarios for step in scenario.steps if step.variants):
        known.setdefault(step.id, set()).update(variant.id for variant in step.variants)
    for step_id, names in selection.variants.items():
        place = f"variants.{step_id}"
        if step_id not in known:
            message = f"no scenario has a step {step_id!r} with variants"
            yield Problem(VARIANT_NOT_FOUND, message, field=place, hint=nearest(step_id, known))
            continue
        for index, name in enumerate(names):
            if name not in known[step_id]:
                message = f"no step {step_id!r} has a variant {name!r}"
                hint = nearest(name, known[step_id])
                yield Problem(VARIANT_NOT_FOUND, message, field=f"{place}.{index}", hint=hint)


def unknown_tags(known: Collection[str], named: Iterable[str]) -> Iterator[Problem]:
    """Tags that are named and that nothing has: no error, since another project's evals may have them."""
    for tag in dict.fromkeys(named):
        if tag not in known:
            yield Problem(UNKNOWN_TAG, f"no eval has the tag {tag!r}", hint=nearest(tag, known))
