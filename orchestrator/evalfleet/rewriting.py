"""A stream that changes what is written through it."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, TextIO


class Rewriting(io.TextIOBase):
    """`stream`, but for what is written, which goes through `rewrite` first, piece by piece."""

    def __init__(self, stream: TextIO, rewrite: Callable[[str], str]) -> None:
        self._stream = stream
        self._rewrite = rewrite

    def write(self, text: str, /) -> int:
        kept = self._rewrite(text)
        if kept:
            self._stream.write(kept)
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    def __getattr__(self, name: str) -> Any:
        """What only a real stream has: its buffer, its encoding."""
        return getattr(self._stream, name)
