"""Which cases a suite has: scenarios, selected, times their variants times repetitions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod

from evalfleet.errors import DefinitionError, Problem
from evalfleet.model.canonical import digest
from evalfleet.model.suite import Scenario, Step, Suite
from evalfleet.suites.locations import nearest

SCENARIO_NOT_FOUND = "EVALUATION_SCENARIO_NOT_FOUND"
VARIANT_NOT_FOUND = "EVALUATION_VARIANT_NOT_FOUND"
SELECTION_EMPTY = "EVALUATION_SELECTION_EMPTY"
CASE_LIMIT = "EVALUATION_CASE_LIMIT"
UNKNOWN_TAG = "UNKNOWN_TAG"

_SHOWN = 6  # factors, and scenarios, of a matrix that is too large


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteSelection:
    """What of a suite is meant: None leaves a dimension free, an empty list selects nothing.

    A scenario stays that is named, has any of `tags` and none of `exclude_tags`; `variants` keeps, of a step by its id,
    the variants named.
    """

    scenario_ids: Sequence[str] | None = None
    tags: Sequence[str] | None = None
    exclude_tags: Sequence[str] = ()
    variants: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])


@dataclass(frozen=True, slots=True)
class Selected:
    """The scenarios that stay, in the suite's order and with the variants that stay, and what is probably not meant."""

    scenarios: tuple[Scenario, ...]
    warnings: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteCase:
    """A scenario with one choice of variants, by step. `steps` have its inputs; `repetition` counts from 0."""

    id: str
    scenario: Scenario
    variants: Mapping[str, str]
    repetition: int
    steps: tuple[Step, ...]


def select(suite: Suite, selection: SuiteSelection) -> Selected:
    """The scenarios that a selection means.

    Raises DefinitionError: EVALUATION_SCENARIO_NOT_FOUND, EVALUATION_VARIANT_NOT_FOUND, or EVALUATION_SELECTION_EMPTY
    when nothing stays, which is never a pass.
    """
    if unknown := list(_unknown_names(suite, selection)):
        raise DefinitionError(unknown[0].code, unknown)
    kept = [_with_variants(each, selection.variants) for each in suite.scenarios if _stays(each, selection)]
    kept = [scenario for scenario in kept if scenario is not None]
    if not kept:
        message = f"the selection leaves no scenario of the suite {suite.id!r}"
        raise DefinitionError(SELECTION_EMPTY, [Problem(SELECTION_EMPTY, message)])
    return Selected(tuple(kept), tuple(_unknown_tags(suite, selection)))


def expand(scenarios: Sequence[Scenario], repetitions: int, max_cases: int) -> tuple[SuiteCase, ...]:
    """All cases in order: scenarios as they stand, later steps' variants faster, repetitions fastest.

    They are counted before one is built. Raises DefinitionError, EVALUATION_CASE_LIMIT, with the factors.
    """
    count = sum(map(combination_count, scenarios)) * repetitions
    if count > max_cases:
        message = f"more than {max_cases} cases: {_shown(scenarios)}, each {repetitions} times"
        hint = "select scenarios, tags or variants, or raise the limit"
        raise DefinitionError(CASE_LIMIT, [Problem(CASE_LIMIT, message, hint=hint)])
    return tuple(_cases(scenarios, repetitions))


def combinations(scenario: Scenario) -> Iterator[dict[str, str]]:
    """Each choice of variants, by step, later steps' faster; one empty choice without any."""
    for chosen in product(*(step.variants or (None,) for step in scenario.steps)):
        pairs = zip(scenario.steps, chosen, strict=True)
        yield {step.id: variant.id for step, variant in pairs if variant is not None}


def combination_count(scenario: Scenario) -> int:
    """How many choices of variants there are, without making one."""
    return prod(_factors(scenario))


def case_id(scenario_id: str, variants: Mapping[str, str], repetition: int) -> str:
    """The id of a case: what it is, not where it stands. 64 hexadecimal digits."""
    return digest({"scenarioId": scenario_id, "variants": dict(variants), "repetition": repetition})


def turn_id(thread_id: str, step_id: str) -> str:
    """The id under which a step is sent at most once. 69 characters, however long its parts are."""
    return f"eval.{digest({'threadId': thread_id, 'stepId': step_id})}"


def _cases(scenarios: Iterable[Scenario], repetitions: int) -> Iterator[SuiteCase]:
    for scenario in scenarios:
        for variants in combinations(scenario):
            steps = tuple(_chosen(step, variants.get(step.id)) for step in scenario.steps)
            for repetition in range(repetitions):
                yield SuiteCase(
                    id=case_id(scenario.id, variants, repetition),
                    scenario=scenario,
                    variants=variants,
                    repetition=repetition,
                    steps=steps,
                )


def _chosen(step: Step, variant_id: str | None) -> Step:
    if variant_id is None:
        return step
    variant = next(each for each in step.variants if each.id == variant_id)
    return replace(step, input=variant.input, variants=())


def _factors(scenario: Scenario) -> list[int]:
    return [len(step.variants) for step in scenario.steps if step.variants]


def _shown(scenarios: Sequence[Scenario]) -> str:
    """The largest scenarios with their numbers of variants: `checkout 2 × 3`."""
    largest = sorted(scenarios, key=lambda scenario: -prod(_factors(scenario)))[:_SHOWN]
    texts = [f"{scenario.id} {_product(_factors(scenario))}" for scenario in largest]
    rest = len(scenarios) - len(largest)
    return ", ".join([*texts, *([f"{rest} more"] if rest else [])])


def _product(factors: Sequence[int]) -> str:
    texts = [str(factor) for factor in factors[:_SHOWN]] or ["1"]
    return " × ".join([*texts, *(["…"] if len(factors) > _SHOWN else [])])


def _stays(scenario: Scenario, selection: SuiteSelection) -> bool:
    tags = set(scenario.tags)
    return (
        (selection.scenario_ids is None or scenario.id in selection.scenario_ids)
        and (selection.tags is None or not tags.isdisjoint(selection.tags))
        and tags.isdisjoint(selection.exclude_tags)
    )


def _with_variants(scenario: Scenario, wanted: Mapping[str, Sequence[str]]) -> Scenario | None:
    """The scenario with the variants that stay; None when a step has variants and none of them stays."""
    steps: list[Step] = []
    for step in scenario.steps:
        kept = tuple(each for each in step.variants if step.id not in wanted or each.id in wanted[step.id])
        if step.variants and not kept:
            return None
        steps.append(step if len(kept) == len(step.variants) else replace(step, variants=kept))
    return replace(scenario, steps=tuple(steps))


def _unknown_names(suite: Suite, selection: SuiteSelection) -> Iterator[Problem]:
    ids = {scenario.id for scenario in suite.scenarios}
    for name in selection.scenario_ids or ():
        if name not in ids:
            message = f"the suite {suite.id!r} has no scenario {name!r}"
            yield Problem(SCENARIO_NOT_FOUND, message, hint=nearest(name, ids))
    variants: dict[str, set[str]] = {}
    for step in (step for scenario in suite.scenarios for step in scenario.steps if step.variants):
        variants.setdefault(step.id, set()).update(variant.id for variant in step.variants)
    for step_id, names in selection.variants.items():
        if step_id not in variants:
            message = f"the suite {suite.id!r} has no step {step_id!r} with variants"
            yield Problem(VARIANT_NOT_FOUND, message, hint=nearest(step_id, variants))
            continue
        for name in names:
            if name not in variants[step_id]:
                message = f"the step {step_id!r} has no variant {name!r}"
                yield Problem(VARIANT_NOT_FOUND, message, hint=nearest(name, variants[step_id]))


def _unknown_tags(suite: Suite, selection: SuiteSelection) -> Iterator[Problem]:
    known = {tag for scenario in suite.scenarios for tag in scenario.tags}
    for tag in dict.fromkeys((*(selection.tags or ()), *selection.exclude_tags)):
        if tag not in known:
            message = f"no scenario of the suite {suite.id!r} has the tag {tag!r}"
            yield Problem(UNKNOWN_TAG, message, hint=nearest(tag, known))
