"""Renames codes in a copy of the product, one after another, and runs the test that is to notice.

`python -m tests.acceptance.codes.rename [CODE…]`, all codes without any. It ends with 1 when a test stays green, or one
goes red that is about other codes.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path

from evalfleet.codes.book import CODES
from tests.acceptance.codes.test_every_code import place_of_test
from tests.architecture.source import PACKAGES, ROOT, committed_files

#: Tests that need what is not here: an engine, a cluster.
ELSEWHERE = ("tests/engines/", "tests/kubernetes/")

_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


def copied(folder: Path) -> Path:
    """A copy of the repository with a Python of its own that imports the copy's packages."""
    for file in committed_files():
        target = folder / file.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read_bytes())
    venv.create(folder / ".venv", symlinks=True)
    (site,) = (folder / ".venv").glob("lib/python*/site-packages")
    packages = [folder / root.relative_to(ROOT) for root in PACKAGES.values()]
    installed = [path for path in sys.path if path.endswith("site-packages")]
    (site / "copied.pth").write_text("\n".join(map(str, [*packages, *installed])), encoding="utf-8")
    python = folder / ".venv" / "bin" / "python"
    script = f"#!{python}\nimport sys\nfrom evalfleet.cli.main import main\nsys.exit(main())\n"
    (python.with_name("orchestrate")).write_text(script, encoding="utf-8")
    (python.with_name("orchestrate")).chmod(0o755)
    return python


def holding(folder: Path, code: str) -> Iterator[Path]:
    """The product's files that name the code, but for the table that describes it and the suites it ships as tests."""
    for root in PACKAGES.values():
        for file in (folder / root.relative_to(ROOT)).rglob("*.py"):
            if not {"codes", "testing"} & {*file.parts} and f'"{code}"' in file.read_text(encoding="utf-8"):
                yield file


def red(folder: Path, python: Path, place: str) -> list[str]:
    """The tests that fail there."""
    command = [str(python), "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", place]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return _FAILED.findall(ended.stdout)


def red_without(code: str, folder: Path, python: Path) -> list[str]:
    """The tests that fail while the code has another name."""
    before = {file: file.read_text(encoding="utf-8") for file in holding(folder, code)}
    for file, text in before.items():
        file.write_text(text.replace(f'"{code}"', f'"{code}_RENAMED"'), encoding="utf-8")
    try:
        return red(folder, python, place_of_test(code))
    finally:
        for file, text in before.items():
            file.write_text(text, encoding="utf-8")


def about(test: str, code: str) -> bool:
    """Whether a test, by its id, is one of the code: by its parameter, or it names the code or a table with it."""
    file, _, name = test.partition("::")
    function, _, parameter = name.partition("[")
    if f"{file}::{function}" == place_of_test(code):
        return True
    if parameter:
        return parameter.removesuffix("]").split("-")[0] == code
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    tables = {target for target, value in _assigned(tree) if code in _strings(value)}
    (found,) = (each for each in ast.walk(tree) if isinstance(each, _FUNCTION) and each.name == function)
    named = {each.id for each in ast.walk(found) if isinstance(each, ast.Name)}
    return code in _strings(found) or bool(tables & named)


def _assigned(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for each in tree.body:
        if isinstance(each, ast.Assign | ast.AnnAssign) and each.value is not None:
            targets = each.targets if isinstance(each, ast.Assign) else [each.target]
            yield from ((target.id, each.value) for target in targets if isinstance(target, ast.Name))


def _strings(tree: ast.AST) -> set[str]:
    return {each.value for each in ast.walk(tree) if isinstance(each, ast.Constant) and isinstance(each.value, str)}


def main(codes: Sequence[str]) -> int:
    chosen = [code for code in codes or CODES if not place_of_test(code).startswith(ELSEWHERE)]
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="renamed-") as made:
        folder = Path(made)
        python = copied(folder)
        broken = {place: red(folder, python, place) for place in sorted({place_of_test(code) for code in chosen})}
        for code in chosen:
            place = place_of_test(code)
            told = broken[place] or red_without(code, folder, python)
            others = [test for test in told if not about(test, code)]
            wrong += bool(broken[place] or not told or others)
            said = "RED BEFORE" if broken[place] else f"{len(told)} red" if told else "NOT NOTICED"
            sys.stdout.write(f"{code}: {said}{f', others too: {others}' if others else ''}\n")
            sys.stdout.flush()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
