"""The files beside the code: documents that name what exists, nothing of one machine, a surface on purpose."""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import evalfleet
from tests.architecture.source import ROOT, TOP_LEVEL, committed_files

DOCUMENTS = [path for path in committed_files() if path.suffix == ".md"]

FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"`([^`\s]+)`")
LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)]*)?\)")
AT_ROOT = re.compile(
    r"Makefile|LICENSE|(?:README|ARCHITECTURE|GLOSSARY|CONTRIBUTING|CHANGELOG)\.md|pyproject\.toml|constraints\.txt"
)
EXTRA = re.compile(r"evalfleet\[([a-z]+)\]")
TARGET = re.compile(r"^\s*make ([a-z-]+)", re.MULTILINE)
QUOTED_TARGET = re.compile(r"`make ([a-z-]+)`")
PLACEHOLDER = re.compile(r"[<>*{}$…]|NNN|\.\.\.")

#: Written with a bracket inside so that this file does not match itself.
OF_ONE_MACHINE = re.compile(
    r"/wo[r]k/|/roo[t]/|/op[t]/(?:wheels|pypi)|pythonhoste[d]\.org|pypi\.or[g]/simple|"
    r"registry\.npmj[s]|prox[y]\.golang|--index-ur[l]|--extra-index-ur[l]|\.pyen[v]/"
)


def named_paths(text: str) -> Iterator[str]:
    """Paths that prose names in quotes: those below a top-level directory, and capital files at the root."""
    for quoted in QUOTED.findall(FENCE.sub("", text)):
        path = quoted.split("::")[0].rstrip(".,")
        below = path.split("/")[0] in TOP_LEVEL and "/" in path
        if (below or AT_ROOT.fullmatch(path)) and not PLACEHOLDER.search(path):
            yield path


def of_the_reader(document: Path, path: str) -> bool:
    """In the user guide `evals/` is the reader's own project."""
    return document.parent == ROOT / "docs" and path.startswith("evals/")


def make_targets(text: str) -> Iterator[str]:
    """Targets that prose quotes or a fenced block runs."""
    yield from QUOTED_TARGET.findall(text)
    for fence in FENCE.finditer(text):
        yield from TARGET.findall(fence.group())


def links(text: str) -> Iterator[str]:
    """Targets of relative links."""
    for target in LINK.findall(FENCE.sub("", text)):
        if "://" not in target and not target.startswith("mailto:"):
            yield target


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_path_and_make_target_that_a_document_names_exists(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    gone = [path for path in named_paths(text) if not (ROOT / path).exists() and not of_the_reader(document, path)]
    gone += [link for link in links(text) if not (document.parent / link).exists()]
    gone += [f"make {target}" for target in make_targets(text) if target not in targets]
    assert not gone, ", ".join(gone)


def test_the_path_rule_sees_a_dead_path() -> None:
    text = "See `docs/gone.md`, `evals/<path>.eval.py` and [x](gone/y.md).\n```\n`docs/fenced.md`\n```\n"
    assert list(named_paths(text)) == ["docs/gone.md"]
    assert list(links(text)) == ["gone/y.md"]
    assert list(make_targets("make it\n```\nmake x  # why\n```\nand `make y`")) == ["y", "x"]


def test_no_committed_file_speaks_of_one_machine_or_one_registry() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match.group()}"
        for path in committed_files()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if (match := OF_ONE_MACHINE.search(line))
    ]
    assert not found, "\n".join(found)


def test_top_level_directories_are_not_packages() -> None:
    """A package called `adapters` or `evals` would overwrite the installed one of that name (docs/adr/001)."""
    roots = [top for top in TOP_LEVEL if top not in ("tests", "bench")]
    assert [top for top in roots if (ROOT / top / "__init__.py").exists()] == []


def test_the_public_surface_is_deliberate_and_lazy_names_are_what_type_checkers_see() -> None:
    """`__all__`, the lazy loader's table and the imports that only type checkers read name the same things."""
    tree = ast.parse(Path(evalfleet.__file__).read_text(encoding="utf-8"))
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name: node.module for node in guarded.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    loaded = {name: getattr(evalfleet, name) for name in evalfleet.__all__}
    assert sorted(seen) == sorted(loaded) == sorted(dir(evalfleet))
    for name, module in seen.items():
        assert loaded[name] is getattr(importlib.import_module(module), name)


def test_every_extra_that_a_text_names_can_be_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    files = [*DOCUMENTS, *(path for path in committed_files() if path.suffix == ".py" and path != Path(__file__))]
    named = {extra for path in files for extra in EXTRA.findall(path.read_text(encoding="utf-8"))}
    assert named and named <= project["optional-dependencies"].keys()


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="define_evil"):
        evalfleet.define_evil  # noqa: B018 - looking it up is the point
