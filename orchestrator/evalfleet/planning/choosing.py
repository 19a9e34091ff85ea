"""Which rows of a dataset are used, and in which order: filters, samples, limits, shuffles. Pure.

A sample and a shuffle go by the content of each row: its canonical JSON, hashed with the seed by keyed BLAKE2b. So
the same rows are taken however the file is sorted, on every version of Python, and a larger sample extends a smaller.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from evalfleet.errors import Problem, describe
from evalfleet.planning.expand import content_key, ranking


@dataclass(frozen=True, slots=True)
class Row:
    """One row: its id within the dataset, its place in the file, and its value as canonical JSON."""

    id: str
    line: int
    data: bytes


@dataclass(frozen=True, slots=True, eq=False)
class Filter:
    """Rows for which `keep` says True; it is given the row as the eval gets it."""

    keep: Callable[[Any], object]


@dataclass(frozen=True, slots=True)
class Limit:
    """The first `count` rows of the file."""

    count: int


@dataclass(frozen=True, slots=True)
class Draw:
    """`count` rows by content, in the order of the file; so many are held in memory."""

    count: int
    seed: int


Step: TypeAlias = Filter | Limit | Draw
Found: TypeAlias = Iterator[Row | Problem]


def choose(found: Found, steps: Sequence[Step], decode: Callable[[bytes], Any], file: str) -> Found:
    """The rows that pass every step; problems pass all of them, and a filter that fails on a row is one."""
    for step in steps:
        match step:
            case Filter():
                found = _filtered(found, step, decode, file)
            case Limit():
                found = _limited(found, step)
            case Draw():
                found = _sampled(found, step)
    return found


def shuffled(rows: Iterable[Row], seed: int) -> list[Row]:
    """All rows in the order of `seed`."""
    rank = ranking(seed)
    return sorted(rows, key=lambda row: rank(content_key("", row.data)))


def values_are(wanted: Mapping[str, Any]) -> Callable[[Any], bool]:
    """A predicate: each named field has the value, or one of a list of values; `True` is not `1`."""
    choices = {name: _choices(value) for name, value in wanted.items()}

    def keep(row: Any) -> bool:
        return all(any(_same(_field(row, name), one) for one in values) for name, values in choices.items())

    return keep


_ABSENT = object()


def _choices(value: Any) -> tuple[Any, ...]:
    several = isinstance(value, (list, tuple, set, frozenset))
    return tuple(cast("Iterable[Any]", value)) if several else (value,)


def _field(row: Any, name: str) -> Any:
    if isinstance(row, dict):
        return cast("dict[str, Any]", row).get(name, _ABSENT)
    return getattr(row, name, _ABSENT)


def _same(actual: Any, wanted: Any) -> bool:
    return isinstance(actual, bool) == isinstance(wanted, bool) and bool(actual == wanted)


def _filtered(found: Found, step: Filter, decode: Callable[[bytes], Any], file: str) -> Found:
    for item in found:
        if isinstance(item, Problem):
            yield item
            continue
        try:
            kept = step.keep(decode(item.data))
        except Exception as error:  # noqa: BLE001 - an author's predicate may raise anything
            message = f"the filter failed on the row {item.id}: {type(error).__name__}: {describe(error)}"
            yield Problem("INVALID_FILTER", message, file, item.line)
            continue
        if not isinstance(kept, bool):
            message = f"the filter gave {type(kept).__name__} for the row {item.id}: return True or False"
            yield Problem("INVALID_FILTER", message, file, item.line)
        elif kept:
            yield item


def _limited(found: Found, step: Limit) -> Found:
    """Goes on behind the last row taken: the whole file is checked."""
    left = step.count
    for item in found:
        if isinstance(item, Problem):
            yield item
        elif left:
            left -= 1
            yield item


def _sampled(found: Found, step: Draw) -> Found:
    rank = ranking(step.seed)
    taken: list[tuple[int, int, Row]] = []  # a heap whose top is the first to go: the highest rank, the last of equals
    for ordinal, item in enumerate(found):
        if isinstance(item, Problem):
            yield item
            continue
        entry = (-rank(content_key("", item.data)), -ordinal, item)
        if len(taken) < step.count:
            heapq.heappush(taken, entry)
        else:
            heapq.heappushpop(taken, entry)
    for _, _, row in sorted(taken, key=lambda entry: -entry[1]):
        yield row
