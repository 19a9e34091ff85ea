"""What an author asks about the agent's changes: assertions that are answered at the end, and the changes so far."""

from __future__ import annotations

from typing import Generic, cast

from evalfleet.assertions.attributed import ChangedPaths, DiffText, changed_paths, diff_text
from evalfleet.assertions.change_criteria import (
    FileChanged,
    FileDeleted,
    NoChanges,
    NotInDiff,
    unwanted,
)
from evalfleet.assertions.match import Match
from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.execution.scoped import Author, H
from evalfleet.execution.unrecorded import UNRECORDED
from evalfleet.model.changes import Attribution, turn_label
from evalfleet.model.path_pattern import path_pattern


class ChangeAssertions(Generic[H]):
    """Assertions on what the agent changed in its sandbox, over all its sends, also those that are still to come.

    Each is answered when the test body has ended, so that none can stop it. Raises AuthoringError unless the eval's
    sandbox says `changes=TrackChanges()`. Patterns are paths from the workdir with `*`, `?`, `[…]` and `**`.
    """

    __slots__ = ()
    author: Author[H]

    def file_changed(self, path: str) -> H:
        """The agent added or modified a file that fits, or gave it another mode or type."""
        self._require("file_changed")
        return self.author.add("file_changed", FileChanged(path_pattern(path, "file_changed")), None)

    def file_deleted(self, path: str) -> H:
        """The agent deleted a file that fits, whatever became of it later."""
        self._require("file_deleted")
        return self.author.add("file_deleted", FileDeleted(path_pattern(path, "file_deleted")), None)

    def no_changes(self) -> H:
        """The agent changed nothing."""
        self._require("no_changes")
        return self.author.add("no_changes", NoChanges(), None)

    def not_in_diff(self, text: str | Match) -> H:
        """No path that the agent changed, and no text that it added or removed, holds `text` or satisfies a matcher."""
        self._require("not_in_diff")
        return self.author.add("not_in_diff", NotInDiff(unwanted(text)), None)

    def changed_paths(self) -> ChangedPaths:
        """The paths that the agent changed in its sends so far, sorted.

        Raises AttemptFailure when that is not known; what may be incomplete makes a check of it unavailable.
        """
        seen = self._so_far("changed_paths")
        return cast("ChangedPaths", UNRECORDED) if seen is None else changed_paths(seen)

    def diff(self) -> DiffText:
        """The patches of the agent's sends so far, as text. Raises as `changed_paths` does."""
        seen = self._so_far("diff")
        return cast("DiffText", UNRECORDED) if seen is None else diff_text(seen)

    def _require(self, name: str) -> None:
        """Refuse to speak of changes that nobody follows."""
        state = self.author.state
        spec = state.job.definition.sandbox
        if spec is None or spec.changes is None:
            message = f"{name}(): the eval's SandboxSpec does not say changes=TrackChanges()"
            raise state.refuse(message, "CHANGES_NOT_TRACKED")

    def _so_far(self, name: str) -> Attribution | None:
        """The windows of the sends that have ended; None where nothing was recorded."""
        state = self.author.state
        state.check_open(f"{name}()")
        self._require(name)
        seen = state.attribution
        if seen is None:
            return None
        if seen.error is not None:
            message = f"what the agent changed is not known: {seen.error}"
            raise state.fail(AttemptFailure(FailureKind.SANDBOX, "CHANGES_NOT_CAPTURED", message))
        return seen.of({turn_label(turn.session, turn.index) for turn in state.turns})
