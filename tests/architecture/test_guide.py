"""The user guide keeps up with the code: its tables name every key, option and code."""

from __future__ import annotations

import ast
import re

import pytest
from pydantic import BaseModel

import evalfleet
from evalfleet import settings
from evalfleet.cli.main import COMMANDS
from evalfleet.codes.book import CODES
from evalfleet.model.experiment import Budget, Experiment, Limits, Retry, Selection, Writes
from evalfleet.plugins import adapter_factories
from tests.architecture.source import ROOT, product_sources

CODE = re.compile(r"[A-Z]+(?:_[A-Z0-9]+)+")

#: Constants that look like an error code and are none: names of variables, files and signals of others.
NOT_CODES = re.compile(
    r"EVALFLEET_.*|OTEL_.*|GIT_.*|DOCKER_.*|CONTAINERS?_.*|KUBERNETES_.*|REGISTRY_.*|XDG_.*|RAY_.*|LC_.*|PG_.*|PR_.*|SO_.*|PYTHON.*|PYTEST_.*|SC_.*"
    r"|.*_API_KEY|ANTHROPIC_.*|CLAUDE_.*|CODEX_.*|OPENCODE_.*|DISABLE_AUTOUPDATER|IS_SANDBOX"
)


def quoted(text: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)))


def fields(model: type[BaseModel], prefix: str = "") -> set[str]:
    return {prefix + (field.alias or name) for name, field in model.model_fields.items()}


def test_every_key_of_an_experiment_is_described() -> None:
    described = quoted((ROOT / "docs" / "experiments.md").read_text(encoding="utf-8"))
    keys = fields(Experiment) - {"evals", "budget", "writes"}
    keys |= fields(Selection, "evals.") | fields(Budget, "budget.") | fields(Writes, "writes.") | fields(Limits)
    assert fields(Retry) == {"max_attempts", "on"}
    assert keys - described == set()


@pytest.mark.parametrize("name", sorted(adapter_factories()))
def test_every_option_of_an_adapter_is_described(name: str) -> None:
    text = (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    assert f"`{name}`" in sections, f"docs/adapters.md has no section about {name}"
    said = sections[f"`{name}`"]
    shared = "What all models share"
    if "(#what-all-models-share)" in said:
        said += sections[shared]
    assert fields(adapter_factories()[name].options) - quoted(said) == set()


def test_every_command_and_environment_variable_is_described() -> None:
    described = quoted((ROOT / "docs" / "commands.md").read_text(encoding="utf-8"))
    assert [name for name in COMMANDS if not any(each.startswith(f"orchestrate {name}") for each in described)] == []
    variables = {
        value for value in vars(settings).values() if isinstance(value, str) and value.startswith("EVALFLEET_")
    }
    assert variables - described == set()


def codes() -> set[str]:
    """Every error code in the product's source: upper-case words joined by underscores, as a whole constant."""
    return {
        node.value
        for source in product_sources()
        if ".testing" not in source.module and not source.module.startswith("evalfleet.codes.")
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if CODE.fullmatch(node.value) and not NOT_CODES.fullmatch(node.value) and node.value not in evalfleet.__all__
    }


def test_every_error_code_is_described_and_every_described_one_exists() -> None:
    unknown, gone = codes() - set(CODES), set(CODES) - codes()
    assert not unknown, f"not described in evalfleet.codes: {sorted(unknown)}"
    assert not gone, f"described in evalfleet.codes and gone: {sorted(gone)}"
