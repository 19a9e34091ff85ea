"""The forms in which an Eval may be written; discovery knows them by this alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Protocol

from evalfleet.errors import Problem
from evalfleet.model.definition import EvalDefinition


class DefinitionSource(Protocol):
    """One such form: which files below `evals` have it, and what they define."""

    @property
    def owns_folder(self) -> bool:
        """Whether nothing below the folder of such a file is looked at: it is all a part of that file's Eval."""
        ...

    def claims(self, path: PurePosixPath) -> bool:
        """Whether the file at `path`, relative to the project's `evals`, is of this form."""
        ...

    def path_id(self, path: PurePosixPath) -> str | None:
        """The id that the file's place gives to all it defines; None when the file names itself."""
        ...

    def find(self, project: Path, file: Path, definition_id: str) -> Iterator[EvalDefinition | Problem]:
        """What `load` gives, or only the definition that is asked for."""
        ...

    def load(self, project: Path, file: Path) -> Iterator[EvalDefinition | Problem]:
        """What the file defines, in its order, each with its id; or what is wrong with it."""
        ...
