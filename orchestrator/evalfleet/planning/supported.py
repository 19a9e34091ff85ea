"""Which parts of an experiment this version acts on: the rest is refused by name, never ignored. Pure."""

from __future__ import annotations

from typing import Any, cast

from evalfleet.errors import Problem
from evalfleet.planning.yaml_source import Path, Source, resolve

#: What `--set` may change: limits and sampling, never the agent, the matrix or the judge.
OVERRIDABLE: tuple[tuple[str, ...], ...] = (
    ("limits",),
    ("budget",),
    ("rate",),
    ("stop",),
    ("retry",),
    ("repetitions",),
    ("evals", "limit"),
    ("evals", "seed"),
    ("telemetry",),
)

#: Keys with a meaning that this version does not act on; "*" stands for any name.
_UNSUPPORTED: tuple[tuple[str, ...], ...] = (
    ("stop", "precision"),
    ("hooks",),
    ("arms", "*", "telemetry"),
)
_REPORTERS = ("html", "parquet", "inspect")


def drop_unsupported(source: Source) -> tuple[dict[str, Any], list[Problem]]:
    """The document without the keys that this version does not act on, and a Problem for each that asks for something.

    Saying that a feature is absent (`hooks: null`, `stop: {early_exit: false}`) is accepted.
    """
    problems: list[Problem] = []
    value = cast("dict[str, Any]", source.value)
    for pattern in _UNSUPPORTED:
        value = _without(value, pattern, (), source, problems)
    if "stop" in value and not resolve(value["stop"]):
        value = {key: item for key, item in value.items() if key != "stop"}
    if isinstance(reporters := value.get("reporters"), list):
        names = cast("list[Any]", reporters)
        refused = [index for index, name in enumerate(names) if name in _REPORTERS]
        problems += [_refused(source, ("reporters", index), f"the reporter {names[index]!r}") for index in refused]
        stand_ins = ["text" if name in _REPORTERS else name for name in names]  # keeps the other places right
        value = value | {"reporters": stand_ins}
    return value, problems


def _without(
    value: dict[str, Any], pattern: tuple[str, ...], path: Path, source: Source, problems: list[Problem]
) -> dict[str, Any]:
    head, *rest = pattern
    result = dict(value)
    for key in list(value) if head == "*" else [head]:
        inner = value.get(key)
        if rest and isinstance(inner, dict):
            result[key] = _without(cast("dict[str, Any]", inner), tuple(rest), (*path, key), source, problems)
        elif not rest and key in value:
            del result[key]
            if resolve(inner) not in (None, False, {}, []):
                problems.append(_refused(source, (*path, key), f"{'.'.join((*map(str, path), key))!r}"))
    return result


def _refused(source: Source, path: Path, what: str) -> Problem:
    message = f"{what} is not supported by this version"
    return source.problem("NOT_SUPPORTED", message, path, hint="leave it out", at_key=True)
