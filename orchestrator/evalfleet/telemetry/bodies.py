"""From the bytes of a request to spans: its media type, its compression, its encoding. PURE."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from evalfleet.model.span import Span
from evalfleet.telemetry import json_body, protobuf
from evalfleet.telemetry.decoded import BadBody, Tally

#: Bytes of a body, as sent and expanded.
LARGEST_BODY = 4 << 20
_GZIP = b"\x1f\x8b"
#: Files that gzip may have put one behind the other: each costs a copy of all that follow.
_MOST_PARTS = 64


class Encoding(StrEnum):
    """How spans are encoded; the value is the media type."""

    PROTOBUF = "application/x-protobuf"
    JSON = "application/json"


class TooLarge(ValueError):
    """A body that is larger than LARGEST_BODY, or would be."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A body that was checked: what its spans are decoded from when they are kept."""

    encoding: Encoding
    body: bytes
    count: int

    def spans(self) -> Sequence[Span]:
        """The `count` spans."""
        if not self.count:
            return ()
        if self.encoding is Encoding.PROTOBUF:
            return protobuf.decode_protobuf(self.body)
        return json_body.decode_json(self.body)[0]


def encoding_of(content_type: str) -> Encoding | None:
    """The encoding that a Content-Type names, whatever its parameters; None for one that is not OTLP's."""
    kind = content_type.partition(";")[0].strip().lower()
    return {"application/protobuf": Encoding.PROTOBUF}.get(kind) or next((e for e in Encoding if e == kind), None)


def open_body(encoding: Encoding, body: bytes, *, compressed: bool) -> tuple[Delivery, Tally]:
    """What a body holds; gzip is known by its first bytes, too. An empty body holds nothing.

    Raises BadBody and TooLarge.
    """
    if body and (compressed or body.startswith(_GZIP)):
        body = expand(body)
    if not body:
        return Delivery(encoding, b"", 0), Tally()
    tally = protobuf.check_protobuf(body) if encoding is Encoding.PROTOBUF else json_body.decode_json(body)[1]
    return Delivery(encoding, body, tally.accepted), tally


def expand(body: bytes) -> bytes:
    """What gzip made smaller. Raises TooLarge before more than LARGEST_BODY is made of it, BadBody for no gzip."""
    parts: list[bytes] = []
    size = 0
    while body:
        reader = zlib.decompressobj(zlib.MAX_WBITS | 16)
        try:
            part = reader.decompress(body, LARGEST_BODY - size + 1)
        except zlib.error as error:
            raise BadBody(f"the body is no gzip: {error}") from None
        size += len(part)
        if size > LARGEST_BODY:
            raise TooLarge(f"the body expands to more than {LARGEST_BODY} bytes: send smaller batches")
        if not reader.eof:
            raise BadBody("the body is gzip that breaks off")
        parts.append(part)
        if len(parts) > _MOST_PARTS:
            raise BadBody(f"the body is more than {_MOST_PARTS} gzip files one behind the other")
        body = reader.unused_data
    return b"".join(parts)


def answer(encoding: Encoding, rejected: int, why: str) -> bytes:
    """The body of a success, in the encoding of the request."""
    module = protobuf if encoding is Encoding.PROTOBUF else json_body
    return module.encode_answer(rejected, why)


def refusal(encoding: Encoding, message: str) -> bytes:
    """The body of an error, in the encoding of the request."""
    module = protobuf if encoding is Encoding.PROTOBUF else json_body
    return module.encode_refusal(message)
