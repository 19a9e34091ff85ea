"""Criteria on what the agent changed in its workdir, each answered in three values from the attempt's windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from evalfleet.assertions.answers import positive, shown
from evalfleet.assertions.match import Match, decided, evaluate_now, kleene_not, kleene_or, negate, require_boolean
from evalfleet.assertions.patch_text import changed_text
from evalfleet.assertions.snapshot import snapshot
from evalfleet.assertions.texts import includes
from evalfleet.model.assertion import AssertionResult, Result
from evalfleet.model.changes import Attribution, Change, ChangeKind
from evalfleet.model.path_pattern import PathPattern

_HITS = 8  # places that are shown of a text that should not be there


@dataclass(frozen=True, slots=True)
class FileChanged:
    """Some window holds a path that fits and was added, modified, or given another mode or type."""

    pattern: PathPattern

    def describe(self) -> Any:
        return {"criterion": "file_changed", "path": self.pattern.text}

    def evaluate(self, seen: Attribution) -> AssertionResult:
        return _one_of(seen, self.pattern, deleted=False)


@dataclass(frozen=True, slots=True)
class FileDeleted:
    """Some window deletes a path that fits, whatever became of it later."""

    pattern: PathPattern

    def describe(self) -> Any:
        return {"criterion": "file_deleted", "path": self.pattern.text}

    def evaluate(self, seen: Attribution) -> AssertionResult:
        return _one_of(seen, self.pattern, deleted=True)


@dataclass(frozen=True, slots=True)
class NoChanges:
    """No window holds anything."""

    def describe(self) -> Any:
        return {"criterion": "no_changes"}

    def evaluate(self, seen: Attribution) -> AssertionResult:
        return _absent(seen.agent, seen.gap, expected="no changes")


@dataclass(frozen=True, slots=True)
class NotInDiff:
    """No changed path and no added or removed text matches; lines around them don't count."""

    match: Match

    def describe(self) -> Any:
        return {"criterion": "not_in_diff", "diff": negate(self.match).describe()}

    def evaluate(self, seen: Attribution) -> AssertionResult:
        found = [(where, evaluate_now(self.match, text)) for where, text in _texts(seen.agent)]
        result = kleene_not(kleene_or(outcome.result for _, outcome in found))
        reason = next((outcome.reason for _, outcome in found if outcome.result is result), None)
        if result is Result.MATCHED and (missing := seen.gap or _not_kept(seen.agent)) is not None:
            result, reason = Result.UNAVAILABLE, missing
        hits = [where for where, outcome in found if outcome.holds]
        return AssertionResult(
            result=result,
            reason=reason if result in (Result.UNAVAILABLE, Result.ERRORED) else None,
            expected="nowhere in the diff",
            actual=snapshot(hits[:_HITS]),
        )


ChangeCriterion: TypeAlias = FileChanged | FileDeleted | NoChanges | NotInDiff


def unwanted(text: str | Match) -> Match:
    """What should not be in a diff: a text, or a matcher that says yes or no at once."""
    return require_boolean(text if isinstance(text, Match) else includes(text), "not_in_diff")


def _one_of(seen: Attribution, pattern: PathPattern, *, deleted: bool) -> AssertionResult:
    fits = any((change.kind is ChangeKind.DELETED) is deleted and pattern.matches(change.path) for change in seen.agent)
    return positive(fits, seen.gap, expected=snapshot(pattern.text), actual={"changes": _shown(seen.agent)})


def _absent(changes: Sequence[Change], gap: str | None, *, expected: str) -> AssertionResult:
    """A definite change is one; none where some may be missing proves nothing."""
    if not changes and gap is not None:
        return AssertionResult(result=Result.UNAVAILABLE, reason=gap, expected=expected)
    return decided(not changes, expected=expected, actual={"changes": _shown(changes)})


def _shown(changes: Sequence[Change]) -> list[Any]:
    return shown(list(dict.fromkeys(f"{change.kind.value} {change.path}" for change in changes)))


def _texts(changes: Sequence[Change]) -> Iterator[tuple[dict[str, str], str]]:
    for change in changes:
        path = change.path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        yield {"path": path}, path
        if not change.binary:
            for side, text in changed_text(change.patch or b""):
                yield {"path": path, side: text[:200]}, text


def _not_kept(changes: Sequence[Change]) -> str | None:
    """Why a text may stand in content that is not there to be searched."""
    hidden = [change for change in changes if change.patch is None or change.binary]
    return f"diff:content-not-searched ({hidden[0].path})" if hidden else None
