"""What a source closure contains: everything of the project that an import reaches, by content."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from evalfleet.planning.sources import Sources
from tests.unit.planning.projects import write

FILES = {
    "evals/x.eval.py": "import json\nimport agents.tools\nfrom shared import prompts as p\n",
    "agents/__init__.py": "from . import registry\n",
    "agents/registry.py": "",
    "agents/tools/__init__.py": "from ..deep.leaf import value\nfrom .near import *\n",
    "agents/tools/near.py": "def f():\n    import importlib\n    return importlib.import_module('late')\n",
    "agents/deep/leaf.py": "import agents\n",
    "shared/prompts.py": "",
    "late.py": "",
    "unused.py": "",
}


def closure(project: Path) -> dict[str, str]:
    return Sources(project).closure([project / "evals/x.eval.py"])


def test_the_closure_follows_every_static_import(tmp_path: Path) -> None:
    assert list(closure(write(tmp_path, FILES))) == [
        "agents/__init__.py",
        "agents/deep/leaf.py",
        "agents/registry.py",
        "agents/tools/__init__.py",
        "agents/tools/near.py",
        "evals/x.eval.py",
        "late.py",
        "shared/prompts.py",
    ]


@pytest.mark.parametrize("name", sorted(FILES))
def test_an_edit_counts_exactly_when_the_file_is_reached(tmp_path: Path, name: str) -> None:
    before = closure(write(tmp_path, FILES))
    after = closure(write(tmp_path, {name: FILES[name] + "\n# edited\n"}))
    changed = {file for file in before if before[file] != after[file]}
    assert changed == ({name} if name != "unused.py" else set())


def test_where_the_project_lies_and_file_times_do_not_count(tmp_path: Path) -> None:
    first = write(tmp_path / "first", FILES)
    second = tmp_path / "elsewhere" / "second"
    shutil.copytree(first, second)
    for file in second.rglob("*.py"):
        os.utime(file, (1, 1))
    assert closure(first) == closure(second)


def test_a_module_that_appears_counts(tmp_path: Path) -> None:
    project = write(tmp_path, {"evals/x.eval.py": "try:\n    import extra\nexcept ImportError: ...\n"})
    before = closure(project)
    assert closure(write(project, {"extra.py": ""})).keys() - before.keys() == {"extra.py"}


def test_a_source_root_inside_the_project_is_searched(tmp_path: Path) -> None:
    project = write(
        tmp_path, {"evals/x.eval.py": "import pkg.agent\n", "src/pkg/agent.py": "", "src/pkg/__init__.py": ""}
    )
    found = Sources(project, [project / "src"]).closure([project / "evals/x.eval.py"])
    assert list(found) == ["evals/x.eval.py", "src/pkg/__init__.py", "src/pkg/agent.py"]


def test_a_file_that_does_not_parse_still_counts_by_content(tmp_path: Path) -> None:
    project = write(tmp_path, {"evals/x.eval.py": "import broken\n", "broken.py": "x = (\n"})
    before = closure(project)
    after = closure(write(project, {"broken.py": "x = ((\n"}))
    assert before["broken.py"] != after["broken.py"]


def test_a_tree_is_every_file_by_relative_path(tmp_path: Path) -> None:
    write(tmp_path, {"t/a/b.txt": "1", "t/c.bin": b"\0", "t/__pycache__/x.pyc": b"1"})
    (tmp_path / "t" / "dangling").symlink_to("nowhere")
    assert list(Sources(tmp_path).tree(tmp_path / "t")) == ["a/b.txt", "c.bin", "dangling"]
    assert list(Sources(tmp_path).tree(tmp_path / "t" / "c.bin")) == ["c.bin"]
