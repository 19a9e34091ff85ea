"""What of a recorded attempt can be done again, and where a replay leaves the record. PURE.

`rerun` starts the same agent on the same snapshot; `reapply` repeats the recorded mutating calls on it, without an
agent; `regrade` gives the stored evidence to the graders of today.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from evalfleet.taskpacks.trace import CallStatus, CallTrace, TraceLine

#: The code of a reapplied trace that leads elsewhere.
REPLAY_DIVERGED = "REPLAY_DIVERGED"


class ReplayMode(StrEnum):
    RERUN = "rerun"
    REAPPLY = "reapply"
    REGRADE = "regrade"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What an attempt stood on, so that a replay can tell whether it stands on the same. Digests in hexadecimal."""

    snapshot_id: str
    state_digest: str
    assignment: str
    script: str
    tools: str
    graders: Mapping[str, str]
    seed: int

    def document(self) -> dict[str, Any]:
        """The manifest as JSON."""
        return {
            "snapshot_id": self.snapshot_id,
            "state_digest": self.state_digest,
            "assignment": self.assignment,
            "script": self.script,
            "tools": self.tools,
            "graders": dict(self.graders),
            "seed": self.seed,
        }


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first step at which a replay did not do what is recorded, and what it did."""

    step: int
    tool: str
    what: str

    def __str__(self) -> str:
        return f"{REPLAY_DIVERGED} at step {self.step} ({self.tool}): {self.what}"


def to_reapply(trace: CallTrace) -> tuple[TraceLine, ...]:
    """The calls that wrote something, in order: what else was asked changes nothing."""
    return tuple(call for call in trace.calls if call.state_digest is not None and call.status is CallStatus.OK)


def unrepeatable(trace: CallTrace) -> Divergence | None:
    """The first call of which nobody knows what became: the trace does not tell the whole."""
    call = next(iter(trace.unfinished), None)
    return None if call is None else Divergence(call.step, call.tool, "nobody knows whether this call was carried out")


def divergence(recorded: TraceLine, replayed: TraceLine) -> Divergence | None:
    """How a repeated call differs from the recorded one; None when it does not."""
    pairs = (
        ("ended", recorded.status.value, replayed.status.value),
        ("returned", recorded.result_ref, replayed.result_ref),
        ("left the state", recorded.state_digest, replayed.state_digest),
    )
    for what, was, now in pairs:
        if was != now:
            return Divergence(recorded.step, recorded.tool, f"it {what} {now}, recorded is {was}")
    return None


def changed(recorded: Mapping[str, Any], now: Manifest) -> tuple[str, ...]:
    """The fields of a recorded manifest that are others today."""
    current = now.document()
    return tuple(name for name in current if recorded.get(name) != current[name])
