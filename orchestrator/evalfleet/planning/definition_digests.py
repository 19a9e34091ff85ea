"""Digests by name over everything a run's definition consists of: what a resumed run may not find changed. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from evalfleet.model.canonical import digest
from evalfleet.model.experiment import Experiment
from evalfleet.model.sandbox import DefaultBackend
from evalfleet.planning.arm_probe import PlannedArm
from evalfleet.planning.fingerprint import FingerprintParts
from evalfleet.planning.select import Narrowing
from evalfleet.planning.selected import DatasetRecord

#: Parts of an experiment that may change between submit and resume: they shape no attempt and no denominator.
_FREE = frozenset(
    {"name", "description", "limits", "budget", "rate", "retry", "writes", "accept", "reporters", "isolation", "reuse"}
    | {"redact"}
    | {"judge"}  # what of it shapes an attempt is a part of every eval that asks it
)
_FREE_OF_ARM = frozenset({"labels", "description"})


def definition_digests(
    experiment: Experiment,
    narrowing: Narrowing,
    arms: Sequence[PlannedArm],
    evals: Mapping[str, FingerprintParts],
    datasets: Sequence[DatasetRecord],
    default: DefaultBackend | None = None,
) -> dict[str, str]:
    """Digest by name: `arms.small.model`, `eval weather/brooklyn source`, `dataset data/sql.jsonl`."""
    result = dict(_experiment(experiment))
    named = [sorted(ids) for ids in (narrowing.only, narrowing.without)]
    result["command line"] = digest(
        [narrowing.prefixes, narrowing.tags, narrowing.arms, *(named if any(named) else [])]
    )
    for arm in arms:
        result |= {f"arm {arm.name} {field}": arm.parts.fields[field] for field in ("adapter", "agent", "target")}
    result |= _of_evals({name: parts.fields for name, parts in evals.items()})
    result |= {f"dataset {record.uri}": record.sha256 for record in datasets}
    if default is not None:  # else an unfinished run could be gone on with in another kind of sandbox
        result["default sandbox backend"] = digest(default.name)
    return result


def own_digests(digests: Mapping[str, str], evals: Mapping[str, FingerprintParts]) -> dict[str, str]:
    """The digests without those of evals, which a run records by eval anyway: of a suite there are very many."""
    named = _of_evals({name: parts.fields for name, parts in evals.items()})
    return {name: value for name, value in digests.items() if name not in named}


def recorded_digests(own: Mapping[str, str], evals: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """All digests again, from those that `own_digests` left and the fields of each eval; older runs kept all."""
    return {**_of_evals(evals), **own}


def _of_evals(evals: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    return {f"eval {name} {field}": value for name, fields in evals.items() for field, value in fields.items()}


def changed_definition(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """Names whose digests differ, or that stand on one side only, in the order of `after`."""
    return tuple(name for name in dict.fromkeys([*after, *before]) if before.get(name) != after.get(name))


def _experiment(experiment: Experiment) -> Iterator[tuple[str, str]]:
    for key, value in experiment.snapshot().items():
        if key == "arms":
            for name, arm in cast("dict[str, dict[str, Any]]", value).items():
                yield from (
                    (f"arms.{name}.{part}", digest(item)) for part, item in arm.items() if part not in _FREE_OF_ARM
                )
        elif key == "evals":
            yield from ((f"evals.{part}", digest(item)) for part, item in cast("dict[str, Any]", value).items())
        elif key not in _FREE:
            yield key, digest(value)
