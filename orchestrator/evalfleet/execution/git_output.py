"""What git prints about two trees, read back: changed paths with their facts, and a patch for each. Pure."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from evalfleet.model.changes import ChangeKind, FileFacts

_NOTHING: Final = "0" * 40
_KINDS = {"A": ChangeKind.ADDED, "M": ChangeKind.MODIFIED, "D": ChangeKind.DELETED, "T": ChangeKind.TYPE}
#: Only a header can begin so: lines of hunks begin with a sign, those of binary patches hold no blank.
_SECTION = re.compile(rb"^diff --git ", re.MULTILINE)
_BINARY = re.compile(rb"^GIT binary patch$", re.MULTILINE)
_ESCAPES = {7: "a", 8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r", 34: '"', 92: "\\"}


@dataclass(frozen=True, slots=True)
class RawChange:
    """One entry of `diff-tree --raw`: modes and blob ids; a blob of zeros is no file."""

    path: bytes
    kind: ChangeKind
    modes: tuple[int, int]
    blobs: tuple[str, str]

    def facts(self, sizes: dict[str, int]) -> tuple[FileFacts | None, FileFacts | None]:
        """The file at both ends, each None where there is none."""
        before, after = (
            None if blob == _NOTHING else FileFacts(mode, sizes[blob], blob)
            for mode, blob in zip(self.modes, self.blobs, strict=True)
        )
        return before, after


def read_raw(output: bytes) -> list[RawChange]:
    """The entries of `git diff-tree -r -z --raw --no-renames`. Raises ValueError for anything else."""
    fields = output.split(b"\0")
    if fields.pop():
        raise ValueError("the list of changes does not end with a NUL")
    if len(fields) % 2:
        raise ValueError("a change has no path")
    return [_raw_change(fields[at].decode("ascii"), fields[at + 1]) for at in range(0, len(fields), 2)]


def _raw_change(head: str, path: bytes) -> RawChange:
    before_mode, after_mode, before, after, status = head.removeprefix(":").split(" ")
    kind = _KINDS.get(status)
    if kind is None or not head.startswith(":"):
        raise ValueError(f"unknown change {head!r}")
    if kind is ChangeKind.MODIFIED and before == after:
        kind = ChangeKind.MODE
    return RawChange(path, kind, (int(before_mode, 8), int(after_mode, 8)), (before, after))


def blobs_of(changes: Sequence[RawChange]) -> list[str]:
    """Every blob of the changes, once."""
    return list(dict.fromkeys(blob for change in changes for blob in change.blobs if blob != _NOTHING))


def read_sizes(blobs: Sequence[str], output: bytes) -> dict[str, int]:
    """The sizes of blobs from `git cat-file --batch-check=%(objectsize)`, a line each. Raises ValueError."""
    lines = output.splitlines()
    if len(lines) != len(blobs):
        raise ValueError(f"{len(lines)} sizes of {len(blobs)} blobs")
    return {blob: int(line) for blob, line in zip(blobs, lines, strict=True)}


def read_patches(output: bytes) -> dict[bytes, bytes]:
    """The patch of each path from `git diff-tree -p`, keyed by its header line; a change of type has two parts."""
    starts = [match.start() for match in _SECTION.finditer(output)]
    found: dict[bytes, bytes] = {}
    for start, end in itertools.pairwise([*starts, len(output)]):
        section = output[start:end]
        header = section[: section.index(b"\n")]
        found[header] = found.get(header, b"") + section
    return found


def patch_header(path: bytes) -> bytes:
    """The line that begins the patch of a path."""
    return b"diff --git " + _quoted(b"a/" + path) + b" " + _quoted(b"b/" + path)


def is_binary(patch: bytes) -> bool:
    """Whether a patch holds bytes instead of lines."""
    return _BINARY.search(patch) is not None


def _quoted(path: bytes) -> bytes:
    """A path as git writes it with `core.quotePath`: in quotes when any of it needs an escape."""
    if all(32 <= byte < 127 and byte not in _ESCAPES for byte in path):
        return path
    return b'"' + "".join(map(_escaped, path)).encode("ascii") + b'"'


def _escaped(byte: int) -> str:
    if byte in _ESCAPES:
        return "\\" + _ESCAPES[byte]
    return chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}"


def decoded(path: bytes) -> str:
    """A path as text; what is no UTF-8 becomes surrogates."""
    return os.fsdecode(path)
