"""Which cases a scenario has: its choices of variants; and what cases and turns are called. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod

from evalfleet.model.canonical import digest
from evalfleet.model.suite import Scenario


def combinations(scenario: Scenario) -> Iterator[dict[str, str]]:
    """Each choice of variants, by step, later steps' faster; one empty choice without any."""
    for chosen in product(*(step.variants or (None,) for step in scenario.steps)):
        pairs = zip(scenario.steps, chosen, strict=True)
        yield {step.id: variant.id for step, variant in pairs if variant is not None}


def combination_count(scenario: Scenario) -> int:
    """How many choices of variants there are, without making one."""
    return prod(len(step.variants) for step in scenario.steps if step.variants)


def case_id(scenario_id: str, variants: Mapping[str, str], repetition: int) -> str:
    """The id of a case: what it is, not where it stands. 64 hexadecimal digits."""
    return digest({"scenarioId": scenario_id, "variants": dict(variants), "repetition": repetition})


def thread_id(run: str, attempt: int) -> str:
    """What a conversation is called: by the run, and the attempt that began it. One that goes on with it keeps it."""
    return f"{run}:{attempt}"


def step_of(steps: Sequence[str], session: int, index: int, sequence: int) -> str:
    """The step that a turn is of: the declared one of its number in the attempt, else its place in its session."""
    return steps[sequence] if sequence < len(steps) else f"turn/{session}/{index}"


def turn_id(thread_id: str, step_id: str) -> str:
    """The id under which a step is sent at most once. 69 characters, however long its parts are."""
    return f"eval.{digest({'threadId': thread_id, 'stepId': step_id})}"
