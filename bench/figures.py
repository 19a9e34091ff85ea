"""The figures that a bench produces: plain values that are written as JSON and judged afterwards. PURE."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from bench.measure import Measurement

PRODUCT = "evalfleet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured command. `case` says which of the workload's commands it was; `n` rows.

    `values` holds everything else by name: bytes as whole numbers, seconds and shares as fractions.
    """

    workload: str
    tool: str
    case: str
    n: int
    round: int
    command: str
    wall: float
    cpu: float
    load: float
    values: Mapping[str, float] = field(default_factory=dict)


def figure(
    named: tuple[str, str, str], n: int, number: int, command: str, measured: Measurement, **values: float
) -> Figure:
    """A figure from a measurement; `named` is workload, tool and case."""
    workload, tool, case = named
    return Figure(
        workload=workload,
        tool=tool,
        case=case,
        n=n,
        round=number,
        command=command,
        wall=round(measured.wall, 4),
        cpu=round(measured.cpu, 4),
        load=round(measured.load, 2),
        values={"rss": measured.rss, "cpu_servers": round(measured.cpu_servers, 4), **values},
    )


@dataclass(frozen=True, slots=True)
class Figures:
    """All figures of a bench, asked by name."""

    items: tuple[Figure, ...]

    @property
    def rounds(self) -> tuple[int, ...]:
        return tuple(sorted({item.round for item in self.items}))

    def of(self, workload: str, tool: str, case: str) -> tuple[Figure, ...]:
        return tuple(item for item in self.items if (item.workload, item.tool, item.case) == (workload, tool, case))

    def sizes(self, workload: str, tool: str, case: str) -> tuple[int, ...]:
        return tuple(sorted({item.n for item in self.of(workload, tool, case)}))

    def one(self, named: tuple[str, str, str], n: int, number: int) -> Figure | None:
        return next((item for item in self.of(*named) if item.n == n and item.round == number), None)

    def per_round(self, value: Callable[[int], float | None]) -> tuple[float, ...]:
        """What `value` says of each round that has it."""
        found = (value(number) for number in self.rounds)
        return tuple(item for item in found if item is not None)


def median(values: Iterable[float]) -> float:
    return statistics.median(values)
