"""The rates of a Task pack as lines for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from evalfleet.reports.figures import UNKNOWN, counted, percent
from evalfleet.reports.visible import visible_line

if TYPE_CHECKING:
    from evalfleet.api.packs import ArmRates


def rate_lines(found: ArmRates) -> Iterator[str]:
    """One arm on one pack: the rates, the turns, pass^k by grader, and how a model played the users."""
    rates = found.rates
    yield visible_line(
        f"{found.pack} · arm {found.arm} · {counted(rates.attempts, 'attempt')}, {rates.graded:,} of them graded"
    )
    for name, share in rates.rates.items():
        yield f"  {name.replace('_', ' '):<20} {percent(share.value):>8}  {share.part:,} of {share.whole:,}"
    turns = UNKNOWN if rates.turns is None else f"{rates.turns:.1f}"
    yield f"  {'turns to resolution':<20} {turns:>8}"
    for name, value in rates.reliability.items():
        yield visible_line(f"  {f'{name} pass^{rates.k}':<20} {percent(value):>8}")
    if rates.user is not None:
        user = rates.user
        yield visible_line(f"  users played by {user.model}: not deterministic, the same attempt may go another way")
        yield (
            f"    {counted(user.calls, 'call')}, {user.gave_away:,} gave something away; "
            f"{counted(user.ended, 'attempt')} ended by who answers, ungraded"
        )
