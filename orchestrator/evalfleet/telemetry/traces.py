"""The trace that an attempt's spans belong to: its id says which attempt it is, to whoever receives them. PURE."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

_KEY, _ATTEMPT, _TAG = 4, 8, 4


@dataclass(frozen=True, slots=True)
class TraceOwner:
    """What a trace id says: the store's number of a run, an attempt of it, and a tag that only that run's id gives."""

    run_key: int
    attempt: int
    tag: bytes

    def is_of(self, run: str) -> bool:
        """Whether the id was made for an attempt of the run of this id."""
        return self.tag == _tag(run, self.attempt)


def trace_id(run: str, run_key: int, attempt: int) -> str:
    """32 hexadecimal digits, the same whenever they are asked for; spread, as samplers expect of a trace id."""
    tag = _tag(run, attempt)
    said = run_key.to_bytes(_KEY) + attempt.to_bytes(_ATTEMPT)
    return (tag + _masked(said, tag)).hex()


def owner_of(trace: str) -> TraceOwner:
    """What a trace id of 32 hexadecimal digits says, if it was made here; else nonsense that `is_of` no run."""
    data = bytes.fromhex(trace)
    tag, said = data[:_TAG], _masked(data[_TAG:], data[:_TAG])
    return TraceOwner(int.from_bytes(said[:_KEY]), int.from_bytes(said[_KEY:]), tag)


def traceparent(trace: str) -> str:
    """The W3C `traceparent` of whoever begins the trace: sampled, under a span that is the attempt's own."""
    return f"00-{trace}-{root_span(trace)}-01"


def root_span(trace: str) -> str:
    """The id of the span that stands for the attempt itself."""
    digest = hashlib.sha256(b"attempt " + trace.encode()).digest()[:8]
    return digest.hex() if any(digest) else "1" * 16


def _tag(run: str, attempt: int) -> bytes:
    tag = hashlib.sha256(f"{run}/{attempt}".encode()).digest()[:_TAG]
    return tag if any(tag) else b"\1" * _TAG


def _masked(data: bytes, tag: bytes) -> bytes:
    mask = hashlib.sha256(b"evalfleet" + tag).digest()
    return bytes(one ^ other for one, other in zip(data, mask, strict=False))
