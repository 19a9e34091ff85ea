from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

from evalfleet.cli.starter_project import FILES
from evalfleet.planning.experiment_file import load_experiment
from evalfleet.plugins import adapter_factories

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Shell


def test_init_writes_a_project_and_says_what_to_do(shell: Shell, tmp_path: Path) -> None:
    target = tmp_path / "new" / "project"
    assert shell("init", str(target)) == 0
    assert {str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()} == set(FILES)
    assert f"orchestrate try {target}/experiment.yaml" in shell.out


def test_init_overwrites_nothing(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "experiment.yaml").write_text("mine")
    assert shell("init", str(tmp_path)) == 2
    assert shell.err == (f"error: {tmp_path}/experiment.yaml is there already: choose another directory, or move it\n")
    assert [path.name for path in tmp_path.iterdir()] == ["experiment.yaml"]
    assert (tmp_path / "experiment.yaml").read_text() == "mine"


def test_the_experiment_is_valid(tmp_path: Path, shell: Shell) -> None:
    shell("init", str(tmp_path))
    loaded = load_experiment(tmp_path / "experiment.yaml", {}, adapter_factories())
    assert [arm.name for arm in loaded.arms] == ["mine"]


def test_the_python_files_parse() -> None:
    for name, text in FILES.items():
        if name.endswith(".py"):
            ast.parse(text, name)
