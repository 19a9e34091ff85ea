"""A user's project is checked by pyright and by mypy, both as strict as they get: what is right passes, each mistake
of `wrong.py` is an error at its line, and no other line is one. Nothing of the project is run."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent / "project"
CHECKERS = {
    "pyright": ["-m", "pyright", "--pythonpath", sys.executable, "--project", "."],
    "mypy": ["-m", "mypy", "--strict", "--no-color-output", "--cache-dir", ".cache", "."],
}
FOUND = re.compile(r"^\s*(?:\./)?(?P<file>\S+\.py):(?P<line>\d+):.*?\berror\b", re.MULTILINE)


def mistakes() -> set[tuple[str, int]]:
    lines = (PROJECT / "wrong.py").read_text(encoding="utf-8").splitlines()
    return {("wrong.py", number) for number, line in enumerate(lines, start=1) if line.endswith("# wrong")}


@pytest.mark.parametrize("checker", CHECKERS)
def test_exactly_the_mistakes_of_a_project_are_errors(tmp_path: Path, checker: str) -> None:
    project = tmp_path / "project"
    shutil.copytree(PROJECT, project)
    (project / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}', encoding="utf-8")
    done = subprocess.run(
        [sys.executable, *CHECKERS[checker]], cwd=project, capture_output=True, text=True, check=False
    )
    printed = done.stdout.replace(f"{project}/", "")
    found = {(match["file"], int(match["line"])) for match in FOUND.finditer(printed)}
    assert len(mistakes()) > 30
    assert found == mistakes(), printed + done.stderr
