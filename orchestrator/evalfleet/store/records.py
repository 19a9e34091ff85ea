"""The evidence of many cases, read with one question for as many of them as fit in memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from evalfleet.errors import ConfigurationError
from evalfleet.model.report import AttemptDetail
from evalfleet.store import read_sql
from evalfleet.store.evidence import EvidenceReader

Ask = Callable[[bytes, Any], Awaitable[Sequence[tuple[Any, ...]]]]

#: Stored bytes that one question brings, not counting the attempt that exceeds them.
PAGE_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Origin:
    """The attempt that a case is carried from, as a grading judged it."""

    run_key: int
    run: str
    attempt: int
    grading: int = 0


class RecordReader:
    """Reads attempts by the hundred and decodes them one at a time; `ask` answers a statement with its rows."""

    def __init__(self, ask: Ask, evidence: EvidenceReader) -> None:
        self._ask = ask
        self._evidence = evidence

    async def of_cases(
        self, run_key: int, run: str, ordinals: Sequence[int], grading: int = 0
    ) -> AsyncGenerator[AttemptDetail]:
        """The attempt that settles each of these cases, else its last. Every one was attempted; they ascend.

        Raises ConfigurationError when the run was deleted meanwhile.
        """
        while ordinals:
            given = {"run_key": run_key, "ordinals": [*ordinals], "limit": PAGE_BYTES, "grading": grading}
            rows = await self._ask(read_sql.records_of_cases(grading > 0), given)
            if not rows or [row[1] for row in rows] != [*ordinals[: len(rows)]]:
                raise ConfigurationError(f"run {run} was deleted while it was read")
            for row in rows:
                yield await self._detail(run, row)
            ordinals = ordinals[len(rows) :]

    async def by_number(self, wanted: Sequence[Origin]) -> AsyncGenerator[AttemptDetail]:
        """These attempts in the order given. Raises ConfigurationError when one is not there."""
        while wanted:
            given = {
                "run_keys": [one.run_key for one in wanted],
                "attempts": [one.attempt for one in wanted],
                "gradings": [one.grading for one in wanted],
                "limit": PAGE_BYTES,
            }
            rows = await self._ask(read_sql.records_by_number(any(one.grading for one in wanted)), given)
            for one, row in zip(wanted, rows, strict=False):
                if row[0] is None:
                    raise ConfigurationError(f"run {one.run} has no attempt {one.attempt}")
                yield await self._detail(one.run, row)
            wanted = wanted[len(rows) :]

    async def _detail(self, run: str, row: Sequence[Any]) -> AttemptDetail:
        *columns, pages = row
        return await self._evidence.detail(run, columns, pages or ())
