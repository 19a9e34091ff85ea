"""Spans that agents sent: written in batches by the process that received them, read back as they came.

They are no evidence: nothing of them goes through a coordinator, and a verdict never waits for one.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import psycopg
import zstandard

from evalfleet.errors import StoreError
from evalfleet.store.connection import Connection, first_line
from evalfleet.store.lifeline import Lifeline

#: Seconds that one write waits for a store that is away; whoever writes tries again.
_PATIENCE = 5.0
_EXPANDED_LIMIT = 64 << 20
#: What identifies a batch, and what is in it; its attempt is known beside it.
SPAN_FIELDS = ("attempt", "source", "batch", "at", "spans", "encoding", "body")

# repeatable, as everything that runs on a lifeline
_WRITE = """
INSERT INTO span_batches (run_key, attempt, source, batch, spans, encoding, body)
VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING
"""
_COUNT = """
INSERT INTO span_counts (run_key, source, accepted, late, dropped, refused)
VALUES (%(run_key)s, %(source)s, %(accepted)s, %(late)s, %(dropped)s, %(refused)s)
ON CONFLICT (run_key, source) DO UPDATE SET accepted = excluded.accepted, late = excluded.late,
    dropped = excluded.dropped, refused = excluded.refused
"""
BATCHES = """
SELECT encoding, body, spans FROM span_batches WHERE run_key = %s AND attempt = %s ORDER BY at, source, batch
"""
COUNTS = "SELECT accepted, late, dropped, refused FROM span_counts WHERE run_key = %s"


@dataclass(frozen=True, slots=True)
class SpanBatch:
    """A body of `spans` spans that an attempt's agent sent; `number` is its own in this process.

    `encoding` is its reader's: the position in `telemetry.bodies.Encoding`.
    """

    attempt: int
    number: int
    spans: int
    encoding: int
    body: bytes


@dataclass(frozen=True, slots=True)
class SpanCounts:
    """What became of spans. `accepted`, `late` and `dropped` are spans, `refused` bodies that were never read."""

    accepted: int = 0
    late: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict[str, int])
    refused: Mapping[str, int] = field(default_factory=dict[str, int])


class SpanStore:
    """Writes the spans of one run that this process receives, over one connection, made when there are some.

    `source` is a random number of this process. A write waits `patience` seconds for a store that is away.
    """

    def __init__(self, url: str, run_key: int, source: int, patience: float = _PATIENCE) -> None:
        self._run_key, self._source = run_key, source
        self._lifeline = Lifeline(url, _prepare, patience)
        self._compressor = zstandard.ZstdCompressor(level=1)

    async def write(self, batches: Sequence[SpanBatch], counts: SpanCounts) -> bool:
        """Write batches, and what this process counted until now; may be repeated. False when the run is gone.

        Raises StoreError when the store stays away.
        """
        rows = await asyncio.to_thread(self._rows, batches)
        counted = {
            "run_key": self._run_key,
            "source": self._source,
            "accepted": counts.accepted,
            "late": counts.late,
            "dropped": json.dumps(counts.dropped),
            "refused": json.dumps(counts.refused),
        }

        async def work(connection: Connection) -> None:
            async with connection.transaction(), connection.cursor() as cursor:
                await cursor.executemany(_WRITE, rows)
                await cursor.execute(_COUNT, counted)

        try:
            await self._lifeline.run(work)
        except psycopg.errors.ForeignKeyViolation:
            return False
        except psycopg.Error as error:
            raise StoreError(f"spans could not be written: {first_line(error)}") from error
        return True

    async def close(self) -> None:
        await self._lifeline.close()

    def _rows(self, batches: Iterable[SpanBatch]) -> list[tuple[Any, ...]]:
        return [
            (self._run_key, each.attempt, self._source, each.number, each.spans, each.encoding, self._packed(each.body))
            for each in batches
        ]

    def _packed(self, body: bytes) -> bytes:
        return self._compressor.compress(body)


def unpacked(body: bytes) -> bytes:
    """The body that a stored one was made of."""
    return zstandard.ZstdDecompressor().decompress(body, max_output_size=_EXPANDED_LIMIT)


def counts_of(rows: Iterable[Sequence[Any]]) -> SpanCounts:
    """The sum of what all processes counted for a run."""
    accepted = late = 0
    dropped, refused = Counter[str](), Counter[str]()
    for row in rows:
        accepted += row[0]
        late += row[1]
        dropped.update(cast("dict[str, int]", json.loads(row[2])))
        refused.update(cast("dict[str, int]", json.loads(row[3])))
    return SpanCounts(accepted, late, +dropped, +refused)


async def _prepare(connection: Connection) -> None:
    """Nothing is to be set up."""
