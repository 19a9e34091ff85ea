"""The code blocks of a page, each with what a test does with it.

A block is written as a file (`<!-- file: evals/x.eval.py -->` above it), shown only (`<!-- fragment: why -->`), or
done: `console` holds commands with what they print, `sh` commands that must succeed, `diff` is applied, and `python`
with a `text` block below is a cell of a notebook with what it prints. One that names no language is no code.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>file|fragment): (?P<argument>.+?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```\n",
    re.MULTILINE | re.DOTALL,
)
DONE = ("console", "sh", "diff", "output")


@dataclass(frozen=True)
class Block:
    """`kind` is file, fragment, cell, output or the language of a block that is done."""

    kind: str
    argument: str
    language: str
    text: str
    place: str


def blocks(page: Path) -> list[Block]:
    """The blocks of a page in order. Raises ValueError for one that does not say what to do with it."""
    text = page.read_text(encoding="utf-8")
    found: list[Block] = []
    matches = list(BLOCK.finditer(text))
    for match, after in zip(matches, [*matches[1:], None], strict=True):
        place = f"{page.name}:{text.count(chr(10), 0, match.start()) + 1}"
        shown_below = (
            after is not None and not text[match.end() : after.start()].strip() and after["language"] == "text"
        )
        kind = match["mark"] or match["language"] or "fragment"
        if kind == "python" and shown_below:
            kind = "cell"
        elif kind == "text" and found and found[-1].kind == "cell":
            kind = "output"
        if kind not in ("file", "fragment", "cell", *DONE):
            raise ValueError(f"{place}: the block is no file, no fragment, and can't be done: say <!-- file: … -->")
        found.append(Block(kind, match["argument"] or "", match["language"], match["text"], place))
    return found
