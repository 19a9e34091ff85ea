"""Reading an attempt's evidence back from its bytes, wherever they stand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from evalfleet.errors import StoreError
from evalfleet.model.events import Event
from evalfleet.model.grading import Basis
from evalfleet.model.report import AttemptDetail
from evalfleet.ports import ArtifactStore
from evalfleet.store.blobs import Unpacker, referenced
from evalfleet.store.record_codec import Decoded, decode, decode_event, event_counts
from evalfleet.store.views import attempt_view


class EvidenceReader:
    """Decodes records and event pages; fetches from the artifact store what stands there."""

    def __init__(self, artifacts: ArtifactStore | None) -> None:
        self._artifacts = artifacts
        self._unpacker = Unpacker()

    async def value(self, run: str, body: bytes) -> Any:
        """The JSON value of a body. Raises StoreError when it is damaged or can't be fetched."""
        sha256 = referenced(body)
        if sha256 is not None:
            if self._artifacts is None:
                raise StoreError(f"evidence of run {run} stands in the artifact store, which this reader was not given")
            body = await self._artifacts.get(run, sha256)
        return self._unpacker.unpack(body)

    async def decoded(self, run: str, record: bytes, pages: Iterable[bytes]) -> Decoded:
        """The whole evidence of an attempt, from its record and all its pages in order."""
        head, *inline = await self.value(run, record)
        counts = event_counts(head)
        if len(inline) != len(counts):
            stream: list[Any] = []
            for page in pages:
                stream += await self.value(run, page)
            if len(stream) != sum(counts):
                raise StoreError(f"an attempt of run {run} has {len(stream)} of its {sum(counts)} events")
            inline = _split(stream, counts)
        return decode(head, inline)

    async def detail(self, run: str, row: Sequence[Any], pages: Iterable[bytes]) -> AttemptDetail:
        """An attempt with its whole evidence, from its columns and records.

        An interrupted one, of which nobody handed a record over, has none. What a later grading judged itself stands
        in a record of its own, beside the turns of the attempt's.
        """
        *columns, basis, reason, judged, record = row
        view = attempt_view(columns)
        if record is None:
            return AttemptDetail(view=view, turns=(), assertions=())
        found = await self.decoded(run, record, pages)
        grading = found if judged is None else await self.decoded(run, judged, ())
        if grading.message is not None:
            view = replace(view, message=grading.message)
        return AttemptDetail(
            view=view,
            turns=found.turns,
            assertions=grading.assertions,
            diagnostics=grading.diagnostics,
            judge_calls=grading.judge_calls,
            sandbox=found.sandbox,
            attribution=found.attribution,
            attachments=found.attachments,
            basis=None if basis is None else Basis(basis),
            kept_because=reason,
            outcome_before_cleanup=found.extra.get("outcome_before_cleanup"),
            waited=found.extra.get("waited", 0.0),
            begun_by=found.begun_by,
        )

    async def inline_events(self, run: str, record: bytes) -> list[Event]:
        """The events that stand in the record itself, over all turns; empty when they stand in pages."""
        _, *inline = await self.value(run, record)
        return [decode_event(event) for turn in inline for event in turn]

    async def page_events(self, run: str, body: bytes) -> list[Event]:
        return [decode_event(event) for event in await self.value(run, body)]


def _split(stream: Sequence[Any], counts: Iterable[int]) -> list[list[Any]]:
    parts: list[list[Any]] = []
    start = 0
    for count in counts:
        parts.append(list(stream[start : start + count]))
        start += count
    return parts
