from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Shell

WEATHER = """
from evalfleet.planning.define import define_eval

@define_eval(description="Looks it up", tags=["smoke", "fast"])
async def brooklyn(t): ...
"""
SQL = """
from evalfleet.planning.dataset import Dataset
from evalfleet.planning.define import define_score_eval

@define_score_eval(dataset=Dataset.jsonl("rows.jsonl"))
async def sql(t, row): ...
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "evals/weather").mkdir(parents=True)
    (tmp_path / "evals/weather/brooklyn.eval.py").write_text(WEATHER)
    (tmp_path / "evals/sql.eval.py").write_text(SQL)
    (tmp_path / "evals/rows.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
    return tmp_path


def test_list(shell: Shell, project: Path) -> None:
    assert shell("list", "--project", str(project)) == 0
    assert [line.split() for line in shell.out.splitlines()] == [
        ["eval", "style", "rows", "tags", "description"],
        ["sql", "score", "2"],
        ["weather/brooklyn", "pass", "smoke,", "fast", "Looks", "it", "up"],
    ]
    assert shell.err == "2 evals, 3 cases for each arm and repetition\n"


def test_list_narrows_by_prefix_and_speaks_json(shell: Shell, project: Path) -> None:
    assert shell("list", "wea", "--project", str(project), "--json") == 0
    (value,) = shell.values
    assert (value["eval"], value["file"], value["line"]) == ("weather/brooklyn", "evals/weather/brooklyn.eval.py", 4)


def test_a_prefix_that_matches_nothing_is_an_error(shell: Shell, project: Path) -> None:
    assert shell("list", "wether", "--project", str(project)) == 2
    assert shell.err == "error: no eval id starts with 'wether' (orchestrate list shows all)\n"


def test_every_problem_of_the_project_is_a_line(shell: Shell, project: Path) -> None:
    (project / "evals/broken.eval.py").write_text("1 +")
    (project / "evals/empty.eval.py").write_text("")
    assert shell("list", "--project", str(project)) == 2
    assert [line.split(":")[1].strip().rsplit("/", 1)[-1] for line in shell.err.splitlines()] == [
        "broken.eval.py",
        "empty.eval.py",
    ]


def test_a_broken_row_names_its_line(shell: Shell, project: Path) -> None:
    (project / "evals/rows.jsonl").write_text('{"a": 1}\n{"a": x}\n')
    assert shell("list", "--project", str(project)) == 2
    assert "rows.jsonl:2" in shell.err


def test_a_folder_without_evals_says_what_to_do(shell: Shell, tmp_path: Path) -> None:
    assert shell("list", "--project", str(tmp_path)) == 2
    assert "(orchestrate init writes one)" in shell.err
