"""The evidence of many cases, read with one question for as many of them as fit in memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from evalfleet.errors import ConfigurationError
from evalfleet.model.report import AttemptDetail
from evalfleet.store import read_sql
from evalfleet.store.evidence import EvidenceReader
from evalfleet.store.views import attempt_view

Ask = Callable[[bytes, Any], Awaitable[Sequence[tuple[Any, ...]]]]

#: Stored bytes that one question brings, unless a single attempt has more.
PAGE_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Wanted:
    """An attempt by its number, or with None the one that settles the case, else the last one of it."""

    run_key: int
    run: str
    ordinal: int
    attempt: int | None


async def attempt_details(
    ask: Ask, evidence: EvidenceReader, wanted: Sequence[Wanted]
) -> AsyncGenerator[AttemptDetail]:
    """The attempts in the order wanted, decoded one at a time. Raises ConfigurationError when one is not there."""
    while wanted:
        given = {
            "run_keys": [one.run_key for one in wanted],
            "ordinals": [one.ordinal for one in wanted],
            "attempts": [one.attempt for one in wanted],
            "limit": PAGE_BYTES,
        }
        rows = await ask(read_sql.RECORDS, given)
        for one, (*columns, record, pages) in zip(wanted, rows, strict=False):
            if columns[0] is None:
                raise ConfigurationError(f"case {one.ordinal} of run {one.run} has no attempt")
            yield await evidence.detail(one.run, attempt_view(columns), record, pages or ())
        wanted = wanted[len(rows) :]
