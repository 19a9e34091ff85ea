"""Repetitions that nobody needs any more: an eval that an arm has passed is not tried again. Pure.

Planned order has the repetitions outermost, so those of one eval by one arm have ordinals that lie `RunPolicy.cycle`
apart. What was granted before runs to its end and counts.
"""

from __future__ import annotations

from evalfleet.model.record import SettleWithout
from evalfleet.model.verdict import Settlement, Style
from evalfleet.scheduling.state import OpenCase, Phase, RunState

#: What decided a case that is not needed.
RULE = "early_exit"


def passed(state: RunState, case: OpenCase | None) -> None:
    """A case of the window is settled as passed. Only a pass-style one is solved by that."""
    if state.solved and case is not None and case.pending is not None and case.pending.case.style is Style.PASS:
        state.solved[case.ordinal % len(state.solved)] = True


def is_needed(state: RunState, case: OpenCase) -> bool:
    """Whether a case that waits to be granted has to be. One whose agent is done is only judged, and always is."""
    return case.recorded or not state.solved or not state.solved[case.ordinal % len(state.solved)]


def skip(state: RunState, case: OpenCase) -> None:
    """Settle a case as not needed at the next commit."""
    case.phase = Phase.COMMITTING
    state.buffer.settled.append(SettleWithout(case.ordinal, Settlement.NOT_NEEDED, code=RULE))
