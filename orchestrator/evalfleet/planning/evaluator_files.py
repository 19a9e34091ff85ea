"""The evaluators that a suite can name: those of its project's `evaluators.py` files, and installed ones."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from evalfleet.errors import DefinitionError, Problem
from evalfleet.planning.eval_module import import_eval
from evalfleet.plugins import evaluator_functions
from evalfleet.suites.registry import declared

FILE = "evaluators.py"

DUPLICATE = "DUPLICATE_EVALUATOR"


def evaluators_beside(suite: Path, evals: Path) -> Mapping[str, Callable[..., Any]]:
    """The evaluators of a suite's folder and of those above it up to `evals`, and the installed ones, by name.

    An installed one is imported when it is looked up. Raises DefinitionError for a file that can't be imported, and
    DUPLICATE_EVALUATOR for a name that stands twice.
    """
    found: dict[str, Callable[..., Any]] = {}
    owners: dict[str, Path] = {}
    problems: list[Problem] = []
    for file in _files(suite, evals):
        module = import_eval(evals.parent, file)
        if isinstance(module, Problem):
            problems.append(module)
            continue
        for name, functions in declared(vars(module).values()).items():
            if (name in owners and found[name] not in functions) or len(functions) > 1:
                problems.append(_twice(name, owners.get(name, file), file))
            found.setdefault(name, functions[0])
            owners.setdefault(name, file)
    installed = evaluator_functions()
    problems += [_twice(name, "an installed package", owners[name]) for name in found if name in installed]
    if problems:
        raise DefinitionError(problems[0].code, problems)
    return ChainMap(found, cast("Any", installed))  # it is only read


def _files(suite: Path, evals: Path) -> list[Path]:
    """From `evals` down to the suite's own folder."""
    folders = [folder for folder in (suite.parent, *suite.parent.parents) if folder.is_relative_to(evals)]
    return [folder / FILE for folder in reversed(folders) if (folder / FILE).is_file()]


def _twice(name: str, one: Path | str, other: Path) -> Problem:
    where = f"in {one} and here" if one != other else "in this file"
    return Problem(DUPLICATE, f"two evaluators are called {name!r}: {where}", str(other), hint="rename one")
