"""Numbers that look random and are always the same for the same parts: no two Cases act in step, all replay."""

from __future__ import annotations

from evalfleet.model.ids import sha256


def fraction(*parts: object) -> float:
    """A number in [0, 1) that depends on `parts` only."""
    return int(sha256("/".join(str(part) for part in parts).encode())[:13], 16) / 16**13


def between(low: float, high: float, *parts: object) -> float:
    """A number from `low` to `high` that depends on `parts` only."""
    return low if high <= low else low + (high - low) * fraction(*parts)
