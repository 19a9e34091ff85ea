"""Doing a page: its files are written, its commands and cells run, in the order in which they stand."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.acceptance.cli.conftest import Orchestrate
from tests.acceptance.docs.blocks import Block

# the letters of an id; a word of ten of them is taken for one on both sides
RUN = re.compile(r"\b[0-9a-hjkmnp-tv-z]{10}\b")
TIME = re.compile(r"\b[\d.,]+ (?:ms|s|m)\b")
NOTEBOOK = """
import ast, asyncio, inspect

async def notebook():
    names = {{}}
    for cell in {cells!r}:
        ended = eval(compile(cell, "cell", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        if inspect.isawaitable(ended):
            await ended

asyncio.run(notebook())
"""


@dataclass
class Walk:
    """One walk through a document. `runs` maps the ids of runs that the document shows to those that were made."""

    folder: Path
    orchestrate: Orchestrate
    runs: dict[str, str] = field(default_factory=dict[str, str])

    def do(self, page: Sequence[Block]) -> None:
        """Do every block. Raises AssertionError with the place of one that is not as the page says."""
        for block in page:
            if block.kind == "file":
                path = self.folder / block.argument
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text, encoding="utf-8")
            elif block.kind == "console":
                self._console(block)
            elif block.kind == "diff":
                self._apply(block)
            elif block.kind == "sh":
                for line in block.text.splitlines():
                    code, printed = self.command(line)
                    assert code == 0, f"{block.place}: {line}\n" + "\n".join(printed)
        self._cells([block for block in page if block.kind == "cell"], [b.text for b in page if b.kind == "output"])

    def command(self, line: str) -> tuple[int, list[str]]:
        """Exit code and lines of a command. Runs are inline, which changes no result; live counters are dropped."""
        words = shlex.split(line, comments=True)
        assert words[0] == "orchestrate", line
        inline = ["--inline"] if words[1] in ("submit", "resume") and "--inline" not in words else []
        arguments = [RUN.sub(lambda run: self.runs.get(run[0], run[0]), word) for word in (*words[1:], *inline)]
        ended = self._run([str(Path(sys.executable).with_name("orchestrate")), *arguments])
        return ended.returncode, [plain(each) for each in ended.stdout.splitlines() if " settled · " not in each]

    def _console(self, block: Block) -> None:
        for line, shown in commands(block.text):
            _, printed = self.command(line)
            self._learn(shown, printed)
            missing = fits(shown, printed)
            assert missing is None, f"{block.place}: {line}\nshows: {missing!r}\nprints:\n" + "\n".join(printed)

    def _learn(self, shown: list[str], printed: list[str]) -> None:
        """Take the id from the line that `submit` prints first."""
        if shown and printed and shown[0].startswith("run ") and RUN.fullmatch(shown[0].removeprefix("run ")):
            self.runs[shown[0].removeprefix("run ")] = printed[0].removeprefix("run ")

    def _cells(self, cells: list[Block], outputs: list[str]) -> None:
        if cells:
            texts = [cell.text for cell in cells]
            script = NOTEBOOK.format(cells=texts) if any("await " in text for text in texts) else "\n".join(texts)
            ended = self._run([sys.executable, "-W", "error", "-c", script])
            assert ended.stdout == "".join(outputs), f"{cells[0].place}: the cells print\n{ended.stdout}"

    def _apply(self, block: Block) -> None:
        """Replace the one removed line by the one added."""
        head, removed, added = block.text.splitlines()
        file = self.folder / head.removeprefix("--- ")
        source = file.read_text(encoding="utf-8")
        assert source.count(f"{removed[1:]}\n") == 1, block.place
        file.write_text(source.replace(removed[1:], added[1:]), encoding="utf-8")

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.orchestrate.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=100,
            check=False,
        )


def plain(line: str) -> str:
    """A line without what is never the same twice."""
    return " ".join(line.split())


def without_times(line: str) -> str:
    return RUN.sub("RUN", TIME.sub("TIME", line))


def commands(block: str) -> Iterator[tuple[str, list[str]]]:
    """Each command with the lines shown below it."""
    for part in block.removeprefix("$ ").split("\n$ "):
        line, *shown = part.rstrip("\n").split("\n")
        yield line, [plain(each) for each in shown]


def fits(shown: list[str], printed: list[str]) -> str | None:
    """The first shown line that was not printed where it should be, or None."""
    position, anywhere = 0, False
    for line in map(without_times, shown):
        if line == "…":
            anywhere = True
            continue
        rest = [without_times(each) for each in printed[position:]]
        if line not in (rest if anywhere else rest[:1]):
            return line
        position, anywhere = position + rest.index(line) + 1, False
    return None if anywhere or position == len(printed) else f"nothing more, but got: {printed[position]}"
