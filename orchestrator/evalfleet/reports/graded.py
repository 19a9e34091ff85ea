"""What judging a run again came to, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evalfleet.model.grading import Basis, Rescored
from evalfleet.model.verdict import Verdict
from evalfleet.reports.figures import count, counted

#: What a judgement stands on.
BASES: Mapping[Basis, str] = {
    Basis.REPLAYED: "its body ran on the record",
    Basis.FOLDED: "its stored assertions were folded again",
    Basis.KEPT: "its earlier judgement was kept",
}


def rescored_lines(rescored: Rescored) -> Iterator[str]:
    """How many attempts were judged and on what, and which verdicts changed to what."""
    if rescored.grading is None:
        yield f"nothing of run {rescored.run} was there to be judged again"
        return
    yield f"grading {rescored.grading} of run {rescored.run}: {counted(sum(rescored.bases.values()), 'attempt')}"
    yield from (f"  {count(number)} {basis.value}" for basis, number in _bases(rescored))
    changed = sum(rescored.changes.values())
    yield f"  {counted(changed, 'verdict')} changed" + (":" if changed else "")
    yield from (f"    {count(number)} {before.value} → {after.value}" for (before, after), number in _changes(rescored))
    if rescored.diverged:
        yield f"  {count(rescored.diverged)} diverged: the eval sends what was not recorded (REPLAY_DIVERGED)"


def rescored_value(rescored: Rescored) -> dict[str, Any]:
    """The same as JSON."""
    return {
        "run": rescored.run,
        "grading": rescored.grading,
        "attempts": sum(rescored.bases.values()),
        "bases": {basis.value: number for basis, number in _bases(rescored)},
        "changed": [
            {"from": before.value, "to": after.value, "attempts": number}
            for (before, after), number in _changes(rescored)
        ],
        "diverged": rescored.diverged,
    }


def _changes(rescored: Rescored) -> list[tuple[tuple[Verdict, Verdict], int]]:
    order = {verdict: place for place, verdict in enumerate(Verdict)}
    return sorted(rescored.changes.items(), key=lambda item: (order[item[0][0]], order[item[0][1]]))


def _bases(rescored: Rescored) -> list[tuple[Basis, int]]:
    return [(basis, rescored.bases[basis]) for basis in Basis if rescored.bases.get(basis)]
