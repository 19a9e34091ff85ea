"""Finds the Evals of a project: loads every file that defines some, once, and reports everything wrong together."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath

from evalfleet.errors import DefinitionError, Problem
from evalfleet.harbor.source import HarborTasks
from evalfleet.model.definition import EvalDefinition
from evalfleet.planning.definition_source import DefinitionSource
from evalfleet.planning.eval_ids import part_fault, shown
from evalfleet.planning.eval_module import PythonEvals
from evalfleet.planning.suite_source import SuiteFiles

#: The forms in which an Eval may be written.
_SOURCES: tuple[DefinitionSource, ...] = (PythonEvals(), SuiteFiles(), HarborTasks())

_SKIPPED = frozenset({"__pycache__", "node_modules", "venv"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """The discovered Evals of one project, ordered by file and then as the file lists them.

    `files` maps each definition's id to its file.
    """

    project: Path
    definitions: tuple[EvalDefinition, ...]
    files: dict[str, Path]


def find_project(start: Path) -> Path:
    """The nearest folder at or above `start` that holds an `evals` folder, else the folder of `start`."""
    folder = start if start.is_dir() else start.parent
    folder = folder.resolve()
    for candidate in (folder, *folder.parents):
        if (candidate / "evals").is_dir():
            return candidate
    return folder


def discover(project: Path) -> Catalog:
    """Load every eval file below `project/evals`. Raises DefinitionError with all problems of the batch."""
    project = project.resolve()
    problems: list[Problem] = []
    definitions: list[EvalDefinition] = []
    files: dict[str, Path] = {}
    places: dict[str, Path] = {}
    make_importable(project)
    for file in eval_files(project):
        relative = _below_evals(project, file)
        source = _source_of(relative)
        place = source.path_id(relative)
        if place is not None and (other := places.setdefault(place, file)) != file:
            problems.append(_both_define(project, place, other, file))
            continue
        if place is not None and (fault := _path_fault(place)):
            problems.append(_problem("INVALID_ID", fault, file))
            continue
        for found in source.load(project, file):
            if isinstance(found, Problem):
                problems.append(found)
            elif (other := files.setdefault(found.id, file)) != file:
                problems.append(_both_define(project, found.id, other, file))
            else:
                definitions.append(found)
    problems.extend(_clashes(project, files))
    if problems:
        raise DefinitionError("INVALID_EVALS" if len(problems) > 1 else problems[0].code, problems)
    return Catalog(project=project, definitions=tuple(definitions), files=files)


def load_definition(project: Path, file: Path | str, definition_id: str) -> EvalDefinition:
    """One definition of one file, for a worker: no other eval file is imported.

    A file whose source is unchanged since this process imported it is not imported again. Raises
    DefinitionError when the file is broken or defines no such id.
    """
    project, file, source = _located(str(project.absolute()), str(file))
    make_importable(project)
    for found in source.find(project, file, definition_id):
        if isinstance(found, Problem):
            raise DefinitionError(found.code, [found])
        if found.id == definition_id:
            return found
    problem = _problem("UNKNOWN_EVAL", f"the file defines no eval {definition_id!r}", file)
    raise DefinitionError(problem.code, [problem])


@lru_cache(maxsize=256)
def _located(project: str, file: str) -> tuple[Path, Path, DefinitionSource]:
    """The project's folder, the file and the form it has: of a suite a worker asks for each of its scenarios."""
    folder = Path(project).resolve()
    path = Path(os.path.normpath(folder / file))  # a link stays where it is: its place gives the id
    return folder, path, _source_of(_below_evals(folder, path))


def eval_files(project: Path) -> Iterator[Path]:
    """Every file below `project/evals` that defines Evals, in lexicographic order of their paths."""
    found: list[Path] = []
    for folder, folders, names in os.walk(project / "evals"):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _SKIPPED]
        below = PurePosixPath(Path(folder).relative_to(project / "evals").as_posix())
        claimed = [name for name in names if not name.startswith(".") and _claimed(below / name)]
        if any(_source_of(below / name).owns_folder for name in claimed):
            folders.clear()
        found += [Path(folder, name) for name in claimed]
    return iter(sorted(found, key=lambda file: file.relative_to(project).as_posix()))


def _claimed(path: PurePosixPath) -> bool:
    return any(source.claims(path) for source in _SOURCES)


def _source_of(path: PurePosixPath) -> DefinitionSource:
    return next((source for source in _SOURCES if source.claims(path)), _SOURCES[0])


def _below_evals(project: Path, file: Path) -> PurePosixPath:
    return PurePosixPath(file.relative_to(project / "evals").as_posix())


def _both_define(project: Path, identifier: str, one: Path, other: Path) -> Problem:
    names = f"{_relative(project, one)} and {_relative(project, other)}"
    return _problem("DUPLICATE_ID", f"{names} both define the id {identifier!r}", other)


def _path_fault(file_id: str) -> str | None:
    for part in file_id.split("/"):
        if fault := part_fault(part):
            return f"the part {shown(part)} of its id {fault}"
    return None


def _clashes(project: Path, files: dict[str, Path]) -> Iterator[Problem]:
    """Ids of one file that lie below the id of another: `sql.eval.py` with rows and `sql/0000.eval.py`."""
    for definition_id, file in files.items():
        parents = definition_id.split("/")[:-1]
        for end in range(1, len(parents) + 1):
            other = files.get("/".join(parents[:end]))
            if other is not None and other != file:
                names = f"{_relative(project, other)} and {_relative(project, file)}"
                message = f"{names}: the id {definition_id!r} lies below another eval's"
                yield _problem("DUPLICATE_ID", message, file)


def make_importable(project: Path) -> None:
    """Let eval files and agents import the project's modules, in this process and wherever it was started."""
    if str(project) not in sys.path:
        sys.path.insert(0, str(project))


def _relative(project: Path, file: Path) -> str:
    return file.relative_to(project).as_posix()


def _problem(code: str, message: str, file: Path) -> Problem:
    return Problem(code, message, str(file))
