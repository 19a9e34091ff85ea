"""The three-valued tables: what known and possibly missing evidence say of a criterion on a scope.

Throughout, `reason` tells why evidence may be missing; None means that all of it is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evalfleet.assertions.match import decided
from evalfleet.assertions.snapshot import snapshot
from evalfleet.assertions.tools import KEPT, Candidate, Quantifier, ordered, tally
from evalfleet.model.assertion import AssertionResult, Result

_SHOWN = 16  # names of operations or events kept in a row's `actual`
_DEFINITE = frozenset({Result.MATCHED})
_POSSIBLE = frozenset({Result.MATCHED, Result.UNAVAILABLE})


def positive(holds: bool, reason: str | None, *, expected: Any, actual: Any) -> AssertionResult:
    """Evidence that exists is evidence; evidence that may be missing proves no absence."""
    if not holds and reason is not None:
        return AssertionResult(result=Result.UNAVAILABLE, reason=reason, expected=expected, actual=actual)
    return decided(holds, expected=expected, actual=actual)


def bounded(known: float, limit: float, reason: str | None, *, actual: Any) -> AssertionResult:
    """An upper bound on what may be under-counted: exceeding it is definite, keeping it is not."""
    expected = {"at_most": snapshot(limit)}
    if known <= limit and reason is not None:
        return AssertionResult(result=Result.UNAVAILABLE, reason=reason, expected=expected, actual=actual)
    return decided(known <= limit, expected=expected, actual=actual)


def counted(
    candidates: Sequence[Candidate], wanted: Quantifier, reason: str | None, seen: Sequence[str]
) -> AssertionResult:
    """A count over candidates, where `reason` says why there may be more of them."""
    counts = tally(candidates)
    why = reason or counts.reason
    result = wanted.decide(counts.matched, incomplete=reason is not None or counts.undecided > 0)
    if counts.error is not None:
        result, why = Result.ERRORED, counts.error
    return AssertionResult(
        result=result,
        reason=why if result in (Result.UNAVAILABLE, Result.ERRORED) else None,
        expected=wanted.describe(),
        actual={"matched": counts.matched, "undecided": counts.undecided, "seen": shown(seen)},
        children=_witnesses(candidates),
    )


def in_order(
    rows: Sequence[Sequence[tuple[int, Candidate]]], reason: str | None, seen: Sequence[str]
) -> AssertionResult:
    """One row of placed candidates a matcher. A subsequence of definite matches holds; one that only might exist does
    not count either way.
    """
    counts = tally(candidate for row in rows for _, candidate in row)
    if counts.error is not None:
        result, why = Result.ERRORED, counts.error
    elif ordered(rows, _DEFINITE):
        result, why = Result.MATCHED, None
    elif reason is not None or ordered(rows, _POSSIBLE):
        result, why = Result.UNAVAILABLE, reason or counts.reason
    else:
        result, why = Result.MISMATCHED, None
    return AssertionResult(result=result, reason=why, expected="in this order", actual={"seen": shown(seen)})


def _witnesses(candidates: Sequence[Candidate]) -> tuple[AssertionResult, ...]:
    """The conditions of a few candidates, those that matched first."""
    telling = [candidate for candidate in candidates if candidate.evaluations]
    telling.sort(key=lambda candidate: candidate.result is not Result.MATCHED)
    return tuple(outcome for candidate in telling[:KEPT] for outcome in candidate.evaluations)


def shown(names: Sequence[str]) -> list[Any]:
    """The first few names, with the number left out."""
    first = [snapshot(name) for name in names[:_SHOWN]]
    return first if len(names) <= _SHOWN else [*first, f"… (+{len(names) - _SHOWN})"]
