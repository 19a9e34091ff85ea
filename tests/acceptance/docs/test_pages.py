"""The pages are true: every code block is a file of a project that runs, a command that prints what is shown below
it, a cell of a notebook, or a fragment that says why it is only shown. Run ids, times and column widths may differ.

A page begins in the folder `projects/<page>` beside this file, where there is one, else beside the shipped evals.
"""

from __future__ import annotations

import ast
import importlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from evalfleet.planning.experiment_file import load_experiment
from evalfleet.planning.suite_file import read_suite
from evalfleet.plugins import adapter_factories
from tests.acceptance.cli.conftest import Orchestrate
from tests.acceptance.conftest import ROOT
from tests.acceptance.docs.blocks import Block, blocks
from tests.acceptance.docs.walk import Walk, fits

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
PROJECTS = Path(__file__).parent / "projects"
#: Notebooks await at the top.
AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST

WITH_BLOCKS = [page for page in PAGES if "```" in page.read_text(encoding="utf-8")]
DONE = [page for page in WITH_BLOCKS if any(block.kind != "fragment" for block in blocks(page))]


@pytest.mark.parametrize("page", DONE, ids=lambda page: page.stem)
def test_what_a_page_says_happens(page: Path, orchestrate: Orchestrate, tmp_path: Path) -> None:
    project = PROJECTS / page.stem
    begun = shutil.ignore_patterns("__pycache__", "reports")
    if project.exists():
        shutil.copytree(project, tmp_path, dirs_exist_ok=True, ignore=begun)
    else:
        shutil.copytree(ROOT / "evals", tmp_path / "evals", ignore=begun)
    walk = Walk(tmp_path, orchestrate)
    walk.do(blocks(page))
    if project.exists():
        code, printed = walk.command("orchestrate try experiment.yaml")
        assert (code, printed[-1]) == (0, "accepted"), "\n".join(printed)


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=lambda page: page.stem)
def test_every_python_block_compiles_and_imports_what_exists(page: Path) -> None:
    for block in blocks(page):
        if block.language == "python":
            for node in ast.walk(compile(block.text, block.place, "exec", AWAIT)):
                assert not (missing := list(unknown(node))), f"{block.place}: there is no {missing}"


def unknown(node: ast.AST) -> Iterator[str]:
    """Names that an import asks of an installed package and that are not there; a project's own are not looked at."""
    if isinstance(node, ast.ImportFrom) and node.module and importlib.util.find_spec(node.module.split(".")[0]):
        module = importlib.import_module(node.module)
        yield from (f"{node.module}.{alias.name}" for alias in node.names if not hasattr(module, alias.name))


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=lambda page: page.stem)
def test_every_experiment_arm_and_suite_loads(page: Path, tmp_path: Path) -> None:
    for block in blocks(page):
        if block.argument.endswith(".suite.yaml"):
            suite = tmp_path / "one.suite.yaml"
            suite.write_text(block.text, encoding="utf-8")
            read_suite(suite)
        elif block.language == "yaml":
            head = "schema_version: 1\nname: arms\n" if block.text.startswith("arms:") else ""
            file = tmp_path / "experiment.yaml"
            file.write_text(head + block.text, encoding="utf-8")
            load_experiment(file, {}, adapter_factories())


def test_a_block_that_says_nothing_of_itself_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("x\n\n```python\nprint()\n```\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"page\.md:3: the block is no file"):
        blocks(page)


def test_the_kinds_of_blocks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- file: a/b.py -->\n```python\n1\n```\n\n<!-- fragment: for show -->\n```yaml\na: 1\n```\n"
        "```python\nprint(2)\n```\n```text\n2\n```\n```sh\norchestrate runs\n```\n",
        encoding="utf-8",
    )
    assert [(block.kind, block.argument, block.text) for block in blocks(page)] == [
        ("file", "a/b.py", "1\n"),
        ("fragment", "for show", "a: 1\n"),
        ("cell", "", "print(2)\n"),
        ("output", "", "2\n"),
        ("sh", "", "orchestrate runs\n"),
    ]


def test_the_comparison_sees_a_difference() -> None:
    assert fits(["a", "…", "c 2 ms"], ["a", "b", "b", "c 31.5 s"]) is None
    assert fits(["a", "c"], ["a", "b", "c"]) == "c"
    assert fits(["a"], ["a", "b"]) == "nothing more, but got: b"
    assert fits(["…", "92 %"], ["91 %"]) == "92 %"


def test_a_walk_fails_where_the_page_is_wrong(orchestrate: Orchestrate, tmp_path: Path) -> None:
    walk = Walk(tmp_path, orchestrate)
    with pytest.raises(AssertionError, match="page:1: orchestrate --version"):
        walk.do([Block("console", "", "console", "$ orchestrate --version\nno version\n", "page:1")])
    with pytest.raises(AssertionError, match="page:2: orchestrate show"):
        walk.do([Block("sh", "", "sh", "orchestrate show 0000000000\n", "page:2")])
    with pytest.raises(AssertionError, match="page:3: the cells print\n2"):
        walk.do([Block("cell", "", "python", "print(2)\n", "page:3"), Block("output", "", "text", "3\n", "page:4")])
