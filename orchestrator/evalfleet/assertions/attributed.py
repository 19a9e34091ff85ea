"""What an agent changed, as values that remember whether there may be more of it. Pure."""

from __future__ import annotations

from typing import Any, SupportsIndex

from evalfleet.assertions.match import Match
from evalfleet.model.assertion import AssertionResult, Result
from evalfleet.model.changes import Attribution, Change, ChangedBy


class ChangedPaths(tuple[str, ...]):
    """The paths that the agent changed, sorted, each once. `gap` is why some may be missing, None when none is."""

    gap: str | None

    def __new__(cls, paths: tuple[str, ...], gap: str | None) -> ChangedPaths:
        self = super().__new__(cls, paths)
        self.gap = gap
        return self

    @staticmethod
    def under_gap(_: Match, outcome: AssertionResult, gap: str) -> AssertionResult:
        """One more path may change any answer."""
        return outcome if outcome.result is Result.ERRORED else AssertionResult(result=Result.UNAVAILABLE, reason=gap)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return ChangedPaths, (tuple(self), self.gap)


class DiffText(str):
    """The agent's patches as text. `gap` is why some may be missing, None when none is."""

    __slots__ = ("gap",)
    gap: str | None

    def __new__(cls, text: str, gap: str | None) -> DiffText:
        self = super().__new__(cls, text)
        self.gap = gap
        return self

    @staticmethod
    def under_gap(match: Match, outcome: AssertionResult, gap: str) -> AssertionResult:
        """Text that is there stays."""
        return match.under_gap(outcome, gap)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return DiffText, (str(self), self.gap)


def changed_paths(seen: Attribution) -> ChangedPaths:
    return ChangedPaths(tuple(sorted({change.path for change in seen.agent})), seen.gap)


def diff_text(seen: Attribution) -> DiffText:
    """The patches of all windows of the agent's, one after the other; bytes that are no UTF-8 are replaced."""
    windows = [window for window in seen.windows if window.by is ChangedBy.AGENT and window.changes]
    parts: list[str] = []
    for window in windows:
        if len(windows) > 1:
            parts.append(f"# {window.label}\n")
        parts += [patch_text(change) for change in window.changes]
    return DiffText("".join(parts), seen.gap)


def patch_text(change: Change) -> str:
    """The patch of a change as text; of content that was not kept, what is known of it."""
    if change.patch is not None:
        return change.patch.decode("utf-8", "replace")
    path = change.path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    what = "binary, " if change.binary else ""
    return f"# {change.kind.value} {path}: {what}{size_text(change.size)}, not kept\n"


def size_text(size: int) -> str:
    """`20 MB`, `1 byte`."""
    for unit, name in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return "1 byte" if size == 1 else f"{size} bytes"
