"""Figures and verdicts as Markdown. PURE."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from bench.figures import Figure, Figures, median
from bench.goals import Judged, marginal

_HEAD = ("workload", "tool", "command", "n", "wall s", "CPU s", "CPU ms a row", "memory MB", "store B a row", "load")


def render(figures: Figures, judged: Sequence[Judged], facts: Mapping[str, str], command: str) -> str:
    """The whole document."""
    lines = [
        "# Figures",
        "",
        f"`{command}`: {len(figures.rounds)} interleaved round(s), medians. CPU is user and system time of the whole",
        "process tree and of Postgres; *CPU ms a row* has the cost of one row taken off. Memory is the peak of the",
        "process that coordinates. Ratios are formed within a round.",
        "",
        *(f"- {name}: {value}" for name, value in facts.items()),
        "",
        "## Goals",
        "",
        *_table(("goal", "what", "median", "range", "must", "goal", "verdict"), map(_judged, judged)),
        "",
        "## Measured",
        "",
        *_table(_HEAD, _measured(figures)),
        "",
        "## Besides",
        "",
        *_besides(figures),
        "",
        "## Commands",
        "",
        *_commands(figures),
    ]
    return "\n".join(lines) + "\n"


def _judged(item: Judged) -> Sequence[str]:
    sign = "≥" if item.least else "≤"
    value = "–" if item.value is None else _short(item.value)
    spread = f"{_short(min(item.values))} … {_short(max(item.values))}" if len(item.values) > 1 else ""
    verdict = f"{item.verdict}, the goal too" if item.reaches_real else item.verdict
    return (item.goal, item.what, value, spread, f"{sign} {item.must:g}", f"{sign} {item.real:g}", verdict)


def _measured(figures: Figures) -> Iterable[Sequence[str]]:
    for (workload, tool, case, n), group in _groups(figures).items():
        costs = figures.per_round(lambda number, named=(workload, tool, case), n=n: marginal(figures, named, n, number))
        stores = [item.values["store"] / n for item in group if "store" in item.values]
        yield (
            workload,
            tool,
            case,
            f"{n:,}",
            f"{median(item.wall for item in group):.2f}",
            f"{median(item.cpu for item in group):.2f}",
            f"{median(costs) * 1000:.3f}" if costs else "",
            f"{median(item.values['rss'] for item in group) / 2**20:.0f}",
            f"{median(stores):,.0f}" if stores and n > 1 else "",
            f"{median(item.load for item in group):.1f}",
        )


def _besides(figures: Figures) -> list[str]:
    told: list[str] = []
    for (workload, tool, case, n), group in _groups(figures).items():
        names = [name for name in group[0].values if name not in ("rss", "store", "cpu_servers", "events")]
        if names:
            values = ", ".join(f"{name} {_short(median(item.values[name] for item in group))}" for name in names)
            told.append(f"- {workload} {tool} {case} ({n:,}): {values}")
    return told


def _commands(figures: Figures) -> list[str]:
    shown = {item.command: f"{item.workload} {item.tool}" for item in figures.items}
    return [f"- {who}: `{command}`" for command, who in shown.items()]


def _groups(figures: Figures) -> dict[tuple[str, str, str, int], list[Figure]]:
    groups: dict[tuple[str, str, str, int], list[Figure]] = {}
    for item in figures.items:
        groups.setdefault((item.workload, item.tool, item.case, item.n), []).append(item)
    return groups


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [_row(head), _row(["---"] * len(head)), *map(_row, rows)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"
