"""The way out of an attempt's sandbox: opened while it is made, so that its setup finds it.

What the gateway serves to the attempt is its table of routes, an ASGI application by path prefix, `state.routes`:

- `/v1/traces` takes the agent's spans, by `AttemptServices.spans`, in a run that asks for them;
- `/model/<arm>` leads to the model of an agent whose adapter `AsksByGateway`, by `AttemptServices.model_app`;
- `EvalDefinition.serves` names what the eval's body mounts when it is ready, by `mounted` (a pack: `/mcp`); until then
  the answer is 503.

A command finds the application of a prefix at `$EVALFLEET_GATEWAY<prefix>`. The application sees neither the token nor
another attempt: one is made for each. The gateway is open where hosts are allowed or the table has a route.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.execution.seen_calls import SeenCalls
from evalfleet.execution.state import AttemptState
from evalfleet.model.definition import SandboxSpec
from evalfleet.model.model_route import model_prefix
from evalfleet.ports import AsksByGateway, ModelDesk
from evalfleet.sandbox_ports import App, Listening, Opening, Reachable, SandboxProvider


def opening_of(state: AttemptState, provider: SandboxProvider, spec: SandboxSpec) -> Opening | None:
    """What opens the attempt's gateway in its sandbox; None when the attempt needs none.

    Allowed hosts need none in a backend that does not isolate: every host can be reached there, as its notices say.
    Raises AttemptFailure SANDBOX_UNSUPPORTED for hosts that a backend can't let through.
    """
    gateway, job = state.services.gateway, state.job
    allow = () if isinstance(spec.network, str) else spec.network
    if gateway is None or job.recorded is not None:
        return None
    outlet = state.outlet
    state.routes = {
        **dict.fromkeys(job.definition.serves, _not_yet),
        **({} if outlet is None else outlet.routes),
        **_model(state, closed=provider.isolates and spec.network == "none"),
    }
    if not allow and not state.routes:
        return None
    if not isinstance(provider, Reachable):
        if allow and provider.isolates:
            message = f"the backend {spec.backend!r} can't let single hosts through: use network: none or open"
            raise AttemptFailure(FailureKind.SANDBOX, "SANDBOX_UNSUPPORTED", message)
        missed = [route for route in state.routes if outlet is None or provider.isolates or route not in outlet.routes]
        if missed:
            state.note(f"sandbox: the backend {provider.name!r} opens no gateway to {', '.join(missed)}")
        return None

    async def opening(sandbox: Listening) -> Mapping[str, str]:
        await close_gateway(state)  # of the network that a reset took away
        opened = state.gateway = await gateway.open(sandbox, allow, state.routes)
        if outlet is None:
            return opened.environment
        return {**opened.environment, **outlet.environment(opened.environment["EVALFLEET_GATEWAY"])}

    return opening


def _model(state: AttemptState, *, closed: bool) -> dict[str, App]:
    """The route to the model of an agent that asks it by the gateway; `closed` if the agent has no other way."""
    adapter, make = state.job.adapter, state.services.model_app
    if make is None or not isinstance(adapter, AsksByGateway):
        return {}
    seen = state.seen = SeenCalls(closed)
    desk = ModelDesk(
        secrets=state.secrets,
        calls=state.calls,
        note=state.note,
        fail=state.fail,
        observe=seen.observe,
        clock=state.services.clock,
    )
    return {model_prefix(state.job.arm.name): make(adapter.upstream, desk)}


@contextmanager
def mounted(state: AttemptState, prefix: str, app: App) -> Generator[None]:
    """Serve `app` to the attempt's sandbox below `prefix`, one of those that its definition `serves`."""
    state.routes[prefix] = app
    try:
        yield
    finally:
        state.routes[prefix] = _not_yet


async def close_gateway(state: AttemptState) -> None:
    """Close what an opening opened, and note what was asked of it in vain."""
    gateway, state.gateway = state.gateway, None
    if gateway is not None:
        if gateway.refused:
            hosts = ", ".join(dict.fromkeys(gateway.refused))
            state.note(f"sandbox: refused hosts that network does not allow: {hosts}")
        await gateway.close()


async def _not_yet(
    _: MutableMapping[str, Any],
    __: Callable[[], Awaitable[MutableMapping[str, Any]]],
    send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
) -> None:
    """The answer of a route whose time has not come, or is over."""
    headers = [(b"content-type", b"text/plain"), (b"retry-after", b"1")]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": b"nothing is served here now\n"})
