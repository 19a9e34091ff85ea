"""The arms of a run: an experiment's arms multiplied by its matrix. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, cast

from evalfleet.model.experiment import Arm, Experiment, SandboxLayer
from evalfleet.planning.expand import shown

#: Fields of an arm that a matrix may not vary: they identify or describe the arm.
_FIXED = frozenset({"adapter", "labels", "description", "target"})

#: More arms than this are a slip of the pen; refused before any of them is made.
MAX_ARMS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmPlan:
    """One arm of the run. `base` names the arm of the experiment, `varied` what the matrix set, by dotted path.

    `sandbox` is the arm's own layer; `layer` the experiment's beneath it.
    """

    name: str
    base: str
    settings: Arm
    varied: Mapping[str, Any]
    layer: SandboxLayer | None


class MatrixError(ValueError):
    """A matrix entry can't be applied. `path` is the place in the experiment."""

    def __init__(self, path: tuple[str | int, ...], message: str) -> None:
        self.path = path
        super().__init__(message)


def planned_arms(experiment: Experiment) -> tuple[ArmPlan, ...]:
    """Every arm × matrix combination in experiment order. Raises MatrixError; pydantic's ValidationError for a value.

    A derived name is the arm's followed by the varied values (`mine-concise`), in the matrix's order.
    """
    _check_size(experiment)
    names: dict[str, str] = {}
    arms: list[ArmPlan] = []
    for base, settings in experiment.arms.items():
        for varied in _combinations(experiment.matrix):
            name = "-".join([base, *(_slug(value) for value in varied.values())])
            if name in names:
                where = ("matrix",) if varied else ("arms", base)
                raise MatrixError(where, f"two arms are named {name!r}, from {names[name]!r} and {base!r}")
            names[name] = base
            layer = experiment.sandbox
            arms.append(ArmPlan(name=name, base=base, settings=_vary(settings, varied), varied=varied, layer=layer))
    return tuple(arms)


def check_matrix(matrix: Mapping[str, tuple[Any, ...]]) -> Iterator[MatrixError]:
    """What is wrong with the matrix itself, whatever the arms."""
    for path, values in matrix.items():
        head = path.split(".")[0]
        if head in _FIXED or not all(path.split(".")):
            yield MatrixError(
                ("matrix", path), f"{path!r} can't be varied: use model, flags.<name> or an adapter option"
            )
        seen: set[str] = set()
        for index, slug in enumerate(_slug(value) for value in values):
            if slug in seen:
                yield MatrixError(("matrix", path, index), f"two values give the same arm name part {slug!r}")
            seen.add(slug)


def _check_size(experiment: Experiment) -> None:
    sizes = {"arms": len(experiment.arms), **{path: len(values) for path, values in experiment.matrix.items()}}
    total = prod(sizes.values())
    if total > MAX_ARMS:
        factors = " × ".join(f"{name} {shown(size)}" for name, size in sizes.items())
        message = f"{shown(total)} arms = {factors}; a run has at most {shown(MAX_ARMS)}: vary less at a time"
        raise MatrixError(("matrix",) if experiment.matrix else ("arms",), message)


def _combinations(matrix: Mapping[str, tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    for values in product(*matrix.values()):
        yield dict(zip(matrix, values, strict=True))


def _vary(arm: Arm, varied: Mapping[str, Any]) -> Arm:
    if not varied:
        return arm
    data = arm.model_dump(mode="json", exclude_defaults=True)
    for path, value in varied.items():
        *parents, last = path.split(".")
        place = data
        for parent in parents:
            inner = place.setdefault(parent, {})
            if not isinstance(inner, dict):
                raise MatrixError(
                    ("matrix", path), f"{parent!r} is not a mapping in arm options, so nothing below it varies"
                )
            place = cast("dict[str, Any]", inner)
        place[last] = value
    return Arm.model_validate_json(json.dumps(data))


def _slug(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return re.sub(r"[^A-Za-z0-9._+@=]+", "-", text).strip("-") or "empty"
