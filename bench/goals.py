"""The goals, each a figure per round held against what it must be. Ratios are formed within a round. PURE."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.figures import PRODUCT, Figures, median

Value = Callable[[int], float | None]
Name = tuple[str, str, str]

SUBMIT: Name = ("W1", PRODUCT, "submit")
INSPECT: Name = ("W1", "inspect", "null")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One goal with its value of each round. `least` says that it must reach `must` instead of staying below."""

    goal: str
    what: str
    values: tuple[float, ...]
    must: float
    real: float
    least: bool = False

    @property
    def value(self) -> float | None:
        return median(self.values) if self.values else None

    @property
    def verdict(self) -> str:
        if self.value is None:
            return "not measured"
        return "ok" if self._within(self.must) else "not"

    @property
    def reaches_real(self) -> bool:
        return self.value is not None and self._within(self.real)

    def _within(self, bound: float) -> bool:
        value = self.value or 0.0
        return value >= bound if self.least else value <= bound


def judge(figures: Figures, lanes: int) -> list[Judged]:
    """Every goal that this bench knows; one whose figures are absent has no values."""
    return [
        *_costs(figures),
        *_latency(figures),
        *_isolation(figures),
        *_recovery(figures, lanes),
        *_reading(figures),
        *_suites(figures),
    ]


def marginal(figures: Figures, named: Name, n: int, number: int) -> float | None:
    """CPU seconds of a row at n rows: what more than one row cost, over the rows.

    None without both figures, or when the machine's noise hides the difference.
    """
    one, many = figures.one(named, 1, number), figures.one(named, n, number)
    if one is None or many is None or n < 2 or many.cpu <= one.cpu:
        return None
    return (many.cpu - one.cpu) / (n - 1)


def _costs(figures: Figures) -> list[Judged]:
    sizes = [n for n in figures.sizes(*SUBMIT) if n > 1]
    low, before, high = (sizes[0], sizes[max(len(sizes) - 2, 0)], sizes[-1]) if sizes else (0, 0, 0)
    peer = max(figures.sizes(*INSPECT), default=0)
    several = len(sizes) > 1

    def value(named: Name, n: int, key: str) -> Value:
        return lambda number: _value(figures, named, n, key, number)

    def cost(named: Name, n: int) -> Value:
        return lambda number: marginal(figures, named, n, number)

    def per_row(named: Name, n: int) -> Value:
        return lambda number: _over(_value(figures, named, n, "store", number), n)

    return [
        Judged(
            goal="G1",
            what=f"CPU of a row at {high:,} / Inspect's at {peer:,}",
            values=figures.per_round(_ratio(cost(SUBMIT, high), cost(INSPECT, peer))),
            must=0.05,
            real=0.015,
        ),
        Judged(
            goal="G2",
            what=f"CPU of a row at {high:,} / at {before:,}",
            values=figures.per_round(_ratio(cost(SUBMIT, high), cost(SUBMIT, before))) if several else (),
            must=1.10,
            real=1.03,
        ),
        Judged(
            goal="G3",
            what="CPU of submit of one row with a fresh Ray / of a bare Ray with two actors",
            values=figures.per_round(_ratio(value(SUBMIT, 1, "cpu"), value(("W1", "floor", "ray"), 1, "cpu"))),
            must=1.25,
            real=1.10,
        ),
        Judged(
            goal="G4",
            what="CPU of try of one row, server warm / Inspect's of one row",
            values=figures.per_round(_ratio(value(("W1", PRODUCT, "try"), 1, "cpu"), value(INSPECT, 1, "cpu"))),
            must=0.5,
            real=0.25,
        ),
        Judged(
            goal="G5",
            what=f"coordinator's peak memory at {high:,} / at {low:,}",
            values=figures.per_round(_ratio(value(SUBMIT, high, "rss"), value(SUBMIT, low, "rss"))) if several else (),
            must=1.25,
            real=1.05,
        ),
        Judged(
            goal="G11",
            what=f"store bytes of a row at {high:,} / Inspect's at {peer:,}",
            values=figures.per_round(_ratio(per_row(SUBMIT, high), per_row(INSPECT, peer))),
            must=1.0,
            real=0.4,
        ),
    ]


def _latency(figures: Figures) -> list[Judged]:
    submit, joined = ("W2", PRODUCT, "submit"), ("W2", PRODUCT, "submit after up")
    sizes = figures.sizes(*submit)
    first, last = (sizes[0], sizes[-1]) if sizes else (0, 0)

    def efficiency(named: Name, n: int, key: str) -> tuple[float, ...]:
        return figures.per_round(
            _ratio(
                lambda number: _value(figures, named, n, "ideal", number),
                lambda number: _value(figures, named, n, key, number),
            )
        )

    def judged(what: str, values: tuple[float, ...], must: float, real: float) -> Judged:
        return Judged(goal="G6", what=what, values=values, must=must, real=real, least=True)

    return [
        judged(f"ideal / run phase, {first:,} rows", efficiency(submit, first, "run_phase"), 0.90, 0.97),
        judged(
            f"ideal / whole process on the Ray of `up`, {first:,} rows", efficiency(joined, first, "wall"), 0.6, 0.75
        ),
        judged(
            f"ideal / run phase, {last:,} rows",
            efficiency(submit, last, "run_phase") if len(sizes) > 1 else (),
            0.60,
            0.75,
        ),
    ]


def _isolation(figures: Figures) -> list[Judged]:
    bare: Name = ("W3", "floor", "bare commands")
    n = max(figures.sizes(*bare), default=0)

    def judged(backend: str, must: float, real: float) -> Judged:
        return Judged(
            goal="G7",
            what=f"CPU of a row in a sandbox {backend} / of its bare commands",
            values=figures.per_round(
                _ratio(
                    lambda number: marginal(figures, ("W3", PRODUCT, backend), n, number),
                    lambda number: marginal(figures, bare, n, number),
                )
            ),
            must=must,
            real=real,
        )

    return [judged("local", 1.3, 1.1), judged("bubblewrap", 2.5, 1.6)]


def _recovery(figures: Figures, lanes: int) -> list[Judged]:
    cases: tuple[Name, ...] = (("W4", PRODUCT, "kill everything"), ("W4", PRODUCT, "kill the driver"))

    def worst(key: str) -> tuple[float, ...]:
        return tuple(item.values[key] for named in cases for item in figures.of(*named))

    def most(values: tuple[float, ...]) -> tuple[float, ...]:
        return (max(values),) if values else ()

    late = tuple(item.values["first_row_resumed"] - item.values["first_row_fresh"] for item in figures.of(*cases[0]))
    return [
        Judged(goal="G8", what="rows lost, at most of all kills", values=most(worst("lost")), must=0, real=0),
        Judged(goal="G8", what="rows counted twice", values=most(worst("doubled")), must=0, real=0),
        Judged(
            goal="G8", what="rows executed again (lanes)", values=most(worst("executed_twice")), must=lanes, real=lanes
        ),
        Judged(
            goal="G8",
            what="seconds until the last execution by an orphan",
            values=most(worst("orphans_last")),
            must=2.0,
            real=2.0,
        ),
        Judged(goal="G9", what="s from resume to a new row − from submit to one", values=late, must=1.0, real=0.3),
    ]


def _suites(figures: Figures) -> list[Judged]:
    """A scenario with its part of the report beside a row of an eval with its own."""
    n = max(figures.sizes("W8", PRODUCT, "scenarios"), default=0)

    def cost(kind: str) -> Callable[[int], float | None]:
        def both(number: int) -> float | None:
            parts = [marginal(figures, ("W8", PRODUCT, case), n, number) for case in (kind, f"{kind}, report")]
            return None if None in parts else sum(part for part in parts if part is not None)

        return both

    values = figures.per_round(_ratio(cost("scenarios"), cost("rows")))
    what = "CPU of a scenario with its report / of a row with its report"
    return [Judged(goal="suites", what=what, values=values, must=2.0, real=1.2)]


def _reading(figures: Figures) -> list[Judged]:
    def named(tool: str, case: str) -> Name:
        return ("W5", tool, case)

    def value(name: Name, key: str) -> Value:
        return lambda number: _value(figures, name, largest(name), key, number)

    def largest(name: Name) -> int:
        return max(figures.sizes(*name), default=0)

    def row(name: Name) -> Value:
        return lambda number: marginal(figures, name, largest(name), number)

    aggregate, full, theirs = named(PRODUCT, "aggregate"), named(PRODUCT, "full"), named("inspect", "full")
    return [
        Judged(
            goal="G10",
            what=f"aggregate of {largest(aggregate):,} / plain SQL",
            values=figures.per_round(_ratio(value(aggregate, "seconds"), value(aggregate, "floor_seconds"))),
            must=3.0,
            real=1.5,
        ),
        Judged(
            goal="G10",
            what="CPU of show / Inspect's header read",
            values=figures.per_round(
                _ratio(value(named(PRODUCT, "show"), "cpu"), value(named("inspect", "header"), "cpu"))
            ),
            must=0.5,
            real=0.2,
        ),
        Judged(
            goal="G10",
            what=f"CPU of a row in a full read of {largest(full):,} / Inspect's in {largest(theirs):,}",
            values=figures.per_round(_ratio(row(full), row(theirs))),
            must=0.10,
            real=0.03,
        ),
    ]


def _value(figures: Figures, named: Name, n: int, key: str, number: int) -> float | None:
    found = figures.one(named, n, number)
    if found is None:
        return None
    return getattr(found, key) if key in ("cpu", "wall") else found.values.get(key)


def _over(value: float | None, n: int) -> float | None:
    return None if value is None or not n else value / n


def _ratio(above: Value, below: Value) -> Value:
    def ratio(number: int) -> float | None:
        upper, lower = above(number), below(number)
        return None if upper is None or not lower else upper / lower

    return ratio
