"""Ids, locators and digests."""

from __future__ import annotations

import hashlib

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford base32, lower case

#: An attempt id is the claiming epoch above this many bits of counter: never reused after a restart.
COUNTER_BITS = 40


def run_id_from(entropy: int) -> str:
    """A short run id of ten base32 characters from 50 bits of entropy."""
    return "".join(_ALPHABET[(entropy >> shift) & 31] for shift in range(45, -1, -5))


def attempt_id(epoch: int, counter: int) -> int:
    """The id of the `counter`-th attempt granted under `epoch`; fits a signed 64-bit integer."""
    if not 0 < epoch < 1 << 22 or not 0 <= counter < 1 << COUNTER_BITS:
        raise ValueError(f"attempt id out of range: epoch {epoch}, counter {counter}")
    return epoch << COUNTER_BITS | counter


def attempt_epoch(identifier: int) -> int:
    """The epoch under which an attempt was granted."""
    return identifier >> COUNTER_BITS


def sha256(data: bytes) -> str:
    """The SHA-256 of `data` in lower-case hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def row_id(index: int, width: int = 4) -> str:
    """The id of a dataset row by position, zero-padded to `width`, longer when needed."""
    return f"{index:0{width}d}"
