"""Which files are evals, what they are called, and how a broken batch is reported."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from evalfleet.errors import DefinitionError
from evalfleet.planning.discover import discover, eval_files, find_project, load_definition
from tests.unit.planning.projects import write

IMPORTS = "from evalfleet.planning.define import define_eval, define_score_eval\n"
ONE = IMPORTS + "\n@define_eval\nasync def one(t): ...\n"


def ids(project: Path) -> list[str]:
    return [definition.id for definition in discover(project).definitions]


def test_ids_come_from_paths_and_are_ordered_by_path(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "evals/weather/brooklyn.eval.py": ONE,
            "evals/b.eval.py": ONE,
            "evals/a/eval.py": ONE,
            "evals/a-b.eval.py": ONE,
            "evals/deep/er/x.eval.py": ONE,
        },
    )
    assert ids(tmp_path) == ["a-b", "a", "b", "deep/er/x", "weather/brooklyn"]


def test_only_eval_files_are_imported_and_hidden_folders_are_skipped(tmp_path: Path) -> None:
    bomb = "raise RuntimeError('imported')\n"
    write(
        tmp_path,
        {
            "evals/one.eval.py": ONE,
            "evals/plain.py": bomb,
            "evals/eval.py": bomb,
            "evals/x.suite.txt": "- nothing",
            "evals/.hidden.eval.py": bomb,
            "evals/.git/x.eval.py": bomb,
            "evals/.venv/x.eval.py": bomb,
            "evals/__pycache__/x.eval.py": bomb,
            "evals/node_modules/x/eval.py": bomb,
            "other/x.eval.py": bomb,
        },
    )
    assert ids(tmp_path) == ["one"]


def test_no_evals_folder_is_no_evals(tmp_path: Path) -> None:
    assert ids(tmp_path) == []
    assert list(eval_files(tmp_path)) == []


def test_a_list_is_named_by_position_and_a_dict_by_sorted_key(tmp_path: Path) -> None:
    many = IMPORTS + "evals = [define_eval(description=str(n))(lambda t: n) for n in range(3)]\n"
    keyed = IMPORTS + "evals = {key: define_eval(lambda t: None) for key in ('b', 'a')}\n"
    write(tmp_path, {"evals/many.eval.py": many, "evals/keyed.eval.py": keyed})
    assert ids(tmp_path) == ["keyed/a", "keyed/b", "many/0000", "many/0001", "many/0002"]


def test_a_definition_that_also_stands_in_the_list_is_one(tmp_path: Path) -> None:
    write(tmp_path, {"evals/x.eval.py": ONE + "alias = one\nevals = [one]\n"})
    assert ids(tmp_path) == ["x/0000"]


def test_a_folder_with_a_prompt_is_a_fixture(tmp_path: Path) -> None:
    write(tmp_path, {"evals/fix/eval.py": ONE, "evals/fix/PROMPT.md": "Fix it.", "evals/bare/eval.py": ONE})
    bare, fixture = discover(tmp_path).definitions
    assert (bare.fixture, fixture.fixture) == (None, tmp_path.resolve() / "evals" / "fix")


def test_a_definition_knows_its_file_and_line(tmp_path: Path) -> None:
    write(tmp_path, {"evals/one.eval.py": ONE})
    (definition,) = discover(tmp_path).definitions
    assert definition.place is not None
    assert (definition.place.file, definition.place.line) == (tmp_path.resolve() / "evals" / "one.eval.py", 3)


def test_absolute_and_relative_imports_of_the_project_work(tmp_path: Path) -> None:
    source = "from planning_discover_helper import X\nfrom .near import Y\n" + IMPORTS
    source += "@define_eval(description=X + Y)\ndef one(t): ...\n"
    write(
        tmp_path,
        {
            "evals/area/one.eval.py": source,
            "evals/area/near.py": "Y = 'near'\n",
            "planning_discover_helper.py": "X = 'far-'\n",
        },
    )
    assert discover(tmp_path).definitions[0].description == "far-near"


def test_two_files_with_one_name_do_not_share_a_module(tmp_path: Path) -> None:
    source = IMPORTS + "VALUE = {0!r}\n@define_eval(description=VALUE)\ndef one(t): return VALUE\n"
    write(tmp_path, {"evals/a/x.eval.py": source.format("a"), "evals/b/x.eval.py": source.format("b")})
    assert [one.body(None) for one in discover(tmp_path).definitions] == ["a", "b"]


def test_an_edit_counts_at_once_and_no_bytecode_is_written(tmp_path: Path) -> None:
    for value in ("a", "b"):
        write(tmp_path, {"evals/x.eval.py": IMPORTS + f"@define_eval(description='{value}')\ndef one(t): ...\n"})
        assert discover(tmp_path).definitions[0].description == value
    assert not list(tmp_path.rglob("*.pyc"))


def test_a_worker_loads_one_file_and_only_once(tmp_path: Path) -> None:
    write(tmp_path, {"evals/good.eval.py": ONE, "evals/bad.eval.py": "raise RuntimeError\n"})
    first = load_definition(tmp_path, Path("evals/good.eval.py"), "good")
    again = load_definition(tmp_path, tmp_path / "evals" / "good.eval.py", "good")
    assert (first.id, again.body) == ("good", first.body)
    with pytest.raises(DefinitionError, match="defines no eval 'other'"):
        load_definition(tmp_path, Path("evals/good.eval.py"), "other")
    with pytest.raises(DefinitionError, match="RuntimeError"):
        load_definition(tmp_path, Path("evals/bad.eval.py"), "bad")


MALFORMED = {
    "import_error": ("\nimport no_such_module_here\n", "IMPORT_FAILED", 2, "no_such_module_here"),
    "syntax_error": ("x = (\n", "IMPORT_FAILED", 1, "never closed"),
    "raises": ("def f():\n    raise ValueError('a\\nb')\nf()\n", "IMPORT_FAILED", 2, "ValueError: a b"),
    "exits": ("import sys\nsys.exit(3)\n", "IMPORT_FAILED", 2, "SystemExit"),
    "nul": ("x = 1\0\n", "IMPORT_FAILED", None, "null bytes"),
    "nothing": ("x = 1\n", "INVALID_EXPORT", None, "defines no eval"),
    "a_number": ("evals = 3\n", "INVALID_EXPORT", None, "not int"),
    "empty_list": ("evals = []\n", "INVALID_EXPORT", None, "is empty"),
    "list_of_functions": ("evals = [print]\n", "INVALID_EXPORT", None, "not an eval"),
    "key_with_slash": (IMPORTS + "evals = {'a/b': define_eval(lambda t: 1)}\n", "INVALID_ID", 2, "slash"),
    "key_is_number": (IMPORTS + "evals = {3: define_eval(lambda t: 1)}\n", "INVALID_ID", 2, "not text"),
    "two_definitions": (ONE + "\n@define_eval\ndef two(t): ...\n", "MULTIPLE_DEFINITIONS", 6, "lines 3 and 6"),
    "beside_a_list": (ONE + "evals = [define_eval(lambda t: 1)]\n", "MULTIPLE_DEFINITIONS", 5, "lines 3 and 5"),
    "id_option": (IMPORTS + "@define_eval(id='x')\ndef one(t): ...\n", "UNKNOWN_OPTION", 2, "comes from its file"),
    "name_option": (IMPORTS + "@define_eval(name='x')\ndef one(t): ...\n", "UNKNOWN_OPTION", 2, "comes from its file"),
    "misspelt_option": (IMPORTS + "@define_eval(tag=['x'])\ndef one(t): ...\n", "UNKNOWN_OPTION", 2, "'tags'"),
    "text_for_tags": (IMPORTS + "@define_eval(tags='x')\ndef one(t): ...\n", "INVALID_OPTION", 2, "list of texts"),
    "body_without_t": (IMPORTS + "@define_eval\ndef one(): ...\n", "INVALID_BODY", 2, "must take t"),
    "body_with_row": (IMPORTS + "@define_eval\ndef one(t, row): ...\n", "INVALID_BODY", 2, "must take t,"),
    "not_callable": (IMPORTS + "one = define_eval(3)\n", "INVALID_BODY", 2, "not int"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_eval_file_is_refused_at_its_place(tmp_path: Path, name: str) -> None:
    source, code, line, text = MALFORMED[name]
    write(tmp_path, {f"evals/{name}.eval.py": source})
    with pytest.raises(DefinitionError) as caught:
        discover(tmp_path)
    (problem,) = caught.value.problems
    assert (problem.code, problem.line) == (code, line)
    assert problem.file == str(tmp_path.resolve() / "evals" / f"{name}.eval.py")
    assert text in problem.message and "\n" not in str(problem)


def test_an_error_in_a_helper_names_the_helper(tmp_path: Path) -> None:
    write(tmp_path, {"evals/a/x.eval.py": "from .broken import y\n", "evals/a/broken.py": "\n\ny = 1 / 0\n"})
    with pytest.raises(DefinitionError) as caught:
        discover(tmp_path)
    (problem,) = caught.value.problems
    assert (problem.file, problem.line) == (str(tmp_path.resolve() / "evals" / "a" / "broken.py"), 3)


def test_every_problem_of_the_batch_is_reported_together(tmp_path: Path) -> None:
    write(tmp_path, {f"evals/{name}.eval.py": source for name, (source, *_) in MALFORMED.items()})
    write(tmp_path, {"evals/good.eval.py": ONE})
    with pytest.raises(DefinitionError) as caught:
        discover(tmp_path)
    assert len(caught.value.problems) == len(MALFORMED)


def test_two_owners_of_one_id_are_both_named(tmp_path: Path) -> None:
    write(tmp_path, {"evals/x.eval.py": ONE, "evals/x/eval.py": ONE})
    with pytest.raises(DefinitionError, match=r"evals/x\.eval\.py and evals/x/eval\.py both define the id 'x'"):
        discover(tmp_path)


def test_an_eval_below_the_id_of_another_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {"evals/sql.eval.py": ONE, "evals/sql/0000.eval.py": ONE})
    with pytest.raises(DefinitionError, match="lies below another eval's"):
        discover(tmp_path)


def test_a_path_that_is_no_id_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {f"evals/{'n' * 210}.eval.py": ONE, "evals/a\tb/x.eval.py": ONE})
    with pytest.raises(DefinitionError) as caught:
        discover(tmp_path)
    assert [problem.code for problem in caught.value.problems] == ["INVALID_ID", "INVALID_ID"]


def test_discovery_prints_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, {"evals/x.eval.py": ONE})
    discover(tmp_path)
    assert capfd.readouterr() == ("", "")


def test_the_project_is_the_nearest_folder_with_evals(tmp_path: Path) -> None:
    write(tmp_path, {"project/evals/x.eval.py": ONE, "project/sweeps/deep/e.yaml": "", "alone/e.yaml": ""})
    assert find_project(tmp_path / "project" / "sweeps" / "deep" / "e.yaml") == (tmp_path / "project").resolve()
    assert find_project(tmp_path / "alone" / "e.yaml") == (tmp_path / "alone").resolve()


@pytest.fixture(autouse=True)
def _leave_the_interpreter_as_it_was() -> object:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith(("evals", "_evalfleet", "planning_discover")):
            del sys.modules[name]
