"""What an eval judges by: found, part of its fingerprint, and never among what its agent starts with."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.planning.projects import write
from tests.unit.planning.test_plan import HEAD, plan, refused

BOXED = "schema_version: 1\nname: sweep\narms:\n  a: {adapter: boxed}\nsandbox: {backend: local}\n"
OTHERS = {"agent.py": "import agent_tools\n", "agent_tools.py": ""}


def an_eval(options: str = "") -> str:
    return HEAD + f"@define_eval({options})\ndef one(t): ...\n"


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    path, modules = list(sys.path), set(sys.modules)
    (tmp_path / "project").mkdir()
    yield write((tmp_path / "project").resolve(), OTHERS)
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith(("evals", "_evalfleet")):
            del sys.modules[name]


HIDDEN = {
    "evals/hidden/a.py": "a",
    "evals/hidden/deep/b.txt": "b",
    "evals/answer.json": "{}",
    "evals/start/app.py": "x",
}


@pytest.mark.parametrize(
    ("criteria", "changed", "differs"),
    [
        ("['answer.json']", "evals/answer.json", True),
        ("['hidden']", "evals/hidden/deep/b.txt", True),
        ("['hidden/**/*.py', '*.json']", "evals/hidden/a.py", True),
        ("['hidden/*.py']", "evals/hidden/deep/b.txt", False),
        ("['../evals/hidden/deep']", "evals/hidden/deep/b.txt", True),
        ("['../evals/hidden/deep']", "evals/hidden/deep/new.txt", True),
    ],
)
async def test_what_criteria_hold_is_part_of_the_fingerprint(
    project: Path, criteria: str, changed: str, differs: bool
) -> None:
    write(project, {**HIDDEN, "evals/one.eval.py": an_eval(f"criteria={criteria}")})
    before = await plan(project, BOXED)
    write(project, {changed: "changed"})
    after = await plan(project, BOXED)
    (case,) = after.cases()
    assert after.parts(case).changed(before.parts(case).fields) == (("criteria",) if differs else ())


async def test_an_eval_without_criteria_has_no_such_part(project: Path) -> None:
    write(project, {"evals/one.eval.py": an_eval()})
    found = await plan(project, BOXED)
    (case,) = found.cases()
    assert "criteria" not in found.parts(case).fields


@pytest.mark.parametrize(
    ("criteria", "message"),
    [
        ("['answer.jsno']", "criteria 'answer.jsno' matches no file"),
        ("['answer.json', 'hidden/*.rs']", "criteria 'hidden/*.rs' matches no file"),
        ("['../../outside.txt']", "criteria '../../outside.txt' leads out of the project: "),
        ("['linked.txt']", "criteria 'linked.txt' leads out of the project: "),
    ],
)
async def test_criteria_that_are_not_there_are_named(project: Path, criteria: str, message: str) -> None:
    write(project, {**HIDDEN, "evals/one.eval.py": an_eval(f"criteria={criteria}")})
    (project.parent / "outside.txt").write_text("x")
    (project / "evals" / "linked.txt").symlink_to(project.parent / "outside.txt")
    (problem,) = await refused(project, BOXED)
    assert (problem.code, problem.line) == ("INVALID_CRITERIA", 4)
    assert problem.message.startswith(message)


@pytest.mark.parametrize(
    ("spec", "criteria", "seen"),
    [
        ("files='start'", "['answer.json', 'hidden']", None),
        ("files='.'", "['answer.json']", "'answer.json', 'one.eval.py'"),
        ("files='.'", None, "'one.eval.py'"),
        ("files='hidden'", "['hidden/deep/*']", "'deep/b.txt'"),
        ("files='link'", "['hidden']", "'a.py', 'deep/b.txt'"),
        ("files='../evals/start'", "['start/app.py']", "'app.py'"),
        ("files='hidden/deep'", "['hidden/a.py']", None),
    ],
)
async def test_no_agent_starts_with_what_judges_it(
    project: Path, spec: str, criteria: str | None, seen: str | None
) -> None:
    options = f"sandbox=SandboxSpec({spec})" + ("" if criteria is None else f", criteria={criteria}")
    write(project, {**HIDDEN, "evals/one.eval.py": an_eval(options)})
    (project / "evals" / "link").symlink_to("hidden")
    if seen is None:
        assert (await plan(project, BOXED)).total == 1
        return
    (problem,) = await refused(project, BOXED)
    assert (problem.code, problem.hint) == ("CRITERIA_VISIBLE", "move it out, or upload it after the last send")
    assert problem.message.endswith(f"would show the agent what judges it: {seen}")


async def test_an_experiments_files_and_what_an_image_is_built_from_are_looked_at_too(project: Path) -> None:
    write(project, {**HIDDEN, "evals/one.eval.py": an_eval("criteria=['hidden']")})
    (problem,) = await refused(project, BOXED.replace("backend: local", "backend: local, files: evals/hidden"))
    assert problem.code == "CRITERIA_VISIBLE" and "starting files" in problem.message
    write(project, {"evals/hidden/Dockerfile": "FROM scratch"})
    built = BOXED.replace("backend: local", "backend: container, build: evals")
    found = await refused(project, built)
    (message,) = [each.message for each in found if each.code == "CRITERIA_VISIBLE"]
    assert "build folder" in message
    assert message.endswith("'hidden/Dockerfile', 'hidden/a.py', 'hidden/deep/b.txt' and 1 more")


async def test_both_are_told_together(project: Path) -> None:
    write(project, {**HIDDEN, "evals/one.eval.py": an_eval("sandbox=SandboxSpec(files='.'), criteria=['gone']")})
    assert [problem.code for problem in await refused(project, BOXED)] == ["INVALID_CRITERIA", "CRITERIA_VISIBLE"]
