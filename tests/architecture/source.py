"""Our source files as the rules see them: a path, its text and its syntax tree."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "evalfleet": ROOT / "orchestrator",
    "evalfleet_adapters": ROOT / "adapters",
    "evalfleet_sandboxes": ROOT / "sandboxes",
}
TOP_LEVEL = ("orchestrator", "adapters", "sandboxes", "evals", "deploy", "tests", "helm", "docs", "bench", ".ci")
NOT_OURS = {"__pycache__", ".peers", ".evalfleet", ".pytest_cache", ".ruff_cache", ".hypothesis"}


@dataclass(frozen=True)
class Import:
    """One imported name: `module` as written or resolved, `name` what a from-import takes of it."""

    module: str
    name: str | None
    line: int
    deferred: bool
    typing_only: bool

    @property
    def top(self) -> str:
        return self.module.split(".")[0]


@dataclass(frozen=True)
class Source:
    """One Python file. `module` is its import name."""

    path: str
    module: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @cached_property
    def imports(self) -> tuple[Import, ...]:
        return tuple(_imports(self.tree, self.module, deferred=False, typing_only=False))

    @property
    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node


def _imports(node: ast.AST, module: str, *, deferred: bool, typing_only: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(alias.name, None, child.lineno, deferred, typing_only)
        elif isinstance(child, ast.ImportFrom):
            parent = module.rsplit(".", child.level)[0] + "." if child.level else ""
            for alias in child.names:
                yield Import(
                    (parent + (child.module or "")).strip("."), alias.name, child.lineno, deferred, typing_only
                )
        else:
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            guarded = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
            yield from _imports(child, module, deferred=deferred or inside, typing_only=typing_only or guarded)


@cache
def product_sources() -> tuple[Source, ...]:
    """Every module of the three packages."""
    return tuple(
        Source(str(path.relative_to(ROOT)), module_name(path, root), path.read_text(encoding="utf-8"))
        for package, root in PACKAGES.items()
        for path in sorted((root / package).rglob("*.py"))
    )


def module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def committed_files() -> tuple[Path, ...]:
    """Every text file that belongs to the repository, found without git so that an archive passes too."""
    found = [path for path in ROOT.iterdir() if path.is_file()]
    for top in TOP_LEVEL:
        for directory, folders, names in os.walk(ROOT / top):
            folders[:] = sorted(set(folders) - NOT_OURS)
            found.extend(Path(directory, name) for name in names)
    return tuple(path for path in sorted(found) if b"\0" not in path.read_bytes()[:4096])
