"""Who brings the sandbox of a Case: exactly one of Eval and Experiment brings its template. Pure.

A template is an image, by its name or by the folder that it is built from; with a backend that has no images (`local`,
`bubblewrap`) the backend itself is one. Where nobody names a backend it is the run's default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from evalfleet.model.definition import EvalDefinition, Resources, SandboxSpec
from evalfleet.model.experiment import SandboxLayer
from evalfleet.model.sandbox import DefaultBackend
from evalfleet.planning.arms import ArmPlan

#: Backends that run on the host's own file system.
WITHOUT_IMAGES = frozenset({"local", "bubblewrap"})


class SandboxFault(ValueError):
    """The layers of a Case don't make one sandbox. `code` is the planning error's."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


def names_no_backend(arm: ArmPlan, definition: EvalDefinition) -> bool:
    """Whether a sandbox of this arm for this eval would have the default backend."""
    own = definition.sandbox or SandboxSpec()
    return not (_layer(arm).backend or own.backend)


def resolve_sandbox(
    arm: ArmPlan, definition: EvalDefinition, *, sandboxed: bool, folder: Path, default: DefaultBackend | None
) -> SandboxSpec | None:
    """The sandbox of the arm's Cases of this eval, None for a direct agent.

    `folder` is what the experiment's paths start from; `files` and `build` of the result are absolute, and its
    `backend` is always named, be it the `default` of the run. Raises SandboxFault.
    """
    if not sandboxed:
        return _direct(arm, definition)
    layer, own = _layer(arm), definition.sandbox or SandboxSpec()
    backend = _backend(arm, definition, layer, own) or _default(arm, definition, layer, own, default)
    _check_template(arm, definition, layer, own, backend)
    if foreign := _not_allowed(own.env_from, layer.env_from):
        message = f"{_pair(arm, definition)}: the eval takes {foreign} of the host: name it in sandbox.env_from"
        raise SandboxFault("VARIABLE_NOT_ALLOWED", message)
    if own.files and layer.files:
        raise SandboxFault("SANDBOX_FILES_CONFLICT", f"{_pair(arm, definition)}: both bring starting files")
    return SandboxSpec(
        backend=backend,
        image=own.image or layer.image,
        build=_path(definition, own.build, layer.build, folder),
        files=_path(definition, own.files, layer.files, folder),
        setup=(*layer.setup, *own.setup) if _template(layer) or not _template(own) else (*own.setup, *layer.setup),
        env={**layer.env, **own.env},
        env_from=tuple(dict.fromkeys([*layer.env_from, *own.env_from])),
        network=layer.network or own.network,
        resources=_resources(layer, own.resources),
        user=layer.user or own.user,
        changes=own.changes,
    )


def _layer(arm: ArmPlan) -> SandboxLayer:
    return (arm.settings.sandbox or SandboxLayer()).over(arm.layer)


def _not_allowed(asked: Sequence[str], allowed: Sequence[str]) -> str:
    """The variables that an eval takes under another name, and that the experiment does not name."""
    taken = [each.partition("=")[2].partition(":-") for each in asked if "=" in each]
    return ", ".join(name for name, default, _ in taken if name not in allowed and not default)


def _direct(arm: ArmPlan, definition: EvalDefinition) -> None:
    owner = definition.id if definition.sandbox is not None else arm.base if arm.settings.sandbox is not None else None
    if owner is not None:
        message = f"{_pair(arm, definition)}: {owner!r} declares a sandbox, but the agent doesn't live in one"
        raise SandboxFault("SANDBOX_UNEXPECTED", message)


def _backend(arm: ArmPlan, definition: EvalDefinition, layer: SandboxLayer, own: SandboxSpec) -> str | None:
    if layer.backend and own.backend and layer.backend != own.backend:
        message = f"{_pair(arm, definition)}: the experiment says {layer.backend!r}, the eval {own.backend!r}"
        raise SandboxFault("SANDBOX_BACKEND_CONFLICT", message)
    return layer.backend or own.backend


def _default(
    arm: ArmPlan, definition: EvalDefinition, layer: SandboxLayer, own: SandboxSpec, default: DefaultBackend | None
) -> str:
    """The default backend. One without images is no choice where an image is asked for: something else would run."""
    says = f"{_pair(arm, definition)}: neither says which sandbox backend"
    if default is None or default.name is None:
        why = "" if default is None else f", and {default.why}"
        raise SandboxFault("SANDBOX_TEMPLATE_MISSING", f"{says}{why}; set sandbox.backend in the experiment")
    if default.name in WITHOUT_IMAGES and (template := _template(layer) or _template(own)):
        what = f"{says}, and the default, {default.name!r}, has no images, but {template!r} is asked for"
        message = f"{what}; set sandbox.backend to one that has, such as 'container'"
        raise SandboxFault("SANDBOX_TEMPLATE_MISSING", message)
    return default.name


def _check_template(
    arm: ArmPlan, definition: EvalDefinition, layer: SandboxLayer, own: SandboxSpec, backend: str
) -> None:
    pair = _pair(arm, definition)
    if backend in WITHOUT_IMAGES:
        if template := _template(layer) or _template(own):
            what = f"{pair}: the backend {backend!r} has no images, but {template!r} is asked for"
            message = f"{what}; take one that has, such as 'container'"
            raise SandboxFault("SANDBOX_TEMPLATE_CONFLICT", message)
    elif len(templates := [part for side in (layer, own) for part in (side.image, side.build) if part]) > 1:
        message = f"{pair}: more than one image or build, {' and '.join(map(repr, templates))}; exactly one may be"
        raise SandboxFault("SANDBOX_TEMPLATE_CONFLICT", message)
    elif not templates:
        message = f"{pair}: neither brings an image or a build for the backend {backend!r}"
        raise SandboxFault("SANDBOX_TEMPLATE_MISSING", message)


def _template(side: SandboxLayer | SandboxSpec) -> str | None:
    return side.image or side.build


def _path(definition: EvalDefinition, own: str | None, layers: str | None, folder: Path) -> str | None:
    """What the eval names starts from its file, what the experiment names from its folder."""
    if own:
        base = definition.place.file.parent if definition.place else folder
        return str(base / own)
    return str(folder / layers) if layers else None


def _resources(layer: SandboxLayer, own: Resources) -> Resources:
    limits: Mapping[str, float | int | None] = layer.resources.model_dump() if layer.resources else {}

    def limit(name: str) -> float | int | None:
        value = limits.get(name)
        return getattr(own, name) if value is None else value

    memory, pids, disk = limit("memory"), limit("pids"), limit("disk")
    return Resources(
        cpus=limit("cpus"),
        memory=None if memory is None else int(memory),
        pids=None if pids is None else int(pids),
        disk=None if disk is None else int(disk),
    )


def _pair(arm: ArmPlan, definition: EvalDefinition) -> str:
    return f"arm {arm.name!r} × eval {definition.id!r}"
