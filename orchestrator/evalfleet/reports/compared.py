"""Comparisons in words: what the terminal and Markdown say of two sides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evalfleet.model.comparison import Finding
from evalfleet.model.verdict import Style
from evalfleet.reports.comparison import Comparison, Flip, SideName
from evalfleet.reports.figures import UNKNOWN, count, counted, percent
from evalfleet.reports.markdown import code, table_code
from evalfleet.reports.pairing import KEY
from evalfleet.reports.statistics import Interval
from evalfleet.reports.tables import columns
from evalfleet.reports.visible import visible_line

COLUMNS = ("first", "second", "evals", "first's", "second's", "difference", "95 % interval", "p", "finding")
FLIP_COLUMNS = ("eval", "first", "second", "case", "in second")
#: Flips shown of each direction.
FLIP_LIMIT = 20

_LEAST = 0.0001


def render_comparisons(found: Sequence[Comparison], *, every_flip: bool = False) -> list[str]:
    """What people read: a table of all comparisons, and of each what it says, its counts and its flips."""
    lines = columns(COLUMNS, [_cells(each, *(visible_line(name) for name in _names(each))) for each in found])
    for each in found:
        lines += ["", visible_line(headline(each)), *(f"  {visible_line(line)}" for line in _facts(each))]
        for title, flips in _flips(each):
            lines += ["", f"  {title}:", *_flip_rows(each, _shown(flips, every_flip))]
            lines += _more(len(flips), every_flip, "  ")
    return lines


def markdown_comparisons(found: Sequence[Comparison], *, every_flip: bool = False) -> str:
    """The same as GitHub-flavoured Markdown, ending in one line break."""
    rows = [_cells(each, *(table_code(name) for name in _names(each))) for each in found]
    rule = ["---", "---", *("---:" for _ in COLUMNS[2:-1]), "---"]
    lines = ["| " + " | ".join(cells) + " |" for cells in (COLUMNS, rule, *rows)]
    for each in found:
        lines += ["", f"**{code(headline(each))}**", "", *(f"- {code(line)}" for line in _facts(each))]
        for title, flips in _flips(each):
            lines += ["", f"<details><summary>{title}</summary>", ""]
            lines += [_flip_line(each, flip) for flip in _shown(flips, every_flip)]
            lines += [*_more(len(flips), every_flip, "- "), "", "</details>"]
    return "\n".join(lines) + "\n"


def headline(found: Comparison) -> str:
    """What a comparison comes to, in a sentence."""
    first, second = _names(found)
    between = f"{second} against {first}"
    if found.finding is Finding.INCONCLUSIVE or found.tested is None:
        return f"{between}: inconclusive, {found.reason}"
    over = f"over {counted(found.tested.evals, 'eval')}"
    sure = f"{_chance(found.tested.corrected)}, {found.tested.test}"
    if found.finding is Finding.NO_DIFFERENCE:
        return f"{between}: no difference found {over} ({sure})"
    amount = _signed(abs(found.tested.difference), found.style).removeprefix("+")
    word = {Finding.BETTER: "better", Finding.WORSE: "worse"}[found.finding]
    return f"{between}: {amount} {word} {over} ({sure})"


def _names(found: Comparison) -> tuple[str, str]:
    """The sides as they are told apart: by their arms in one run, by their runs where the arm is the same."""
    first, second = found.first, found.second
    if (first.run, first.grading) == (second.run, second.grading):
        return first.arm, second.arm
    if first.run == second.run:
        return _graded(first), _graded(second)
    return f"{first.run}:{first.arm}", f"{second.run}:{second.arm}"


def _graded(side: SideName) -> str:
    return f"{side.arm} (grading {side.grading})"


def _cells(found: Comparison, first: str, second: str) -> tuple[str, ...]:
    tested = found.tested
    return (
        first,
        second,
        count(found.evals),
        _value(found.first_mean, found.style),
        _value(found.second_mean, found.style),
        UNKNOWN if found.difference is None else _signed(found.difference, found.style),
        UNKNOWN if tested is None else _span(tested.interval, found.style),
        UNKNOWN if tested is None else _p(tested.corrected),
        found.finding.value.replace("_", " "),
    )


def _facts(found: Comparison) -> Iterator[str]:
    """What stands behind the sentence, and what it does not cover."""
    counts, tested = found.counts, found.tested
    yield f"paired by {KEY}: {counted(counts.pairs, 'pair')}, {count(counts.compared)} compared"
    if counts.missing:
        each = f"{count(counts.missing_first)} on the first side, {count(counts.missing_second)} on the second"
        held = UNKNOWN if found.bounds is None else _span(found.bounds, found.style)
        yield f"without an answer: {counted(counts.missing, 'pair')} ({each}); the difference lies within {held}"
    if counts.left:
        yield f"skipped or not needed on a side: {counted(counts.left, 'pair')}"
    if counts.alone_first or counts.alone_second:
        sides = f"{count(counts.alone_first)} on the first side, {count(counts.alone_second)} on the second"
        yield f"cases without a counterpart: {sides}"
    for name, fields in counts.changed.items():
        yield f"eval {name} is judged otherwise ({', '.join(fields)}): orchestrate rescore judges a run again"
    if tested is None:
        return
    if found.shared.note is not None:
        yield f"{found.shared.note}: {counted(found.shared.shared, 'pair')} left out of the test"
        yield f"difference of the others: {_signed(tested.difference, found.style)}"
    yield f"evals that differ: {count(tested.second_better)} for the second, {count(tested.first_better)} for the first"
    if tested.interval is not None:
        yield f"interval by {tested.interval_by}: {_span(tested.interval, found.style)}"
    if tested.p != tested.corrected:
        yield f"{_chance(tested.p)} by itself, {_chance(tested.corrected)} among all of these (Holm)"
    if tested.detectable is not None:
        smallest = _signed(tested.detectable, found.style).removeprefix("+")
        yield f"a difference of {smallest} would be found four times in five"
    else:
        yield "so few evals differ that no difference would be found four times in five"


def _flips(found: Comparison) -> Iterator[tuple[str, list[Flip]]]:
    """The flips of each direction, under what they are called."""
    words = ("gained", "lost") if found.style is Style.PASS else ("scored higher", "scored lower")
    for word, gained in zip(words, (True, False), strict=True):
        flips = [flip for flip in found.flips if flip.gained is gained]
        if flips:
            yield f"{counted(len(flips), 'case')} {word}", flips


def _shown(flips: list[Flip], every: bool) -> list[Flip]:
    return flips if every else flips[:FLIP_LIMIT]


def _more(flips: int, every: bool, indent: str) -> list[str]:
    hidden = 0 if every else flips - FLIP_LIMIT
    return [f"{indent}… {count(hidden)} more: --all shows them"] if hidden > 0 else []


def _flip_rows(found: Comparison, flips: Sequence[Flip]) -> list[str]:
    rows = [tuple(map(visible_line, _flip_cells(found, flip))) for flip in flips]
    return [f"  {line}" for line in columns(FLIP_COLUMNS, rows)]


def _flip_line(found: Comparison, flip: Flip) -> str:
    name, first, second, *cases = _flip_cells(found, flip)
    return f"- {code(name)}: {first} → {second} (cases {' and '.join(cases)})"


def _flip_cells(found: Comparison, flip: Flip) -> tuple[str, ...]:
    words = [f"{value:g}" for value in flip.values]
    if found.style is Style.PASS:
        words = ["passed" if value else "not passed" for value in flip.values]
    return (f"{flip.eval_id} #{flip.repetition + 1}", *words, *map(str, flip.ordinals))


def _value(value: float | None, style: Style) -> str:
    if style is Style.PASS:
        return percent(value)
    return UNKNOWN if value is None else f"{value:.4g}"


def _signed(value: float, style: Style) -> str:
    """A difference: of shares in percentage points, of scores in points."""
    return f"{value * 100:+.1f} pp" if style is Style.PASS else f"{value:+.4g} points"


def _span(interval: Interval | None, style: Style) -> str:
    if interval is None:
        return UNKNOWN
    low, high = _signed(interval.low, style), _signed(interval.high, style)
    return f"{low.partition(' ')[0]} … {high}"


def _chance(p: float | None) -> str:
    return f"p {_p(p)}" if p is not None and p < _LEAST else f"p = {_p(p)}"


def _p(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return f"< {_LEAST}" if value < _LEAST else f"{value:.2g}" if value < 0.1 else f"{value:.2f}"
