"""Which backend sandboxes get for which nobody names one: chosen once, when a run is planned."""

from __future__ import annotations

from collections.abc import Mapping

from evalfleet.api.backends import check_backends
from evalfleet.errors import ConfigurationError
from evalfleet.model.sandbox import DefaultBackend
from evalfleet.plugins import sandbox_factories
from evalfleet.settings import SANDBOX_BACKEND, Settings

ISOLATING, NOT_ISOLATING = "bubblewrap", "local"
_NOT_INSTALLED = f"{ISOLATING} is not installed"


async def default_backend(settings: Settings, address: str | None) -> DefaultBackend:
    """What the environment says, else bubblewrap where it makes a sandbox on this machine, else none.

    Nothing is left to run without isolation because a program is missing. On the cluster at `address` it is other
    machines that make them, of which nothing is known here: none unless the environment says one. Raises
    ConfigurationError when that is no backend.
    """
    fixed, installed = settings.sandbox_backend, sandbox_factories()
    if fixed is None and address is not None:
        why = f"what works on the workers of {address} can't be told from here"
        return DefaultBackend(name=None, why=f"{why} ({SANDBOX_BACKEND} may say it)")
    faults: dict[str, str | None] = dict.fromkeys(installed)
    if fixed is None and ISOLATING in installed:
        try:
            await check_backends((ISOLATING,), settings.state_dir, run="")
        except ConfigurationError as error:
            faults[ISOLATING] = str(error)
    return chosen(faults, fixed)


def chosen(faults: Mapping[str, str | None], fixed: str | None) -> DefaultBackend:
    """The default by what keeps each installed backend from working on this machine. Pure.

    What is `fixed` is not held against that. Raises ConfigurationError when it is not installed.
    """
    if fixed is not None:
        if fixed not in faults:
            known = ", ".join(faults)
            raise ConfigurationError(f"{SANDBOX_BACKEND}: there is no sandbox backend {fixed!r} (installed: {known})")
        return _default(fixed, f"{SANDBOX_BACKEND} says so")
    fault = faults.get(ISOLATING, _NOT_INSTALLED)
    if fault is None:
        return DefaultBackend(name=ISOLATING, why="it works here", tried=True)
    return DefaultBackend(name=None, why=f"{fault} ({NOT_ISOLATING!r} always works and isolates nothing)")


def _default(name: str, why: str) -> DefaultBackend:
    return DefaultBackend(name=name, why=f"{why}; it isolates nothing" if name == NOT_ISOLATING else why)
