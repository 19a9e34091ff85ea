"""Which Evals an experiment and a command line select: plain prefixes, tags, exclusions. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from evalfleet.model.experiment import Selection


@dataclass(frozen=True, kw_only=True)
class Narrowing:
    """What the command line adds; it can only take Evals away. Empty means no restriction.

    `only` keeps the Evals with exactly these ids, `without` takes those away.
    """

    prefixes: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    arms: tuple[str, ...] = ()
    only: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()

    def may_name(self, definition_id: str, *, rows: bool) -> bool:
        """Whether `only` leaves any Case of the definition."""
        return not self.only or definition_id in (self._owners if rows else self.only)

    def names(self, eval_id: str) -> bool:
        return (not self.only or eval_id in self.only) and eval_id not in self.without

    @cached_property
    def _owners(self) -> frozenset[str]:
        """The definitions that the ids of `only` can be rows of."""
        return frozenset(eval_id.rpartition("/")[0] for eval_id in self.only)


@dataclass(slots=True)
class Selector:
    """Decides by eval id and tags, and remembers which prefixes ever matched.

    A prefix is plain: `terminal-swe` matches `terminal-swe-astropy-1`. Of several prefixes or tags of one list any
    one suffices; the command line's come on top of the experiment's. The last thing said of a case is `exclude`.
    """

    selection: Selection
    narrowing: Narrowing
    _matched: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    _named: set[str] = field(default_factory=set[str])

    def may_admit(self, definition_id: str, tags: tuple[str, ...], *, rows: bool) -> bool:
        """Whether any Case of the definition can be admitted: decides if its dataset has to be read."""
        below = definition_id + "/" if rows else definition_id
        possible = [
            self._any(where, prefixes, below, rows=rows)
            for where, prefixes in (("select", self.selection.select), ("prefix", self.narrowing.prefixes))
        ]
        tagged = all(not wanted or set(wanted) & set(tags) for wanted in (self.selection.tags, self.narrowing.tags))
        named = self.narrowing.may_name(definition_id, rows=rows)
        admitted = all(possible) and tagged and named and not set(self.selection.exclude_tags) & set(tags)
        if not admitted:
            self._pass_over(below, rows=rows)
        return admitted

    def admits(self, eval_id: str) -> bool:
        """Whether the Case with this eval id is selected, its definition being admitted."""
        selected = self._any("select", self.selection.select, eval_id, rows=False)
        narrowed = self._any("prefix", self.narrowing.prefixes, eval_id, rows=False)
        excluded = (
            self._any("exclude", self.selection.exclude, eval_id, rows=False) if self.selection.exclude else False
        )
        admitted = selected and narrowed and not excluded and self.narrowing.names(eval_id)
        if admitted and self.narrowing.only:
            self._named.add(eval_id)
        return admitted

    def missing(self) -> list[str]:
        """The ids of `only` that no selected Eval has."""
        return sorted(self.narrowing.only - self._named)

    def unmatched(self) -> Iterator[tuple[str, int, str]]:
        """Prefixes that matched nothing: the list (`select`, `exclude`, `prefix`), the index, the prefix."""
        for where, prefixes in self._lists():
            for index, prefix in enumerate(prefixes):
                if (where, prefix) not in self._matched:
                    yield where, index, prefix

    def _pass_over(self, below: str, *, rows: bool) -> None:
        """Nobody reads these rows, so a prefix that may name one of them can't be called unknown."""
        for where, prefixes in self._lists():
            self._matched.update(
                (where, prefix)
                for prefix in prefixes
                if below.startswith(prefix) or (rows and prefix.startswith(below))
            )

    def _lists(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        yield "select", self.selection.select
        yield "exclude", self.selection.exclude
        yield "prefix", self.narrowing.prefixes

    def _any(self, where: str, prefixes: tuple[str, ...], text: str, *, rows: bool) -> bool:
        """Whether any prefix matches; with `rows`, whether one could match something below `text`."""
        matched = not prefixes
        for prefix in prefixes:
            if text.startswith(prefix):
                self._matched.add((where, prefix))
                matched = True
            elif rows and prefix.startswith(text):
                matched = True
        return matched
