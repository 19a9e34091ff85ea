"""Evidence as bytes: exact JSON, compressed, with a one-byte head that names the form. PURE."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec
import zstandard

from evalfleet.errors import AttemptFailure, FailureKind, StoreError
from evalfleet.store.dictionary import DICTIONARY_1

#: The forms of a stored body: version in the high half, codec in the low half.
PLAIN: Final = b"\x10"
ZSTD_DICTIONARY: Final = b"\x11"
#: The body stands in the artifact store; what follows is the SHA-256 of the stored bytes.
REFERENCE: Final = b"\x1f"

_LEVEL = 3
_TINY = 48
_EXPANDED_LIMIT = 1 << 31

# ASCII escapes keep NUL and lone surrogates; the circular check is left to the recursion limit, it costs a third.
_ENCODER = json.JSONEncoder(ensure_ascii=True, check_circular=False, separators=(",", ":"))


def to_json(value: Any) -> str:
    """`value` as exact ASCII JSON (NaN and Infinity as Python writes them, integers at any size).

    Raises AttemptFailure of kind adapter when it is no JSON value, is nested too deeply, or holds an integer
    of more digits than Python prints.
    """
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError) as error:
        raise AttemptFailure(FailureKind.ADAPTER, "EVIDENCE_NOT_JSON", f"the evidence is not JSON: {error}") from error
    except RecursionError as error:
        message = "the evidence is nested too deeply, or holds itself"
        raise AttemptFailure(FailureKind.ADAPTER, "EVIDENCE_TOO_DEEP", message) from error


class Packer:
    """Compresses bodies; one per thread, since its compressor keeps its tables between calls."""

    def __init__(self) -> None:
        dictionary = zstandard.ZstdCompressionDict(DICTIONARY_1, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
        dictionary.precompute_compress(level=_LEVEL)  # pyright: ignore[reportUnknownMemberType]
        self._compressor = zstandard.ZstdCompressor(
            level=_LEVEL, dict_data=dictionary, write_checksum=False, write_dict_id=False
        )

    def pack(self, text: str) -> bytes:
        data = text.encode("ascii")
        if len(data) < _TINY:
            return PLAIN + data
        packed = self._compressor.compress(data)
        return ZSTD_DICTIONARY + packed if len(packed) < len(data) else PLAIN + data


class Unpacker:
    """Reads bodies of every form that was ever written; one per thread."""

    def __init__(self) -> None:
        dictionary = zstandard.ZstdCompressionDict(DICTIONARY_1, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
        self._decompressor = zstandard.ZstdDecompressor(dict_data=dictionary, max_window_size=_EXPANDED_LIMIT)

    def unpack(self, body: bytes) -> Any:
        """The JSON value of a body. Raises StoreError when it is damaged or of an unknown form."""
        head, data = body[:1], body[1:]
        try:
            if head == ZSTD_DICTIONARY:
                data = self._decompressor.decompress(data)
            elif head != PLAIN:
                raise StoreError(
                    f"a stored body has the unknown form {head.hex() or 'empty'}; a newer version wrote it"
                )
            return _from_json(data)
        except (zstandard.ZstdError, ValueError) as error:
            raise StoreError(f"a stored body is damaged: {error}") from error


def _from_json(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:  # it is three times as fast, but knows no NaN, no infinity and no lone surrogate
        return json.loads(data)


def reference(sha256: str) -> bytes:
    """The body that stands for one kept in the artifact store."""
    return REFERENCE + bytes.fromhex(sha256)


def referenced(body: bytes) -> str | None:
    """The SHA-256 under which the artifact store keeps this body, None when it stands here."""
    return body[1:].hex() if body[:1] == REFERENCE else None
