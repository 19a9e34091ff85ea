"""What is recorded of sandboxes: how long an attempt had one, and the rows of those that outlive their maker."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class KeepSandbox(StrEnum):
    """Whose sandbox stays for a person to look at: nobody's, that of failed and errored attempts, everybody's."""

    NONE = "none"
    FAILED = "failed"
    ALL = "all"


class SandboxState(StrEnum):
    """How far a sandbox has come. `lost` is one that went away by itself, `kept` one that was left on purpose."""

    ANNOUNCED = "announced"
    MADE = "made"
    GONE = "gone"
    KEPT = "kept"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxUse:
    """What an attempt took of its backend: how many sandboxes were started for it, and seconds of each part.

    `using` is from the moment one was ready until its closing began. `kept` is its id when it was left in place.
    """

    backend: str
    starts: int
    making: float
    using: float = 0.0
    closing: float = 0.0
    kept: str | None = None
