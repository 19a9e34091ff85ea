"""What changed in a sandbox's workdir, and by whom: a window for each send, and one for what the eval did before it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum

#: Names that are left out at any depth: what tools make, not what anybody writes. `.git` is always among them.
DEFAULT_IGNORED = (
    *(".git", "node_modules", ".next", "dist", "build", ".turbo", "coverage", ".cache", ".pnpm-store", ".npm"),
    *(".yarn", ".venv", "venv", "__pycache__"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackChanges:
    """That the changes in the workdir are followed, and which paths are left out.

    `ignore` are patterns beside `DEFAULT_IGNORED`: a name anywhere (`*.log`), or a path from the workdir (`/out`,
    `docs/_build`), each with all below it. `include` names those of either that are followed all the same.
    """

    ignore: tuple[str, ...] = ()
    include: tuple[str, ...] = ()


class ChangeKind(StrEnum):
    """How a path differs: its content, only its mode, or what it is (a file, a link)."""

    ADDED = "added"
    MODIFIED = "modified"
    DELETED = "deleted"
    MODE = "mode"
    TYPE = "type"


class ChangedBy(StrEnum):
    AGENT = "agent"
    EVAL = "eval"


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A file or link at one end of a window: its mode as git writes it (`0o100644`), bytes, and git's blob id."""

    mode: int
    size: int
    blob: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One path that differs between the ends of a window.

    `path` is relative to the workdir; bytes that are no UTF-8 are surrogates, as `os.fsdecode` gives them. `patch` is
    what `git apply` takes, byte by byte; None when the content is too large to keep, of which the facts remain.
    `ignored` says that the project's own .gitignore leaves the path out; the change counts all the same.
    """

    path: str
    kind: ChangeKind
    before: FileFacts | None = None
    after: FileFacts | None = None
    binary: bool = False
    ignored: bool = False
    patch: bytes | None = b""

    @property
    def size(self) -> int:
        """The bytes of the larger side."""
        return max((facts.size for facts in (self.before, self.after) if facts is not None), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What one author changed between two looks at the workdir, whose trees are `before` and `after`.

    `label` is the send that it belongs to or, for the eval, precedes: `turn2`, `session2/turn1`. `omitted` counts
    changes or paths beyond the limits, `unread` names paths that could not be read.
    """

    label: str
    by: ChangedBy
    before: str
    after: str
    changes: tuple[Change, ...] = ()
    omitted: int = 0
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """All windows of an attempt in their order. `error` says why what came after them is not known."""

    windows: tuple[Window, ...] = ()
    error: str | None = None

    @property
    def agent(self) -> tuple[Change, ...]:
        """What the agent changed, window after window; a path may stand in several."""
        return tuple(change for window in self._agent_windows for change in window.changes)

    @property
    def gap(self) -> str | None:
        """Why there may be more changes of the agent's, as a reason; None when all are here."""
        if self.error is not None:
            return f"diff:unavailable ({self.error})"
        omitted = sum(window.omitted for window in self._agent_windows)
        unread = [path for window in self._agent_windows for path in window.unread]
        parts = [f"{omitted} beyond the limits"] if omitted else []
        parts += [f"{len(unread)} unreadable: {unread[0]}"] if unread else []
        return f"diff:partial ({', '.join(parts)})" if parts else None

    def of(self, labels: Collection[str]) -> Attribution:
        """Only the windows of these sends."""
        return replace(self, windows=tuple(window for window in self.windows if window.label in labels))

    @property
    def _agent_windows(self) -> list[Window]:
        return [window for window in self.windows if window.by is ChangedBy.AGENT]


def turn_label(session: int, index: int) -> str:
    """The label of a send, by the 0-based numbers of its session and of its turn in there."""
    return f"turn{index + 1}" if session == 0 else f"session{session + 1}/turn{index + 1}"
