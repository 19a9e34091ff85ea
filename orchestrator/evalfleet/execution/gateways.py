"""The way out of an attempt's closed sandbox: opened while it is made, so that its setup finds it."""

from __future__ import annotations

from collections.abc import Mapping

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.execution.state import AttemptState
from evalfleet.model.definition import SandboxSpec
from evalfleet.sandbox_ports import Listening, Opening, Reachable, SandboxProvider


def opening_of(state: AttemptState, provider: SandboxProvider, spec: SandboxSpec) -> Opening | None:
    """What opens the attempt's gateway in its sandbox; None when the attempt needs none.

    A backend that does not isolate needs none: every host can be reached there, as its notices say. Raises
    AttemptFailure SANDBOX_UNSUPPORTED for hosts that a backend can't let through.
    """
    gateway, job = state.services.gateway, state.job
    allow = () if isinstance(spec.network, str) else spec.network
    if gateway is None or job.recorded is not None or spec.network == "open":
        return None
    if not gateway.is_needed(job.attempt, allow):
        return None
    if not isinstance(provider, Reachable):
        if not allow or not provider.isolates:
            return None
        message = f"the backend {spec.backend!r} can't let single hosts through: use network: none or open"
        raise AttemptFailure(FailureKind.SANDBOX, "SANDBOX_UNSUPPORTED", message)

    async def opening(sandbox: Listening) -> Mapping[str, str]:
        await close_gateway(state)  # of the network that a reset took away
        opened = state.gateway = await gateway.open(sandbox, job.attempt, allow)
        return opened.environment

    return opening


async def close_gateway(state: AttemptState) -> None:
    """Close what an opening opened, and note what was asked of it in vain."""
    gateway, state.gateway = state.gateway, None
    if gateway is not None:
        if gateway.refused:
            hosts = ", ".join(dict.fromkeys(gateway.refused))
            state.note(f"sandbox: refused hosts that network does not allow: {hosts}")
        await gateway.close()
