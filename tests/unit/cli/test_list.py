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


def test_lint_warns_and_refuses_nothing(shell: Shell, project: Path) -> None:
    evals = project / "evals"
    (evals / "rows.jsonl").write_text('{"a": 1}\n{"a": 2}\n{"a": 1}\n{"a": 2}\n')
    (evals / "keyed.eval.py").write_text(
        SQL.replace('"rows.jsonl"', '"keyed.jsonl", id="name"').replace("sql", "keyed")
    )
    (evals / "keyed.jsonl").write_text('{"name": "x", "a": 1}\n{"name": "y", "a": 1}\n')
    (evals / "forgotten_eval.py").write_text(WEATHER)
    (evals / "shapes.py").write_text("from evalfleet.planning.define import define_eval\nmake = define_eval\n")
    (evals / "judged.eval.py").write_text(WEATHER.replace("tags=", "judge=True, tags="))
    assert shell("list", "--project", str(project), "--lint", "--json") == 0
    warnings = [value["warning"] for value in shell.values if "warning" in value]
    assert [(Path(each["file"]).name, each["line"], each["code"]) for each in warnings] == [
        ("judged.eval.py", 4, "JUDGE_NOT_ASKED"),
        ("keyed.eval.py", 5, "NO_DESCRIPTION"),
        ("keyed.jsonl", 2, "REPEATED_ROW"),
        ("sql.eval.py", 5, "NO_DESCRIPTION"),
        ("rows.jsonl", None, "ROWS_NAMED_BY_POSITION"),
        ("rows.jsonl", 3, "REPEATED_ROW"),
        ("forgotten_eval.py", 4, "OVERLOOKED_FILE"),
    ]
    assert "the one on line 1 does, and 1 more of the kind" in warnings[5]["message"]
    assert warnings[6]["hint"] == "call it forgotten.eval.py"


def test_lint_says_so_when_there_is_nothing_to_say(shell: Shell, project: Path) -> None:
    assert shell("list", "wea", "--project", str(project), "--lint") == 0
    assert "warning:" not in shell.out
    assert shell.err == "1 eval, 1 case for each arm and repetition, 0 warnings\n"
    assert shell("list", "sql", "--project", str(project), "--lint") == 0
    assert f"warning: {project}/evals/sql.eval.py:5: the eval 'sql' has no description" in shell.out
