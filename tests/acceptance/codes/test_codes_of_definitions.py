"""Each code of a definition that is wrong: `orchestrate submit` refuses it, exit code 2, before anything runs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from evalfleet.reports.exit_code import ExitCode
from tests.acceptance.codes.other_package import with_other_package

if TYPE_CHECKING:
    from tests.acceptance.cli.conftest import Orchestrate

HEADER = "from evalfleet import *\n\n"
BODY = "async def body(t): ...\n"
LISTED = f"{HEADER}{BODY}evals = "


def option(text: str) -> str:
    return f"{HEADER}@define_eval({text})\n{BODY}"


def rows(constructor: str) -> str:
    return f"{HEADER}@define_eval(dataset=Dataset.{constructor})\nasync def body(t, row): ...\n"


#: An eval file for each code, named after it; all of them are refused together. Rows are read when all files are fine.
EVAL_FILES = {
    "IMPORT_FAILED": "import no_such_module",
    "INVALID_EXPORT": "x = 1",
    "MULTIPLE_DEFINITIONS": f"{HEADER}@define_eval\n{BODY}\n@define_eval\n{BODY.replace('body', 'other')}",
    "INVALID_ID": f"{LISTED}{{'a/b': define_eval(body)}}",
    "UNKNOWN_OPTION": option("agent='mine'"),
    "INVALID_OPTION": option("tags=5"),
    "INVALID_BODY": f"{HEADER}@define_eval\nasync def body(): ...\n",
    "AUTHORING_ERROR": f"{HEADER}@define_eval\n{BODY}\ntool_match('x').exactly(0)",
    "INVALID_DATASET": rows("jsonl('https://example.org/rows.jsonl')"),
}
OF_ROWS = {
    "DATASET_NOT_READABLE": rows("jsonl('nowhere.jsonl')"),
    "EMPTY_DATASET": rows("jsonl('empty.jsonl')"),
    "INVALID_FILTER": rows("jsonl('filtered.jsonl').filter(lambda row: 'maybe')"),
    "INVALID_ROW": rows("jsonl('number.jsonl')"),
    "MISSING_ID": rows("jsonl('nameless.jsonl', id='name')"),
    "INVALID_CSV": rows("csv('ragged.csv')"),
    "INVALID_JSON": rows("jsonl('half.jsonl')"),
    "INVALID_TABLE": rows("parquet('text.parquet')"),
    "INVALID_YAML": rows("yaml('broken.yaml')"),
    "INVALID_ENCODING": rows("jsonl('latin.jsonl')"),
    "DUPLICATE_KEY": rows("jsonl('twice.jsonl')"),
}
ROWS = {
    "empty.jsonl": b"",
    "filtered.jsonl": b'{"n": 1}\n',
    "nameless.jsonl": b'{"n": 1}\n',
    "number.jsonl": b"5\n",
    "half.jsonl": b'{"n": \n',
    "twice.jsonl": b'{"n": 1, "n": 2}\n',
    "latin.jsonl": b'{"n": "\xe9"}\n',
    "ragged.csv": b"a,b\n1,2,3\n",
    "text.parquet": b"this is no table",
    "broken.yaml": b"- a: [1\n",
}


@pytest.fixture(scope="module")
def command(orchestrate: Orchestrate, tmp_path_factory: pytest.TempPathFactory) -> Orchestrate:
    return with_other_package(orchestrate, tmp_path_factory.mktemp("package"))


def refused(command: Orchestrate, project: Path, *arguments: str) -> dict[str, Any]:
    """The error that a submit ends with."""
    ended = command("submit", "experiment.yaml", *arguments, "--inline", "--json", cwd=project)
    assert ended.code == ExitCode.USAGE, ended.out + ended.err
    return ended.values[-1]["error"]


def project_of(folder: Path, experiment: Mapping[str, Any], files: Mapping[str, str | bytes]) -> Path:
    for name, content in {"experiment.yaml": json.dumps(experiment), **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


# --- evals and their rows ----------------------------------------------------------------------------------------

PARROT: dict[str, Any] = {"schema_version": 1, "name": "n", "arms": {"parrot": {"adapter": "scripted"}}}
GOOD = option("description='fine'")


def of_files(code: str, text: str, problems: list[dict[str, Any]]) -> set[str]:
    """The codes told of this eval file, or of the rows that it names."""
    names = {f"{code.lower()}.eval.py", *re.findall(r"'([\w.]+)'", text)}
    return {each["code"] for each in problems if Path(each["file"]).name in names}


@pytest.fixture(scope="module")
def errors(command: Orchestrate, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What is told of all broken eval files, and then of those whose rows are broken."""
    found: list[dict[str, Any]] = []
    for sources, more in ((EVAL_FILES, {"twin.eval.py": GOOD, "twin/eval.py": GOOD}), (OF_ROWS, ROWS)):
        files: dict[str, str | bytes] = {f"evals/{code.lower()}.eval.py": text for code, text in sources.items()}
        files |= {f"evals/{name}": content for name, content in more.items()}
        found.append(refused(command, project_of(tmp_path_factory.mktemp("project"), PARROT, files)))
    return found


@pytest.fixture(scope="module")
def problems(errors: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [problem for error in errors for problem in error["problems"]]


def test_all_that_is_wrong_with_evals_is_told_at_once(errors: list[dict[str, Any]]) -> None:
    assert errors[0]["code"] == "INVALID_EVALS"


@pytest.mark.parametrize("code", EVAL_FILES)
def test_a_code_of_an_eval_file(problems: list[dict[str, Any]], code: str) -> None:
    assert of_files(code, EVAL_FILES[code], problems) == {code}


@pytest.mark.parametrize("code", OF_ROWS)
def test_a_code_of_rows(problems: list[dict[str, Any]], code: str) -> None:
    assert of_files(code, OF_ROWS[code], problems) == {code}


def test_two_files_of_one_id_are_told_with_both(problems: list[dict[str, Any]]) -> None:
    (twins,) = [each for each in problems if each["code"] == "DUPLICATE_ID"]
    assert "twin" in twins["file"] and "twin" in twins["message"]


# --- experiments -------------------------------------------------------------------------------------------------

SCORED = f"{HEADER}@define_score_eval\n{BODY}"
AGENTS = """
from evalfleet import COMPLETE_COVERAGE, sandbox_agent

@sandbox_agent(coverage=COMPLETE_COVERAGE)
async def worker(turn, ctx): ...
"""


def sandboxed(spec: str, **layer: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """An agent that lives in a sandbox: the eval's plan of it, and the experiment's, over a folder with one file."""
    arms = {"mine": {"adapter": "python", "entry": "agents:worker"}}
    files = {"agents.py": AGENTS, "evals/good.eval.py": option(f"sandbox=SandboxSpec({spec})"), "folder/file": ""}
    return {"arms": arms, "sandbox": layer}, files


#: All that is wrong with one experiment, by the field it is told of.
AT_ONCE = {
    "UNKNOWN_KEY": "repetition",
    "MISSING_KEY": "name",
    "INVALID_VALUE": "repetitions",
    "NOT_SUPPORTED": "hooks",
    "UNKNOWN_ADAPTER": "arms.misspelt.adapter",
    "BROKEN_ADAPTER": "arms.broken.adapter",
    "UNKNOWN_BACKEND": "sandbox.backend",
    "UNKNOWN_ARM": "accept.arms[0]",
}
WRONG = {
    "schema_version": 1,
    "repetition": 2,
    "repetitions": 0,
    "hooks": {"before": "true"},
    "arms": {"misspelt": {"adapter": "scriptd"}, "broken": {"adapter": "broken"}},
    "sandbox": {"backend": "locl"},
    "accept": {"arms": ["nobody"]},
}

#: What is changed of a good experiment, with what other files, for the code.
EXPERIMENTS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "INVALID_CALIBRATION": (
        {"judge": {"model": "m", "calibration": "experiment.yaml"}},
        {"evals/good.eval.py": option("judge=True")},
    ),
    "INVALID_ARM": ({"arms": {"a": {"adapter": "python", "entry": "no_such_module:agent"}}}, {}),
    "INVALID_MATRIX": ({"matrix": {"adapter": ["http", "scripted"]}}, {}),
    "UNKNOWN_PREFIX": ({"evals": {"select": ["gud"]}}, {}),
    "NO_CASES": ({"evals": {"tags": ["nobody"]}}, {}),
    "TOO_MANY_CASES": ({"repetitions": 20_000_000}, {}),
    "MIXED_STYLES": ({}, {"evals/scored.eval.py": SCORED}),
    "INVALID_PLAN": ({"evals": {"select": ["gud", "bad"]}}, {}),
    "SANDBOX_BUILD_MISSING": sandboxed("build='folder'", backend="rude"),
    "SANDBOX_TEMPLATE_CONFLICT": sandboxed("image='a'", backend="rude", image="a"),
    "SANDBOX_TEMPLATE_MISSING": sandboxed("", backend="rude"),
    "SANDBOX_BACKEND_CONFLICT": sandboxed("backend='local'", backend="rude"),
    "SANDBOX_FILES_MISSING": sandboxed("files='nowhere'", backend="local"),
    "VARIABLE_NOT_ALLOWED": sandboxed("env_from=('A=B',)", backend="local"),
    "SANDBOX_FILES_CONFLICT": sandboxed("files='.'", backend="local", files="folder"),
    "INVALID_CRITERIA": ({}, {"evals/good.eval.py": option("criteria=['gone.json']")}),
    "CRITERIA_VISIBLE": sandboxed("files='.'", backend="local"),
    "SANDBOX_UNEXPECTED": ({}, {"evals/good.eval.py": option("sandbox=SandboxSpec(backend='local')")}),
}


def test_the_codes_of_one_experiment(command: Orchestrate, tmp_path: Path) -> None:
    error = refused(command, project_of(tmp_path, WRONG, {"evals/good.eval.py": GOOD}))
    assert error["code"] == "INVALID_EXPERIMENT"
    assert {each["code"]: each["field"] for each in error["problems"]} == AT_ONCE


@pytest.mark.parametrize("code", EXPERIMENTS)
def test_a_code_of_an_experiment(command: Orchestrate, tmp_path: Path, code: str) -> None:
    changes, files = EXPERIMENTS[code]
    experiment = {key: value for key, value in {**PARROT, **changes}.items() if value is not None}
    project_of(tmp_path, experiment, {"evals/good.eval.py": GOOD, **files})
    error = refused(command, tmp_path)
    told = [each["code"] for each in error["problems"]]
    assert told == [code] or (error["code"] == code and len(told) == 2), error


def test_a_code_of_what_is_set_for_one_call(command: Orchestrate, tmp_path: Path) -> None:
    project_of(tmp_path, PARROT, {"evals/good.eval.py": GOOD})
    assert refused(command, tmp_path, "--set", "arms.parrot.adapter=http")["code"] == "INVALID_OVERRIDE"
