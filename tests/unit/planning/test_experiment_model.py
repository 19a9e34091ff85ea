"""Quantities, the published schema, and what the model refuses."""

from __future__ import annotations

import json

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalfleet.model.experiment import SandboxLayer, experiment_schema
from evalfleet.model.quantity import parse_duration, parse_size
from evalfleet.planning.experiment_file import load_experiment
from evalfleet.planning.yaml_source import read_yaml, resolve
from tests.unit.planning.projects import DATA, FACTORIES, REPO


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("20m", 1200),
        ("5s", 5),
        ("1h30m", 5400),
        ("6h", 21600),
        ("1.5h", 5400),
        ("250ms", 0.25),
        ("2d", 172800),
        ("1d1h1m1s1ms", 90061.001),
        (90, 90),
        (0.5, 0.5),
    ],
)
def test_a_duration_is_seconds(text: object, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "m",
        "5",
        "5 s",
        "-5s",
        "5m3h",
        "1e3s",
        "٣s",
        0,
        -1,
        True,
        None,
        float("inf"),
        float("nan"),
        10**400,
        "9" * 400 + "s",
    ],
)
def test_what_is_no_duration_is_refused(text: object) -> None:
    with pytest.raises(ValueError):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [("1GiB", 1 << 30), ("500MB", 500_000_000), ("1.5 KiB", 1536), ("64B", 64), (4096, 4096), ("2TB", 2 * 10**12)],
)
def test_a_size_is_bytes(text: object, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "1", "GiB", "1gib", "1 G", "-1MB", 0, -1, 1.5, True, None, "0MB", "9" * 400 + "B"]
)
def test_what_is_no_size_is_refused(text: object) -> None:
    with pytest.raises(ValueError):
        parse_size(text)


def test_the_published_schema_is_the_generated_one() -> None:
    published = (REPO / "docs" / "experiment.schema.json").read_text(encoding="utf-8")
    assert published == json.dumps(experiment_schema(), indent=2) + "\n"


def test_the_schema_accepts_what_loads_and_refuses_a_misspelt_key() -> None:
    validator = jsonschema.Draft202012Validator(experiment_schema())
    whole = (DATA / "experiments" / "valid" / "whole.yaml").read_text(encoding="utf-8")
    written = resolve(read_yaml(whole, "f").value)
    quoted = load_experiment(DATA / "experiments" / "valid" / "whole.yaml", {}, FACTORIES).experiment.snapshot()
    validator.validate(quoted)
    assert not list(validator.iter_errors(quoted))
    assert any(error.validator == "additionalProperties" for error in validator.iter_errors(written | {"nmae": 1}))


layers = st.builds(
    SandboxLayer,
    backend=st.none() | st.sampled_from(["local", "container"]),
    image=st.none() | st.just("python:3.12"),
    setup=st.lists(st.sampled_from(["a", "b"])).map(tuple),
    env=st.dictionaries(st.sampled_from("AB"), st.sampled_from("12")),
)


@given(layers, layers)
def test_a_layer_over_another_says_what_it_says_and_takes_the_rest(upper: SandboxLayer, lower: SandboxLayer) -> None:
    merged = upper.over(lower)
    assert merged.backend == (upper.backend or lower.backend)
    assert merged.image == (upper.image or lower.image)
    assert merged.setup == (upper.setup or lower.setup)
    assert merged.env == (upper.env or lower.env)
    assert upper.over(None) == upper
