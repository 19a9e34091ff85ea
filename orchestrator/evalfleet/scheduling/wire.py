"""Exchange messages as bytes: encoded once, cut into pieces that a cluster carries inline. Pure."""

from __future__ import annotations

import msgspec

from evalfleet.scheduling.messages import ExchangeReply, ExchangeRequest

#: Ray carries an argument inline up to 100 KB; above it the object store takes part, which costs more.
PIECE = 90_000

_encoder = msgspec.msgpack.Encoder()
_requests = msgspec.msgpack.Decoder(ExchangeRequest)
_replies = msgspec.msgpack.Decoder(ExchangeReply)


def encode(message: ExchangeRequest | ExchangeReply) -> bytes:
    """One message as msgpack."""
    return _encoder.encode(message)


def pieces(data: bytes) -> list[bytes]:
    """`data` cut into pieces of at most `PIECE` bytes, at least one."""
    return [data[start : start + PIECE] for start in range(0, len(data), PIECE)] or [b""]


def decode_request(parts: tuple[bytes, ...]) -> ExchangeRequest:
    return _requests.decode(parts[0] if len(parts) == 1 else b"".join(parts))


def decode_reply(data: bytes) -> ExchangeReply:
    return _replies.decode(data)
