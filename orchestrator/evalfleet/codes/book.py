"""All codes, by chapter and by name. PURE."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from evalfleet.codes.attempts import ATTEMPTS
from evalfleet.codes.definitions import DEFINITIONS
from evalfleet.codes.runs import RUNS
from evalfleet.codes.tables import Chapter, ErrorCode
from evalfleet.codes.warnings import WARNINGS

CHAPTERS: tuple[Chapter, ...] = (DEFINITIONS, WARNINGS, ATTEMPTS, RUNS)

CODES: Mapping[str, ErrorCode] = MappingProxyType(
    {code.name: code for chapter in CHAPTERS for table in chapter.tables for code in table.codes}
)
