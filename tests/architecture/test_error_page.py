"""`docs/errors.md` says what `evalfleet.codes` holds; `python -m tests.architecture.test_error_page` writes it anew."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from textwrap import fill

from evalfleet.codes.book import CHAPTERS, CODES
from evalfleet.codes.tables import CodeTable
from tests.architecture.source import ROOT

PAGE = ROOT / "docs" / "errors.md"

INTRODUCTION = (
    "An error is one line: where, what, and what to do. `orchestrate --debug` adds the traceback. Codes are for "
    "programs; they don't change once released."
)


def page() -> str:
    """The page: a chapter of tables after another, with the column *Do* where a table has something to do."""
    lines = ["# Errors", "", fill(INTRODUCTION, 120)]
    for chapter in CHAPTERS:
        lines += ["", f"## {chapter.title}", "", fill(chapter.about, 120)]
        for table in chapter.tables:
            about = [fill(table.about, 120), ""] if table.about else []
            lines += ["", f"### {table.title}", "", *about, *rows(table)]
    return "\n".join(lines) + "\n"


def rows(table: CodeTable) -> Iterator[str]:
    checks = any(code.check for code in table.codes)
    yield "| Code | Says | Do |" if checks else "| Code | Says |"
    yield "|---|---|---|" if checks else "|---|---|"
    for code in table.codes:
        cells = [f"`{code.name}`", code.says, *([code.check] if checks else [])]
        yield f"| {' | '.join(cells)} |".replace("|  |", "| |")


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), (
        "codes are described in orchestrator/evalfleet/codes; then: python -m tests.architecture.test_error_page"
    )


def test_a_code_stands_once_and_says_something_in_a_line() -> None:
    names = Counter(code.name for chapter in CHAPTERS for table in chapter.tables for code in table.codes)
    assert [name for name, count in names.items() if count > 1] == []
    for code in CODES.values():
        assert re.fullmatch(r"[A-Z]+(_[A-Z0-9]+)+", code.name) and code.says
        assert not {"\n", "|"} & set(code.says + code.check), code.name


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
