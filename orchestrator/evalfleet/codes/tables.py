"""An error code, and the tables and chapters that codes stand in. PURE."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """A code that does not change once it is released: what it says, and what to check first where that is not plain.

    Both are Markdown, on one line.
    """

    name: str
    says: str
    check: str = ""


@dataclass(frozen=True, slots=True)
class CodeTable:
    """Codes of one origin."""

    title: str
    codes: tuple[ErrorCode, ...]
    about: str = ""


@dataclass(frozen=True, slots=True)
class Chapter:
    """Tables of codes that are met at the same time."""

    title: str
    about: str
    tables: tuple[CodeTable, ...]
