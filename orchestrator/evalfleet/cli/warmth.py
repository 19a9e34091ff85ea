"""What to say when a Ray is up that a command does not join."""

from __future__ import annotations

from evalfleet.api.warm import warm_ray
from evalfleet.settings import Settings

_NAMED = 3


def why_not_joined(address: str | None, *, inline: bool) -> list[str]:
    """A line that names what differs in this environment; nothing when the Ray is joined, or none is up."""
    settings = Settings.from_environment()
    warm = None if inline or address or settings.ray_address else warm_ray(settings)
    differences = () if warm is None else warm.differences()
    if not differences:
        return []
    names = ", ".join(differences[:_NAMED]) + (", …" if len(differences) > _NAMED else "")
    return [f"the Ray of `orchestrate up` has another environment ({names}), so one of its own is started for this run"]
