"""An experiment file is loaded whole, or refused with every mistake at its place."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from evalfleet.errors import DefinitionError
from evalfleet.model.experiment import Experiment
from evalfleet.planning.experiment_file import LoadedExperiment, load_experiment, restore_experiment
from evalfleet.planning.yaml_source import read_yaml, resolve
from evalfleet.plugins import Factories
from evalfleet.ports import AdapterFactory
from tests.unit.planning.projects import BACKENDS, DATA, FACTORIES, FakeOptions, QuietFactory

MALFORMED = sorted((DATA / "experiments" / "malformed").glob("*.yaml"))
WHOLE = DATA / "experiments" / "valid" / "whole.yaml"
SMALL = "schema_version: 1\nname: sweep\narms:\n  small: {adapter: fake, url: u}\n"


def load(path: Path, **overrides: str) -> LoadedExperiment:
    dotted = {key.replace("__", "."): value for key, value in overrides.items()}
    return load_experiment(path, dotted, FACTORIES, backends=BACKENDS)


def small(tmp_path: Path, more: str = "") -> Path:
    path = tmp_path / "experiment.yaml"
    path.write_text(SMALL + more, encoding="utf-8")
    return path


@pytest.mark.parametrize("path", MALFORMED, ids=lambda path: path.stem)
def test_a_malformed_file_is_refused_with_every_mistake_at_its_place(path: Path) -> None:
    expected = re.findall(r"^# expect: (\S+) (\d+):(\d+) (\S+)(?: (.+))?$", path.read_text(encoding="utf-8"), re.M)
    with pytest.raises(DefinitionError) as caught:
        load(path)
    found = caught.value.problems
    assert [(p.code, str(p.line), str(p.column), p.field or "-") for p in found] == [row[:4] for row in expected]
    assert all(p.file == str(path) for p in found)
    for problem, (*_, text) in zip(found, expected, strict=True):
        assert text in f"{problem.message} {problem.hint}"


def test_there_are_enough_malformed_files_and_each_says_what_it_expects() -> None:
    assert len(MALFORMED) >= 40
    assert all("# expect: " in path.read_text(encoding="utf-8") for path in MALFORMED)


def test_scalars_take_the_type_of_their_field() -> None:
    loaded = load(WHOLE)
    experiment, arm = loaded.experiment, loaded.experiment.arms["small"]
    assert experiment.name == "1_000"
    assert (experiment.evals.tags, experiment.evals.limit) == (("smoke", "NO"), 200)
    assert (arm.model, experiment.arms["large"].model) == ("3.10", "4")
    assert arm.labels == {"tier": 1, "cost": 0.5, "region": "NO"}
    assert arm.flags == {
        "choices": ["NO", "SE", "ON"],
        "target": "off",
        "no": "=",
        "as_of": "2026-01-02",
        "blocked": True,
        "at": 1000.0,
        "zip": "017",
        "nothing": None,
    }
    assert loaded.options["small-concise-0.5"] == FakeOptions(
        url="017", max_tokens=1000, temperature=0.5, headers={"no": "off", "on": "08:30"}, stop=["NO", "1"]
    )
    layer = experiment.arms["large"].sandbox
    assert layer is not None
    assert (layer.setup, layer.user) == (("true", "false"), "1000")
    assert layer.env == {"DEBUG": "0", "WHEN": "2026-01-02"}
    assert experiment.limits.attempt_timeout == 5400.0
    assert experiment.sandbox is not None and experiment.sandbox.resources is not None
    assert (experiment.sandbox.resources.memory, experiment.sandbox.resources.disk) == (1 << 30, 500_000_000)


def test_a_matrix_multiplies_every_arm_in_order_and_names_derive_from_values() -> None:
    assert [arm.name for arm in load(WHOLE).arms] == [
        f"{base}-{prompt}-{temperature}"
        for base in ("small", "large")
        for prompt in ("concise", "thorough")
        for temperature in ("0", "0.5")
    ]


def test_a_snapshot_is_json_and_reads_back_equal() -> None:
    loaded = load(WHOLE)
    snapshot = json.loads(json.dumps(loaded.experiment.snapshot(), allow_nan=False))
    assert Experiment.from_snapshot(snapshot) == loaded.experiment
    restored = restore_experiment(snapshot, WHOLE, FACTORIES)
    assert (restored.arms, restored.options) == (loaded.arms, loaded.options)


def test_a_snapshot_that_this_installation_does_not_load_says_so() -> None:
    with pytest.raises(DefinitionError) as caught:
        restore_experiment({**load(WHOLE).experiment.snapshot(), "repetitions": 0}, WHOLE, FACTORIES)
    assert caught.value.code == "INVALID_SNAPSHOT"
    (problem,) = caught.value.problems
    assert (problem.field, problem.hint) == (
        "repetitions",
        "that is what the run recorded: use the version that planned it",
    )


def test_a_restored_arm_lays_its_sandbox_over_the_experiments_as_before() -> None:
    loaded = load(WHOLE)
    restored = restore_experiment(loaded.experiment.snapshot(), WHOLE, FACTORIES)
    for before, after in zip(loaded.arms, restored.arms, strict=True):
        if before.settings.sandbox is not None:
            assert after.settings.sandbox is not None
            assert after.settings.sandbox.over(after.layer) == before.settings.sandbox.over(before.layer)


@pytest.mark.parametrize(
    "text", ['{"target":"08:30","label":"no","ver":"1e3","zip":"017"}', '{"a":1e3,"b":"1e3","c":true,"d":"true"}']
)
def test_flags_keep_their_types_through_a_snapshot(tmp_path: Path, text: str) -> None:
    path = small(tmp_path).with_name("flags.yaml")
    path.write_text(SMALL.replace("url: u", f"url: u, flags: {text}"), encoding="utf-8")
    experiment = load(path).experiment
    assert experiment.arms["small"].flags == json.loads(text)
    assert json.dumps(Experiment.from_snapshot(experiment.snapshot()).arms["small"].flags) == json.dumps(
        experiment.arms["small"].flags
    )


def test_set_changes_limits_and_sampling(tmp_path: Path) -> None:
    loaded = load(
        small(tmp_path),
        limits__concurrency="7",
        limits__attempt_timeout="20m",
        evals__seed="3",
        evals__limit="1e1",
        repetitions="4",
        retry__on="[agent]",
    )
    experiment = loaded.experiment
    assert (experiment.limits.concurrency, experiment.limits.attempt_timeout) == (7, 1200.0)
    assert (experiment.evals.seed, experiment.evals.limit, experiment.repetitions) == (3, 10, 4)
    assert [kind.value for kind in experiment.retry.on] == ["agent"]


@pytest.mark.parametrize(
    ("key", "value", "code", "field"),
    [
        ("arms.small.model", "x", "INVALID_OVERRIDE", "arms.small.model"),
        ("matrix", "{}", "INVALID_OVERRIDE", "matrix"),
        ("judge.model", "x", "INVALID_OVERRIDE", "judge.model"),
        ("evals.select", "[x]", "INVALID_OVERRIDE", "evals.select"),
        ("limits.concurency", "7", "UNKNOWN_KEY", "limits.concurency"),
        ("limits.concurrency", "many", "INVALID_VALUE", "limits.concurrency"),
        ("budget.usd", "-7", "INVALID_VALUE", "budget.usd"),
        ("rate.openai:m.concurrency", "0", "INVALID_VALUE", "rate.openai:m.concurrency"),
        ("stop.precision", "0.1", "NOT_SUPPORTED", "stop.precision"),
        ("stop.early_exit", "maybe", "INVALID_VALUE", "stop.early_exit"),
    ],
)
def test_a_wrong_set_names_itself_not_the_file(tmp_path: Path, key: str, value: str, code: str, field: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        load_experiment(small(tmp_path), {key: value}, FACTORIES)
    (problem,) = caught.value.problems
    assert (problem.code, problem.file, problem.line, problem.field) == (code, "--set", None, field)


def test_a_missing_or_unreadable_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="there is no such file") as missing:
        load(tmp_path / "nope.yaml")
    assert missing.value.code == "EXPERIMENT_NOT_FOUND"
    with pytest.raises(DefinitionError) as unreadable:
        load(tmp_path)
    assert unreadable.value.code == "EXPERIMENT_NOT_READABLE"
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9\n")
    with pytest.raises(DefinitionError, match="not UTF-8 at byte 9"):
        load(tmp_path / "latin.yaml")


def mutations(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every key and item retyped, dropped, and renamed."""
    if not isinstance(value, (dict, list)):
        return
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    for key in keys:
        where = ".".join(map(str, (*path, key)))
        retyped = deepcopy(value)
        retyped[key] = ["x"] if isinstance(value[key], (str, int, float)) else -3.5
        yield f"{where} retyped", retyped
        dropped = deepcopy(value)
        del dropped[key]
        yield f"without {where}", dropped
        if isinstance(key, str):
            renamed = {(f"{name}x" if name == key else name): item for name, item in value.items()}
            yield f"{where} renamed", renamed
        for name, inner in mutations(value[key], (*path, key)):
            changed = deepcopy(value)
            changed[key] = inner
            yield name, changed


MUTATIONS = list(mutations(resolve(read_yaml(WHOLE.read_text(encoding="utf-8"), "f").value)))


def test_there_are_many_mutations() -> None:
    assert len(MUTATIONS) >= 250


@pytest.mark.parametrize("part", range(4))
def test_a_mutated_experiment_loads_or_is_refused_with_a_place(tmp_path: Path, part: int) -> None:
    path = tmp_path / "experiment.yaml"
    for name, document in MUTATIONS[part::4]:
        path.write_text(json.dumps(document, indent=1), encoding="utf-8")
        try:
            loaded = load(path)
        except DefinitionError as error:
            assert error.problems, name
            assert all(problem.line is not None and problem.file == str(path) for problem in error.problems), name
        else:
            assert Experiment.from_snapshot(loaded.experiment.snapshot()) == loaded.experiment, name


def test_values_of_a_matrix_take_the_types_of_what_they_vary(tmp_path: Path) -> None:
    more = "matrix: {model: [4, 017], flags.x: [017, 1e3], sandbox.user: [1000], max_tokens: [1e3], stop: [NO]}\n"
    loaded = load(small(tmp_path, more))
    assert [arm.name for arm in loaded.arms] == [
        f"small-{m}-{x}-1000-1000-NO" for m in ("4", "017") for x in ("017", "1000.0")
    ]
    first = loaded.arms[1]
    assert (first.settings.model, first.settings.flags) == ("4", {"x": 1000.0})
    assert first.settings.sandbox is not None and first.settings.sandbox.user == "1000"
    assert loaded.options[first.name] == FakeOptions(url="u", max_tokens=1000, stop="NO")


def test_with_a_matrix_limits_name_the_arms_it_makes(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError) as caught:
        load(small(tmp_path, "matrix: {flags.x: [a, b]}\nlimits: {per_arm: {small: 3}}\naccept: {arms: [small-a]}\n"))
    (problem,) = caught.value.problems
    assert (problem.code, problem.field) == ("UNKNOWN_ARM", "limits.per_arm.small")
    assert problem.hint is not None and "small-" in problem.hint


class Auth(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    token_env: str


class NestedOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    auth: Auth


def test_a_misspelt_key_inside_an_option_is_reported_there(tmp_path: Path) -> None:
    path = small(tmp_path)
    path.write_text(SMALL.replace("url: u", "auth: {tokn_env: K}"), encoding="utf-8")
    with pytest.raises(DefinitionError) as caught:
        load_experiment(path, {}, {"fake": QuietFactory(options=NestedOptions)})
    assert [(problem.code, problem.field) for problem in caught.value.problems] == [
        ("MISSING_KEY", "arms.small.auth.token_env"),
        ("UNKNOWN_KEY", "arms.small.auth.tokn_env"),
    ]


def test_a_broken_adapter_is_reported_at_its_arm(tmp_path: Path) -> None:
    broken = Factories("adapter", AdapterFactory, [EntryPoint("fake", "no_such_module_here:factory", "g")])
    with pytest.raises(DefinitionError, match="no_such_module_here") as caught:
        load_experiment(small(tmp_path), {}, broken)
    assert [(problem.code, problem.line) for problem in caught.value.problems] == [("BROKEN_ADAPTER", 4)]
