"""A hard budget that can't be kept is refused when it is planned, by place."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalfleet.errors import DefinitionError
from evalfleet.planning.experiment_file import load_experiment
from evalfleet.plugins import adapter_factories

BOUNDED = "adapter: openai, model: m, max_tokens: 10"
PRICED = "prices: {m: {input: 1, output: 2}}"
FUNCTION = "adapter: python, entry: 'a:b'"


def load(tmp_path: Path, arm: str, *more: str) -> None:
    lines = ["schema_version: 1", "name: e", f"arms: {{a: {{{arm}}}}}", *more]
    (tmp_path / "experiment.yaml").write_text("\n".join(lines) + "\n")
    load_experiment(tmp_path / "experiment.yaml", {}, adapter_factories())


@pytest.mark.parametrize(
    ("arm", "more"),
    [
        (BOUNDED, ("budget: {usd: 1}", PRICED)),
        (BOUNDED, ("budget: {tokens: 100}",)),
        (BOUNDED, ("budget: {usd: 1, stop: soft}",)),
        ("adapter: openai, model: m", ("budget: {usd: 1, stop: soft}",)),
        ("adapter: openai, model: m, params: {max_completion_tokens: 7}", ("budget: {tokens: 1}",)),
        ("adapter: openai, model: gpt-4o-mini, max_tokens: 10", ("budget: {arms: {a: {usd: 1}}}",)),
        ("adapter: anthropic, model: m", ("budget: {tokens: 1}",)),
        (FUNCTION, ("budget: {usd: 1, attempt_usd: 0.1}",)),
        (FUNCTION, ("budget: {wall: 1h}",)),
        (BOUNDED, ("budget: {tokens: 1, attempt_tokens: 1}", "isolation: process")),
    ],
)
def test_what_can_be_kept_is_accepted(tmp_path: Path, arm: str, more: tuple[str, ...]) -> None:
    load(tmp_path, arm, *more)


@pytest.mark.parametrize(
    ("arm", "more", "code", "field"),
    [
        (BOUNDED, ("budget: {usd: 1}",), "PRICE_UNKNOWN", "arms.a"),
        (BOUNDED, ("budget: {arms: {a: {usd: 1}}}",), "PRICE_UNKNOWN", "arms.a"),
        ("adapter: openai, model: m", ("budget: {tokens: 1}",), "BUDGET_NOT_COVERED", "arms.a"),
        (FUNCTION, ("budget: {usd: 1}",), "BUDGET_NOT_COVERED", "budget"),
        (FUNCTION, ("budget: {tokens: 1, attempt_usd: 1}",), "BUDGET_NOT_COVERED", "budget"),
        (BOUNDED, ("budget: {tokens: 1}", "isolation: process"), "BUDGET_NOT_COVERED", "budget"),
        (BOUNDED, ("budget: {arms: {b: {tokens: 1}}}",), "UNKNOWN_ARM", "budget.arms.b"),
        (BOUNDED, ("budget: {tokens: 1}", "judge: {model: j}"), "BUDGET_NOT_COVERED", "judge"),
        (BOUNDED, ("budget: {usd: 1}", PRICED, "judge: {model: j, max_tokens: 9}"), "PRICE_UNKNOWN", "judge.model"),
    ],
)
def test_what_can_not_be_kept_is_refused(
    tmp_path: Path, arm: str, more: tuple[str, ...], code: str, field: str
) -> None:
    with pytest.raises(DefinitionError) as caught:
        load(tmp_path, arm, *more)
    assert [(problem.code, problem.field) for problem in caught.value.problems] == [(code, field)]
