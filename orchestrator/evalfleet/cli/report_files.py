"""Reports into files: each is complete or absent, whatever interrupts the writing."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from evalfleet.api.options import CaseFilter
from evalfleet.model.report import CaseView
from evalfleet.reports.json_report import report_value
from evalfleet.reports.json_text import to_json
from evalfleet.reports.junit import render_junit
from evalfleet.reports.markdown import render_markdown
from evalfleet.reports.model import ReportModel
from evalfleet.reports.text import render_text


class Format(StrEnum):
    """A format of `orchestrate report`; `json` is the whole report, `summary` the figures alone."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "md"
    JUNIT = "junit"
    SUMMARY = "summary"

    @property
    def file_name(self) -> str:
        """How the report is called in a directory of reports."""
        named = {Format.TEXT: "report.txt", Format.JUNIT: "junit.xml", Format.SUMMARY: "summary.json"}
        return named.get(self, f"report.{self.value}")


class Reported(Protocol):
    """What is reported: a run of the record store, or one that was read from a report."""

    def cases(self, which: CaseFilter) -> AsyncIterator[CaseView]: ...

    def document(self, arm: str | None = None) -> AsyncIterator[str]: ...


async def render(form: Format, report: ReportModel, run: Reported, arm: str | None = None) -> AsyncIterator[str]:
    """The report in one format, in pieces; `arm` is the one whose document is meant, where there are several."""
    match form:
        case Format.TEXT:
            yield "".join(f"{line}\n" for line in render_text(report))
        case Format.SUMMARY:
            yield to_json(report_value(report)) + "\n"
        case Format.JSON:
            async for piece in run.document(arm):
                yield piece
            yield "\n"
        case Format.MARKDOWN:
            yield render_markdown(report)
        case Format.JUNIT:

            def of_arm(arm: str) -> AsyncIterator[CaseView]:
                return run.cases(CaseFilter(arm=arm))

            async for piece in render_junit(report, of_arm):
                yield piece


async def write_pieces(target: Path, pieces: AsyncIterator[str]) -> None:
    """Write beside `target`, in a folder made when absent, then put it in place. Raises OSError naming the file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with unfinished.open("w", encoding="utf-8", newline="\n") as file:
            async for piece in pieces:
                file.write(piece)
        unfinished.replace(target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            unfinished.unlink()
