"""What git prints, read back: a table of its forms, and what makes no sense."""

from __future__ import annotations

import pytest

from evalfleet.execution.git_output import (
    RawChange,
    blobs_of,
    is_binary,
    patch_header,
    read_patches,
    read_raw,
    read_sizes,
)
from evalfleet.model.changes import ChangeKind, FileFacts

A, B, NONE = "a" * 40, "b" * 40, "0" * 40


@pytest.mark.parametrize(
    ("head", "kind", "modes", "blobs"),
    [
        (f":000000 100644 {NONE} {B} A", ChangeKind.ADDED, (0, 0o100644), (NONE, B)),
        (f":100644 100644 {A} {B} M", ChangeKind.MODIFIED, (0o100644, 0o100644), (A, B)),
        (f":100644 100755 {A} {B} M", ChangeKind.MODIFIED, (0o100644, 0o100755), (A, B)),
        (f":100644 100755 {A} {A} M", ChangeKind.MODE, (0o100644, 0o100755), (A, A)),
        (f":100644 000000 {A} {NONE} D", ChangeKind.DELETED, (0o100644, 0), (A, NONE)),
        (f":100644 120000 {A} {B} T", ChangeKind.TYPE, (0o100644, 0o120000), (A, B)),
    ],
)
def test_an_entry(head: str, kind: ChangeKind, modes: tuple[int, int], blobs: tuple[str, str]) -> None:
    path = b'a \n\t"\xff.txt'
    assert read_raw(head.encode() + b"\0" + path + b"\0") == [RawChange(path, kind, modes, blobs)]


def test_no_entries() -> None:
    assert read_raw(b"") == []


@pytest.mark.parametrize(
    "output",
    [
        b"cut off",
        f":100644 100644 {A} {B} M\0".encode(),
        f":100644 100644 {A} {B} R100\0x\0y\0\0".encode(),
        f"100644 100644 {A} {B} M\0x\0".encode(),
        b"fatal: no\0x\0",
    ],
)
def test_what_makes_no_sense_is_never_no_change(output: bytes) -> None:
    with pytest.raises(ValueError):
        read_raw(output)


def test_facts_of_both_ends() -> None:
    added, changed = read_raw(f":000000 100644 {NONE} {B} A\0x\0:100644 100755 {A} {B} M\0y\0".encode())
    assert blobs_of([added, changed]) == [B, A]
    sizes = read_sizes([B, A], b"3\n12\n")
    assert added.facts(sizes) == (None, FileFacts(0o100644, 3, B))
    assert changed.facts(sizes) == (FileFacts(0o100644, 12, A), FileFacts(0o100755, 3, B))


@pytest.mark.parametrize("output", [b"3\n", b"3\nbbb missing\n", b""])
def test_a_size_that_is_missing(output: bytes) -> None:
    with pytest.raises(ValueError):
        read_sizes([B, A], output)


@pytest.mark.parametrize(
    ("path", "header"),
    [
        (b"a.txt", b"diff --git a/a.txt b/a.txt"),
        (b"a b.txt", b"diff --git a/a b.txt b/a b.txt"),
        ("ä".encode(), rb'diff --git "a/\303\244" "b/\303\244"'),
        (b'"\\\n\t\x01\x7f', rb'diff --git "a/\"\\\n\t\001\177" "b/\"\\\n\t\001\177"'),
    ],
)
def test_the_header_of_a_path(path: bytes, header: bytes) -> None:
    assert patch_header(path) == header


def test_patches_are_split_at_headers_and_nowhere_else() -> None:
    first = b"diff --git a/x b/x\nindex a..b 100644\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-diff --git a/y b/y\n+\r\n"
    typed = b"diff --git a/l b/l\ndeleted file mode 100644\n"
    linked = b"diff --git a/l b/l\nnew file mode 120000\n\\ No newline at end of file\n"
    found = read_patches(first + typed + linked)
    assert found == {patch_header(b"x"): first, patch_header(b"l"): typed + linked}
    assert b"".join(found.values()) == first + typed + linked
    assert read_patches(b"") == {}


def test_a_binary_patch_is_known_by_its_own_line() -> None:
    assert is_binary(b"diff --git a/x b/x\nindex a..b\nGIT binary patch\nliteral 3\n")
    assert not is_binary(b"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n+GIT binary patch\n")
