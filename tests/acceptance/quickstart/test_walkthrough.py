"""The walk-throughs of the documents are true: each is done from its first line to its last, and prints what it shows.

A `console` block holds commands after `$` and what they print, where `…` stands for lines left out; a file named
just before or after a block is written, and a `diff` block is applied. Run ids, times and column widths may differ.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.acceptance.cli.conftest import Orchestrate

FENCE = re.compile(r"^```(\w+)\n(.*?)^```(?:\n\nSaved as `([^`]+)`)?", re.MULTILINE | re.DOTALL)
RUN = re.compile(r"\b(?=\w*\d)[0-9a-z]{10}\b")
TIME = re.compile(r"\b[\d.,]+ (?:ms|s|m)\b")


@dataclass
class Walk:
    """One walk through a document. `runs` maps the ids of runs that the document shows to those that were made."""

    folder: Path
    orchestrate: Orchestrate
    runs: dict[str, str] = field(default_factory=dict[str, str])

    def command(self, line: str) -> list[str]:
        """The lines that a command prints. Runs are inline, which changes no result; live counters are dropped."""
        words = shlex.split(line)
        assert words[0] == "orchestrate", line
        inline = ["--inline"] if words[1] in ("submit", "resume") and "--inline" not in words else []
        arguments = [self.runs.get(word, word) for word in (*words[1:], *inline)]
        ended = subprocess.run(
            [Path(sys.executable).with_name("orchestrate"), *arguments],
            cwd=self.folder,
            env=self.orchestrate.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=100,
            check=False,
        )
        return [plain(printed) for printed in ended.stdout.splitlines() if " settled · " not in printed]

    def learn(self, shown: list[str], printed: list[str]) -> None:
        """Take the id from the line that `submit` prints first."""
        if shown and printed and shown[0].startswith("run ") and RUN.fullmatch(shown[0].removeprefix("run ")):
            self.runs[shown[0].removeprefix("run ")] = printed[0].removeprefix("run ")


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


def test_the_comparison_sees_a_difference() -> None:
    assert fits(["a", "…", "c 2 ms"], ["a", "b", "b", "c 31.5 s"]) is None
    assert fits(["a", "c"], ["a", "b", "c"]) == "c"
    assert fits(["a"], ["a", "b"]) == "nothing more, but got: b"
    assert fits(["…", "92 %"], ["91 %"]) == "92 %"


@pytest.mark.parametrize("document", ["README.md", "docs/getting-started.md"])
def test_the_walkthrough_prints_what_it_shows(
    document: str, orchestrate: Orchestrate, root: Path, tmp_path: Path
) -> None:
    shutil.copytree(root / "evals", tmp_path / "evals", ignore=shutil.ignore_patterns("__pycache__"))
    walk = Walk(tmp_path, orchestrate)
    walked = 0
    for kind, block, saved_as in FENCE.findall((root / document).read_text(encoding="utf-8")):
        if kind == "diff":
            apply(block, tmp_path)
        elif saved_as:
            (tmp_path / saved_as).write_text(block, encoding="utf-8")
        elif kind == "console":
            for line, shown in commands(block):
                printed = walk.command(line)
                walk.learn(shown, printed)
                missing = fits(shown, printed)
                assert missing is None, f"{document}: {line}\nshows: {missing!r}\nprints:\n" + "\n".join(printed)
                walked += 1
    assert walked >= 4


def apply(diff: str, folder: Path) -> None:
    """Replace the one removed line by the one added."""
    head, removed, added = diff.splitlines()
    file = folder / head.removeprefix("--- ")
    source = file.read_text(encoding="utf-8")
    assert source.count(f"{removed[1:]}{os.linesep}") == 1
    file.write_text(source.replace(removed[1:], added[1:]), encoding="utf-8")
