"""Content of source closures: a Python file with everything of the project that it imports, statically."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from evalfleet.model.ids import sha256

_SKIPPED = frozenset({"__pycache__", "node_modules", ".git", ".venv"})
_DYNAMIC = frozenset({"import_module", "__import__"})


class Sources:
    """Digests of files and import closures below `roots`; each file is read and parsed once.

    Found: `import`, `from … import`, relative imports, the `__init__` of every package on the way, and
    `import_module("…")` with a literal name. Not found: what is installed, and files read as data.
    """

    def __init__(self, project: Path, roots: Sequence[Path] = ()) -> None:
        self._project = project
        self._roots = tuple(dict.fromkeys([project, *roots]))
        self._digests: dict[Path, str] = {}
        self._imports: dict[Path, tuple[Path, ...]] = {}

    def closure(self, files: Iterable[Path]) -> dict[str, str]:
        """The digest of each file that `files` reach, by path relative to the project, sorted."""
        pending = [file.resolve() for file in files]
        seen: dict[Path, str] = {}
        while pending:
            file = pending.pop()
            if file not in seen:
                seen[file] = self._read(file)
                pending.extend(self._imports[file])
        return dict(sorted((self._name(file), digest) for file, digest in seen.items()))

    def tree(self, folder: Path) -> dict[str, str]:
        """The digest of every file below `folder` (or of the file `folder`), by path relative to it, sorted."""
        if folder.is_file():
            return {folder.name: _file_digest(folder)}
        return dict(sorted((file.relative_to(folder).as_posix(), _file_digest(file)) for file in _walk(folder)))

    def contents(self, files: Iterable[Path]) -> dict[str, str]:
        """The digest of each file by path relative to the project, sorted."""
        return dict(sorted((self._name(file), _file_digest(file)) for file in files))

    def _read(self, file: Path) -> str:
        if file not in self._digests:
            try:
                source = file.read_bytes()
            except OSError:  # gone since it was found: its absence is what there is to say
                source = b""
            self._digests[file] = sha256(source)
            self._imports[file] = tuple(self._imported(source, file)) if file.suffix == ".py" else ()
        return self._digests[file]

    def _imported(self, source: bytes, file: Path) -> Iterator[Path]:
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError):
            return
        for node in ast.walk(tree):
            for base, name in _names(node, file):
                yield from self._files(base, name)

    def _files(self, base: Path | None, name: str) -> Iterator[Path]:
        """The files that importing the dotted `name` runs, from `base` or else from the roots."""
        parts = name.split(".") if name else []
        for root in self._roots if base is None else (base,):
            folder = root
            for part in parts:
                folder = folder / part
                for candidate in (folder.with_name(f"{part}.py"), folder / "__init__.py"):
                    if candidate.is_file():
                        yield candidate.resolve()

    def _name(self, file: Path) -> str:
        return file.relative_to(self._project).as_posix() if file.is_relative_to(self._project) else file.name


def _names(node: ast.AST, file: Path) -> Iterator[tuple[Path | None, str]]:
    if isinstance(node, ast.Import):
        yield from ((None, alias.name) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = None if node.level == 0 else file.parents[min(node.level, len(file.parents)) - 1]
        prefix = f"{node.module}." if node.module else ""
        yield base, prefix.removesuffix(".")
        yield from ((base, prefix + alias.name) for alias in node.names if alias.name != "*")
        if base is not None and (base / "__init__.py").is_file():
            yield base, "__init__"
    elif isinstance(node, ast.Call) and node.args and _called(node.func) in _DYNAMIC:
        literal = node.args[0]
        if isinstance(literal, ast.Constant) and isinstance(literal.value, str) and not literal.value.startswith("."):
            yield None, literal.value


def _called(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def source_roots(project: Path) -> list[Path]:
    """Folders inside the project that Python imports from, such as the `src` of an editable installation."""
    found = [Path(entry).resolve() for entry in sys.path if entry]
    inside = [folder for folder in found if folder.is_relative_to(project) and folder.is_dir()]
    return [folder for folder in inside if "site-packages" not in folder.parts]


def _walk(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in _SKIPPED]
        yield from (Path(parent, name) for name in names)


def _file_digest(file: Path) -> str:
    if file.is_symlink() and not file.exists():
        return sha256(os.readlink(file).encode(errors="surrogateescape"))
    return sha256(file.read_bytes())


def combined(digests: Mapping[str, str]) -> str:
    """One digest over named digests."""
    return sha256("\n".join(f"{name} {digest}" for name, digest in sorted(digests.items())).encode())
