"""Where in a suite's document something is wrong: as `scenarios.0.steps.1.id`, and by the nearest ids. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from difflib import get_close_matches
from typing import Any, Protocol, TypeAlias, cast

from evalfleet.errors import Problem
from evalfleet.suites.schema import ID_PATTERN

Path: TypeAlias = tuple[str | int, ...]

KINDS = frozenset({"check", "all", "any", "not", "custom", "judge"})

_OWNERS = {"scenarios": "scenario", "steps": "step", "variants": "variant", "assertions": "assertion"}


class ProblemAt(Protocol):
    """Makes a Problem of a place in a document: by its path alone, or with file, line and column."""

    def __call__(
        self, code: str, message: str, path: Path, *, hint: str | None = None, at_key: bool = False
    ) -> Problem: ...


def problem_at(code: str, message: str, path: Path, *, hint: str | None = None, at_key: bool = False) -> Problem:
    """A Problem of a document that has no file."""
    return Problem(code, message, field=dotted(path) or None, hint=hint)


def dotted(path: Path) -> str:
    return ".".join(map(str, path))


def within(document: Any, path: Path) -> str:
    """The ids on the way to `path`, as `[scenario checkout, step pay]` after a space; empty where there are none."""
    names: dict[str, str] = {}
    value = document
    for index, part in enumerate(path):
        value = child(value, part)
        owner = _OWNERS.get(str(path[index - 1])) if isinstance(part, int) and index else None
        owner = "assertion" if part == "assertion" else owner
        identifier = child(value, "id")
        if owner is not None and isinstance(identifier, str) and re.fullmatch(ID_PATTERN, identifier):
            names[owner] = identifier
    return f" [{', '.join(f'{owner} {name}' for owner, name in names.items())}]" if names else ""


def of_models(loc: tuple[str | int, ...]) -> Path:
    """The document's path of a pydantic location: without the kind that names the member of a union."""
    path: Path = ()
    for part in loc:
        criterion = bool(path) and (
            path[-1] == "assertion" or (isinstance(path[-1], int) and (len(path) == 1 or path[-2] == "assertions"))
        )
        if not (criterion and part in KINDS):
            path = (*path, part)
    return path


def child(value: Any, part: str | int) -> Any:
    """What stands below `value`, None when nothing does."""
    if isinstance(value, dict):
        return cast("dict[Any, Any]", value).get(part)
    if isinstance(value, list) and isinstance(part, int):
        items = cast("list[Any]", value)
        return items[part] if part < len(items) else None
    return None


def at(value: Any, path: Path) -> Any:
    """What stands at `path`, None when nothing does."""
    for part in path:
        value = child(value, part)
    return value


def nearest(name: Any, valid: Collection[str]) -> str | None:
    """The valid name that was probably meant, as a hint; never the name that was written."""
    close = get_close_matches(name, sorted(valid), n=1, cutoff=0.6) if isinstance(name, str) else []
    return f"did you mean {close[0]!r}?" if close else None
