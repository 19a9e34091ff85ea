"""Reports and allotments as bytes. Pure."""

from __future__ import annotations

import msgspec

from evalfleet.governor.messages import Allotment, WorkerReport

_encoder = msgspec.msgpack.Encoder()
_reports = msgspec.msgpack.Decoder(WorkerReport)
_allotments = msgspec.msgpack.Decoder(tuple[Allotment, ...])


def encode(message: WorkerReport | tuple[Allotment, ...]) -> bytes:
    """A report, or the allotments that answer it, as msgpack."""
    return _encoder.encode(message)


def decode_report(data: bytes) -> WorkerReport:
    return _reports.decode(data)


def decode_allotments(data: bytes) -> tuple[Allotment, ...]:
    return _allotments.decode(data)
