"""The files that an eval judges by: found by the names it declares, and kept away from what its agent starts with."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from evalfleet.model.definition import SandboxSpec

_NAMED = 3
_WILD = frozenset("*?[")


class CriteriaFault(ValueError):
    """The declared criteria are not there, or not where they may be."""


def criteria_files(folder: Path, criteria: Sequence[str], project: Path) -> tuple[Path, ...]:
    """All files of the declared criteria, which start from `folder`. Raises CriteriaFault, naming what matches none.

    A folder stands for every file below it. None may lead out of the project.
    """
    found: dict[Path, None] = {}
    for text in criteria:
        files = list(matching(folder, text))
        if not files:
            raise CriteriaFault(f"criteria {text!r} matches no file")
        for file in files:
            if not Path(os.path.realpath(file)).is_relative_to(os.path.realpath(project)):
                raise CriteriaFault(f"criteria {text!r} leads out of the project: {file}")
        found |= dict.fromkeys(files)
    return tuple(sorted(found))


def matching(folder: Path, text: str) -> Iterator[Path]:
    """The files of one declared path or pattern, none when there are none."""
    paths = [Path(os.path.normpath(folder / text))] if _WILD.isdisjoint(text) else sorted(folder.glob(text))
    for path in paths:
        if path.is_dir():
            for parent, _, names in os.walk(path):
                yield from (Path(parent, name) for name in names)
        elif path.is_file():
            yield path


def leaks(spec: SandboxSpec, hidden: Iterable[Path]) -> Iterator[str]:
    """What the agent would find of `hidden` in what its sandbox starts with, a message for each place."""
    real = {Path(os.path.realpath(file)): file for file in hidden}
    for what, place in (("starting files", spec.files), ("build folder", spec.build)):
        if place is None:
            continue
        root = os.path.realpath(place)
        seen = sorted(path.relative_to(root).as_posix() for path in real if path.is_relative_to(root))
        if seen:
            more = f" and {len(seen) - _NAMED} more" if len(seen) > _NAMED else ""
            names = ", ".join(map(repr, seen[:_NAMED]))
            yield f"the sandbox's {what} {place!r} would show the agent what judges it: {names}{more}"
