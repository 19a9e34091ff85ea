"""Finds the Evals of a project: imports every eval file once and reports everything wrong together."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from evalfleet.errors import DefinitionError, Problem
from evalfleet.model.definition import EvalDefinition
from evalfleet.planning.eval_ids import part_fault, shown
from evalfleet.planning.eval_module import exported, import_eval

SUFFIX = ".eval.py"
FOLDER_ENTRY = "eval.py"
PROMPT = "PROMPT.md"
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
    """Import every eval file below `project/evals`. Raises DefinitionError with all problems of the batch."""
    project = project.resolve()
    problems: list[Problem] = []
    definitions: list[EvalDefinition] = []
    files: dict[str, Path] = {}
    owners: dict[str, Path] = {}
    make_importable(project)
    for file in eval_files(project):
        file_id = _file_id(project, file)
        if (other := owners.setdefault(file_id, file)) != file:
            names = f"{_relative(project, other)} and {_relative(project, file)}"
            problems.append(_problem("DUPLICATE_ID", f"{names} both define the id {file_id!r}", file))
            continue
        if fault := _path_fault(file_id):
            problems.append(_problem("INVALID_ID", fault, file))
            continue
        found = _load(project, file, file_id)
        problems.extend(item for item in found if isinstance(item, Problem))
        for definition in found:
            if not isinstance(definition, Problem):
                definitions.append(definition)
                files[definition.id] = file
    problems.extend(_clashes(project, files))
    if problems:
        raise DefinitionError("INVALID_EVALS" if len(problems) > 1 else problems[0].code, problems)
    return Catalog(project=project, definitions=tuple(definitions), files=files)


def load_definition(project: Path, file: Path, definition_id: str) -> EvalDefinition:
    """One definition of one file, for a worker: no other eval file is imported.

    A file whose source is unchanged since this process imported it is not imported again. Raises
    DefinitionError when the file is broken or defines no such id.
    """
    project = project.resolve()
    file = Path(os.path.normpath(project / file))  # a link stays where it is: its place gives the id
    make_importable(project)
    for found in _load(project, file, _file_id(project, file)):
        if isinstance(found, Problem):
            raise DefinitionError(found.code, [found])
        if found.id == definition_id:
            return found
    problem = _problem("UNKNOWN_EVAL", f"the file defines no eval {definition_id!r}", file)
    raise DefinitionError(problem.code, [problem])


def eval_files(project: Path) -> Iterator[Path]:
    """Every eval file below `project/evals`, in lexicographic order of their paths."""
    found: list[Path] = []
    for folder, folders, names in os.walk(project / "evals"):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _SKIPPED]
        found += [
            Path(folder, name)
            for name in names
            if not name.startswith(".")
            and (name.endswith(SUFFIX) or (name == FOLDER_ENTRY and Path(folder) != project / "evals"))
        ]
    return iter(sorted(found, key=lambda file: file.relative_to(project).as_posix()))


def _load(project: Path, file: Path, file_id: str) -> list[EvalDefinition | Problem]:
    module = import_eval(project, file)
    if isinstance(module, Problem):
        return [module]
    fixture = file.parent if file.name == FOLDER_ENTRY and (file.parent / PROMPT).is_file() else None
    return list(exported(module, file, file_id, fixture))


def _file_id(project: Path, file: Path) -> str:
    relative = file.relative_to(project / "evals").as_posix()
    return relative.removesuffix(SUFFIX) if file.name != FOLDER_ENTRY else relative.removesuffix("/" + FOLDER_ENTRY)


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
