"""The history of one workdir in a private repository: a tree for each look at it, and what differs between two.

Nothing of the workdir is written, so that a repository in it keeps its index and its HEAD; what lies in such a
repository, or in one below it, is followed like any other file.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from evalfleet.execution.git import CaptureError, GitTool, PrivateRepository
from evalfleet.execution.git_output import (
    RawChange,
    blobs_of,
    decoded,
    is_binary,
    patch_header,
    read_patches,
    read_raw,
    read_sizes,
)
from evalfleet.execution.workdir_scan import LARGE, Scan, scan
from evalfleet.model.changes import Change
from evalfleet.model.path_pattern import IgnoreRules

#: Bytes of arguments, and of contents, of one command.
_ARGUMENTS, _CONTENTS = 256 << 10, 8 << 20
#: Git has nothing to say of none of the paths.
_NONE_IGNORED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The paths that are followed, the changes kept of one difference, and the bytes of patches kept in all."""

    paths: int = 100_000
    changes: int = 10_000
    patches: int = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The workdir at one moment: the id of its tree, and what was seen beside it. `omitted` paths are not in it."""

    tree: str
    unread: tuple[str, ...]
    omitted: int
    binary: frozenset[str]
    rules: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What differs between two looks, and how many changes beyond the limit do, too."""

    changes: tuple[Change, ...]
    omitted: int


class WorkdirHistory:
    """Looks at a workdir and compares looks. For one caller at a time.

    Everything raises CaptureError: an empty difference means that nothing differs.
    """

    def __init__(self, tool: GitTool, folder: Path, ignored: IgnoreRules, limits: Limits | None = None) -> None:
        self._repository = PrivateRepository(tool, folder)
        self._ignored = ignored
        self._limits = limits or Limits()
        self._known: frozenset[str] = frozenset()
        self._room = self._limits.patches

    async def look(self, root: Path) -> Look:
        """Take the workdir, which lies at `root`, as it is now."""
        try:
            found, listed, omitted = await asyncio.to_thread(self._survey, root)
        except OSError as error:
            raise CaptureError(f"the workdir can't be read: {error.strerror}") from error
        await self._repository.run(
            root, "update-index", "--add", "--remove", "--replace", "-z", "--stdin", stdin=listed
        )
        tree = (await self._repository.run(root, "write-tree")).decode("ascii").strip()
        return Look(tree=tree, unread=found.unread, omitted=omitted, binary=found.binary, rules=found.rules)

    async def compare(self, root: Path, before: Look, after: Look) -> Difference:
        """What differs between two looks, of which `after` is the last."""
        if before.tree == after.tree:
            return Difference(changes=(), omitted=0)
        try:
            return await self._compared(root, before, after)
        except ValueError as error:
            raise CaptureError(f"what git printed makes no sense: {error}") from error

    def _survey(self, root: Path) -> tuple[Scan, bytes, int]:
        """What there is, the paths that git is to look at, and how many are left out. Blocking.

        Paths of the look before come first: one that is still there was not deleted.
        """
        self._repository.make()
        found = scan(root, self._ignored)
        paths = found.paths
        if len(paths) > self._limits.paths:
            paths = sorted(paths, key=lambda path: path not in self._known)[: self._limits.paths]
        followed = frozenset(paths)
        listed = b"".join(os.fsencode(path) + b"\0" for path in sorted(followed | self._known))
        self._known = followed
        return found, listed, len(found.paths) - len(followed)

    async def _compared(self, root: Path, before: Look, after: Look) -> Difference:
        run, trees = self._repository.run, (before.tree, after.tree)
        raw = read_raw(await run(root, "diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", *trees))
        kept = raw[: self._limits.changes]
        blobs = blobs_of(kept)
        listed = "\n".join(blobs).encode("ascii")
        sizes = read_sizes(blobs, await run(root, "cat-file", "--batch-check=%(objectsize)", stdin=listed))
        patches = await self._patches(root, trees, kept, sizes)
        ignored = await self._ignored_by_project(root, kept) if after.rules else frozenset[str]()
        binary = before.binary | after.binary
        changes = tuple(_change(one, sizes, patches, binary, ignored) for one in kept)
        return Difference(changes=changes, omitted=len(raw) - len(kept))

    async def _patches(
        self, root: Path, trees: tuple[str, str], changes: Sequence[RawChange], sizes: dict[str, int]
    ) -> dict[bytes, bytes]:
        """The patches of all changes that are small enough, by their header, as long as there is room."""
        found: dict[bytes, bytes] = {}
        options = ("-p", "--binary", "--full-index", "--no-renames", "--no-color", "--no-ext-diff", "--no-textconv")
        prefixes = ("--src-prefix=a/", "--dst-prefix=b/")
        for paths in _batches(changes, sizes):
            if self._room <= 0:
                break
            names = [f":(literal){decoded(path)}" for path in paths]
            output = await self._repository.run(root, "diff-tree", "-r", *options, *prefixes, *trees, "--", *names)
            for header, patch in read_patches(output).items():
                if len(patch) <= self._room:
                    found[header] = patch
                    self._room -= len(patch)
        return found

    async def _ignored_by_project(self, root: Path, changes: Sequence[RawChange]) -> frozenset[str]:
        """Which of the changed files the project's own .gitignore leaves out."""
        there = b"".join(b"./" + change.path + b"\0" for change in changes if change.modes[1])  # no path is a pattern
        if not there:
            return frozenset()
        arguments = ("check-ignore", "--no-index", "-z", "--stdin")
        output = await self._repository.run(root, *arguments, stdin=there, also=_NONE_IGNORED)
        return frozenset(decoded(path.removeprefix(b"./")) for path in output.split(b"\0"))


def _batches(changes: Sequence[RawChange], sizes: dict[str, int]) -> Iterator[list[bytes]]:
    """The paths whose patches are asked for, as many at once as fit a command."""
    batch: list[bytes] = []
    arguments = contents = 0
    for change in changes:
        size = sum(facts.size for facts in change.facts(sizes) if facts is not None)
        if _is_large(change, sizes):
            continue
        if batch and (arguments + len(change.path) > _ARGUMENTS or contents + size > _CONTENTS):
            yield batch
            batch, arguments, contents = [], 0, 0
        batch.append(change.path)
        arguments += len(change.path) + 1
        contents += size
    if batch:
        yield batch


def _is_large(change: RawChange, sizes: dict[str, int]) -> bool:
    return any(facts is not None and facts.size > LARGE for facts in change.facts(sizes))


def _change(
    raw: RawChange, sizes: dict[str, int], patches: dict[bytes, bytes], binary: frozenset[str], ignored: frozenset[str]
) -> Change:
    before, after = raw.facts(sizes)
    path = decoded(raw.path)
    # a large file has none, also where another path asked for all below its name
    patch = None if _is_large(raw, sizes) else patches.get(patch_header(raw.path))
    return Change(
        path=path,
        kind=raw.kind,
        before=before,
        after=after,
        binary=path in binary if patch is None else is_binary(patch),
        ignored=path in ignored,
        patch=patch,
    )
