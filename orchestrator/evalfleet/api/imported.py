"""A run as it stands in a report document: everything that its formats need, and no record store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from evalfleet.api.options import CaseFilter
from evalfleet.errors import ConfigurationError, DefinitionError, Problem
from evalfleet.model.canonical import parse_exact
from evalfleet.model.report import CaseView
from evalfleet.reports.document_checks import INVALID
from evalfleet.reports.document_import import ImportedReport, import_report
from evalfleet.reports.json_text import to_json
from evalfleet.reports.model import ReportModel


class ImportedRun:
    """A run that was read from a file of `orchestrate report --format json`."""

    def __init__(self, imported: ImportedReport) -> None:
        self._imported = imported

    @property
    def report(self) -> ReportModel:
        return self._imported.report

    async def cases(self, which: CaseFilter) -> AsyncIterator[CaseView]:
        """The cases of an arm, or all."""
        for case in self._imported.cases:
            if which.arm in (None, case.arm):
                yield case

    async def document(self, arm: str | None = None) -> AsyncIterator[str]:
        """The document of an arm, or of the only one; those of several by name.

        Raises ConfigurationError when there is no such arm.
        """
        documents = self._imported.documents
        if arm is not None and arm not in documents:
            raise ConfigurationError(f"the report has no arm {arm!r}, only {', '.join(documents)}")
        chosen = arm if arm is not None or len(documents) != 1 else next(iter(documents))
        yield to_json({"arms": dict(documents)} if chosen is None else documents[chosen])


async def read_report(file: Path) -> ImportedRun:
    """The run in a report file. Raises DefinitionError, EVALUATION_RESUME_INVALID, with each place that is wrong."""
    return await asyncio.to_thread(_read, file)


def _read(file: Path) -> ImportedRun:
    try:
        value: Any = parse_exact(file.read_bytes())
    except ValueError as error:
        problem = Problem(INVALID, f"is no JSON ({type(error).__name__})", str(file))
        raise DefinitionError(INVALID, [problem]) from None
    return ImportedRun(import_report(value, str(file)))
