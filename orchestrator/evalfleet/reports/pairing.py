"""The cases of two sides, paired by what was asked: the eval, its row by content, its variants and the repetition.

Neither the arm nor a position enters, so a dataset may be shuffled in between. An eval that is judged otherwise on the
other side is another question, and is not paired.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from evalfleet.model.comparison import Side, SideCase

#: What cases are paired by, as it is printed.
KEY = "eval, row by content, variants, repetition"

#: A definition, the digest of a row, variants, and which of equal rows it is: the eval, which is the unit.
EvalKey = tuple[str, bytes | None, str | None, int]


@dataclass(frozen=True, slots=True)
class Pair:
    """The same case on either side. `number` counts the evals from 0: pairs of one eval have the same."""

    number: int
    first: SideCase
    second: SideCase


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """All pairs in the first side's planned order, and how many cases of either side have no counterpart.

    `changed` names the fields by which definitions that both sides have are judged otherwise; their cases are alone.
    """

    pairs: Sequence[Pair]
    alone_first: int
    alone_second: int
    changed: Mapping[str, tuple[str, ...]]


def pair_sides(first: Side, second: Side) -> Pairing:
    """Pair two sides case by case."""
    changed = _changed(first, second)
    others = dict(_keyed(case for case in second.cases if case.definition not in changed))
    numbers: dict[EvalKey, int] = {}
    pairs: list[Pair] = []
    for key, case in _keyed(case for case in first.cases if case.definition not in changed):
        other = others.get(key)
        if other is not None:
            pairs.append(Pair(numbers.setdefault(key[0], len(numbers)), case, other))
    return Pairing(
        pairs=pairs,
        alone_first=len(first.cases) - len(pairs),
        alone_second=len(second.cases) - len(pairs),
        changed=changed,
    )


def _keyed(cases: Iterable[SideCase]) -> Iterator[tuple[tuple[EvalKey, int], SideCase]]:
    """Each case with its eval and repetition. Rows that stand twice are told apart by their order."""
    seen: Counter[tuple[str, bytes | None, str | None, int]] = Counter()
    for case in cases:
        asked = (case.definition, case.row, case.variants, case.repetition)
        yield ((case.definition, case.row, case.variants, seen[asked]), case.repetition), case
        seen[asked] += 1


def _changed(first: Side, second: Side) -> dict[str, tuple[str, ...]]:
    shared = {case.definition for case in first.cases} & {case.definition for case in second.cases}
    changed: dict[str, tuple[str, ...]] = {}
    for definition in sorted(shared):
        before, after = first.judged.get(definition, {}), second.judged.get(definition, {})
        fields = tuple(field for field in {**before, **after} if before.get(field) != after.get(field))
        if fields:
            changed[definition] = fields
    return changed
