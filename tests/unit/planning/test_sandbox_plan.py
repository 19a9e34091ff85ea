"""Exactly one of Eval and Experiment brings the template of a sandbox."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalfleet.model.definition import EvalDefinition, Resources, SandboxSpec, SourcePlace
from evalfleet.model.experiment import Arm, SandboxLayer
from evalfleet.model.sandbox import DefaultBackend
from evalfleet.planning.arms import ArmPlan
from evalfleet.planning.fingerprint import sandbox_parts
from evalfleet.planning.sandbox_plan import SandboxFault, names_no_backend, resolve_sandbox

FOLDER = Path("/experiment")
PLACE = SourcePlace(file=Path("/project/evals/x.eval.py"), line=3)


def layer(**said: Any) -> SandboxLayer:
    return SandboxLayer.model_validate_json(json.dumps(said))


def resolve(
    spec: SandboxSpec | None = None,
    experiment: SandboxLayer | None = None,
    arm: SandboxLayer | None = None,
    *,
    sandboxed: bool = True,
    default: DefaultBackend | None = None,
) -> SandboxSpec | None:
    plan = ArmPlan(name="mine", base="mine", settings=Arm(adapter="x", sandbox=arm), varied={}, layer=experiment)
    definition = EvalDefinition(body=lambda t: None, id="x", sandbox=spec, place=PLACE)
    return resolve_sandbox(plan, definition, sandboxed=sandboxed, folder=FOLDER, default=default)


IMAGE = SandboxSpec(image="python:3.12")
CONTAINER = layer(backend="container")
WITH_IMAGE = layer(backend="container", image="node:24")
LOCAL = layer(backend="local")


@pytest.mark.parametrize(
    ("eval_layer", "experiment", "arm", "image"),
    [
        (IMAGE, CONTAINER, None, "python:3.12"),
        (None, WITH_IMAGE, None, "node:24"),
        (None, CONTAINER, layer(image="node:24"), "node:24"),
        (SandboxSpec(files="fixture"), WITH_IMAGE, None, "node:24"),
        (None, LOCAL, None, None),
        (SandboxSpec(files="fixture"), LOCAL, None, None),
        (SandboxSpec(backend="bubblewrap"), None, None, None),
        (SandboxSpec(backend="container", image="python:3.12"), CONTAINER, None, "python:3.12"),
    ],
)
def test_one_template_makes_a_sandbox(
    eval_layer: SandboxSpec | None, experiment: SandboxLayer | None, arm: SandboxLayer | None, image: str | None
) -> None:
    resolved = resolve(eval_layer, experiment, arm)
    assert resolved is not None
    assert resolved.image == image


@pytest.mark.parametrize(
    ("eval_layer", "experiment", "arm", "code"),
    [
        (IMAGE, WITH_IMAGE, None, "SANDBOX_TEMPLATE_CONFLICT"),
        (SandboxSpec(image="node:24"), WITH_IMAGE, None, "SANDBOX_TEMPLATE_CONFLICT"),
        (IMAGE, CONTAINER, layer(image="node:24"), "SANDBOX_TEMPLATE_CONFLICT"),
        (IMAGE, LOCAL, None, "SANDBOX_TEMPLATE_CONFLICT"),
        (None, layer(backend="local", image="x"), None, "SANDBOX_TEMPLATE_CONFLICT"),
        (None, None, None, "SANDBOX_TEMPLATE_MISSING"),
        (None, CONTAINER, None, "SANDBOX_TEMPLATE_MISSING"),
        (IMAGE, None, None, "SANDBOX_TEMPLATE_MISSING"),
        (IMAGE, layer(backend="container", build="image"), None, "SANDBOX_TEMPLATE_CONFLICT"),
        (SandboxSpec(build="image"), WITH_IMAGE, None, "SANDBOX_TEMPLATE_CONFLICT"),
        (SandboxSpec(image="node:24", build="image"), CONTAINER, None, "SANDBOX_TEMPLATE_CONFLICT"),
        (SandboxSpec(build="image"), LOCAL, None, "SANDBOX_TEMPLATE_CONFLICT"),
        (SandboxSpec(backend="local"), CONTAINER, None, "SANDBOX_BACKEND_CONFLICT"),
        (SandboxSpec(files="a"), layer(backend="local", files="b"), None, "SANDBOX_FILES_CONFLICT"),
        (SandboxSpec(env_from=("A=B",)), layer(backend="local"), None, "VARIABLE_NOT_ALLOWED"),
        (SandboxSpec(env_from=("B", "A=B")), layer(backend="local"), None, "VARIABLE_NOT_ALLOWED"),
        (SandboxSpec(env_from=("A=B",)), layer(backend="local", env_from=("C",)), None, "VARIABLE_NOT_ALLOWED"),
    ],
)
def test_both_or_none_is_refused_naming_the_pair(
    eval_layer: SandboxSpec | None, experiment: SandboxLayer | None, arm: SandboxLayer | None, code: str
) -> None:
    with pytest.raises(SandboxFault, match="arm 'mine' × eval 'x'") as caught:
        resolve(eval_layer, experiment, arm)
    assert caught.value.code == code


def test_a_direct_agent_takes_no_layer_but_ignores_the_experiments_default() -> None:
    assert resolve(None, LOCAL, sandboxed=False) is None
    for spec, arm in ((IMAGE, None), (None, LOCAL)):
        with pytest.raises(SandboxFault) as caught:
            resolve(spec, None, arm, sandboxed=False)
        assert caught.value.code == "SANDBOX_UNEXPECTED"


def test_the_rest_of_the_layers_is_merged() -> None:
    resolved = resolve(
        SandboxSpec(
            image="i",
            files="fixture",
            setup=("own",),
            env={"A": "own", "B": "own"},
            env_from=("K", "L"),
            resources=Resources(cpus=1, memory=5),
        ),
        layer(backend="container", setup=["below"], env={"A": "below"}, env_from=["L", "M"], network="open", user="u"),
        layer(resources={"memory": "1GiB"}),
    )
    assert resolved == SandboxSpec(
        backend="container",
        image="i",
        files="/project/evals/fixture",
        setup=("own", "below"),
        env={"A": "own", "B": "own"},
        env_from=("L", "M", "K"),
        network="open",
        resources=Resources(cpus=1, memory=1 << 30),
        user="u",
    )


def test_files_of_the_experiment_start_from_its_folder() -> None:
    resolved = resolve(None, layer(backend="local", files="start"))
    assert resolved is not None
    assert resolved.files == "/experiment/start"


def test_a_folder_to_build_an_image_from_is_a_template() -> None:
    own = resolve(SandboxSpec(build="image", setup=("own",)), layer(backend="container", setup=["below"]))
    experiments = resolve(SandboxSpec(setup=("own",)), layer(backend="container", build="image", setup=["below"]))
    assert own is not None and experiments is not None
    assert (own.build, own.setup) == ("/project/evals/image", ("own", "below"))
    assert (experiments.build, experiments.setup) == ("/experiment/image", ("below", "own"))


def default(name: str | None) -> DefaultBackend:
    return DefaultBackend(name=name, why="the cluster does not say")


@pytest.mark.parametrize(
    ("eval_layer", "experiment", "arm", "chosen", "backend"),
    [
        (None, None, None, "bubblewrap", "bubblewrap"),
        (None, None, None, "local", "local"),
        (SandboxSpec(files="fixture"), layer(network="open"), None, "bubblewrap", "bubblewrap"),
        (None, LOCAL, None, "bubblewrap", "local"),
        (SandboxSpec(backend="local"), None, None, "bubblewrap", "local"),
        (None, CONTAINER, layer(backend="bubblewrap"), "local", "bubblewrap"),
        (IMAGE, CONTAINER, None, "bubblewrap", "container"),
        (IMAGE, None, None, "container", "container"),
    ],
)
def test_the_default_is_for_sandboxes_for_which_nobody_names_a_backend(
    eval_layer: SandboxSpec | None,
    experiment: SandboxLayer | None,
    arm: SandboxLayer | None,
    chosen: str,
    backend: str,
) -> None:
    resolved = resolve(eval_layer, experiment, arm, default=default(chosen))
    assert resolved is not None
    assert resolved.backend == backend
    plan = ArmPlan(name="mine", base="mine", settings=Arm(adapter="x", sandbox=arm), varied={}, layer=experiment)
    asked = names_no_backend(plan, EvalDefinition(body=lambda t: None, id="x", sandbox=eval_layer))
    assert asked == (resolve_without(eval_layer, experiment, arm) is None)


def resolve_without(*layers: Any) -> SandboxSpec | None:
    """As it is resolved where nothing is the default, None where that is refused."""
    try:
        return resolve(*layers)
    except SandboxFault:
        return None


@pytest.mark.parametrize(
    ("eval_layer", "chosen", "says"),
    [
        (IMAGE, "bubblewrap", "the default, 'bubblewrap', has no images, but 'python:3.12' is asked for; set sandbox."),
        (SandboxSpec(build="folder"), "local", "the default, 'local', has no images, but 'folder' is asked for"),
        (None, "container", "neither brings an image or a build for the backend 'container'"),
        (None, None, "which sandbox backend, and the cluster does not say; set sandbox.backend in the experiment"),
    ],
)
def test_a_default_that_does_not_do_is_refused(eval_layer: SandboxSpec | None, chosen: str | None, says: str) -> None:
    with pytest.raises(SandboxFault) as caught:
        resolve(eval_layer, default=default(chosen))
    assert caught.value.code == "SANDBOX_TEMPLATE_MISSING"
    assert says in str(caught.value)


def test_a_backend_that_is_named_and_the_default_of_that_name_have_one_fingerprint() -> None:
    def fields(spec: SandboxSpec | None) -> Any:
        return sandbox_parts(spec, {}, {}).fields

    named = fields(resolve(None, layer(backend="bubblewrap")))
    assert fields(resolve(default=default("bubblewrap"))) == named
    assert fields(resolve(default=default("local"))) != named
