"""The sandboxes that there are on this machine: listed, removed when they are nobody's, entered and stopped."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from evalfleet.api.backends import Backends
from evalfleet.api.blueprint import RunBlueprint
from evalfleet.api.options import ReapOptions
from evalfleet.api.session import Session
from evalfleet.clock import SystemClock
from evalfleet.errors import ConfigurationError, EvalfleetError, InfrastructureError, describe
from evalfleet.model.sandbox import SandboxState, SandboxView, Standing
from evalfleet.plugins import sandbox_factories
from evalfleet.processes import SystemSpawner, process_alive
from evalfleet.sandbox_ports import Enterable, FoundSandbox
from evalfleet.scheduling.orphans import Backend, reconciled
from evalfleet.store.sandboxes import SandboxRows

#: Seconds that processes of a run which has ended may take to be gone, and how often it is looked.
_GONE_WITHIN, _LOOK_SECONDS = 5.0, 0.1

#: Seconds that the record store is waited for: what is left is found again.
_PATIENCE = 2.0

_log = logging.getLogger("evalfleet")


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxListing:
    """The sandboxes of this record store and state folder, oldest first.

    `faults` says of backends that don't work here, and should have some, why; nothing is known of those. `foreign`
    counts those of other record stores, which are left alone.
    """

    views: tuple[SandboxView, ...]
    faults: Mapping[str, str]
    foreign: int


class _Keeper:
    """Looks at the sandboxes of some backends and removes some of them; two at once do no harm."""

    def __init__(self, backends: Backends, rows: SandboxRows) -> None:
        self._backends = backends
        self._rows = rows
        self._clock = SystemClock()
        self._found: dict[tuple[str, str], FoundSandbox] = {}

    async def look(self, names: Iterable[str]) -> SandboxListing:
        """Every sandbox of these backends; the rows of those that are not there any more are ended."""
        shown: list[Backend] = []
        faults: dict[str, str] = {}
        for name in names:
            try:
                provider = self._backends.provider(name)
                if provider.outlives:  # what the others left is found whether more can be made or not
                    await provider.check()
                shown.append(Backend(name=name, outlives=provider.outlives, found=await provider.found()))
            except EvalfleetError as error:
                faults[name] = describe(error)
        found = [(backend.name, each) for backend in shown for each in backend.found]
        self._found = {(name, each.id): each for name, each in found}
        rows = await self._rows.known({each.owner for _, each in found})
        processes = {(each.host, each.pid) for _, each in found} | {(row.host, row.pid) for row in rows}
        here = socket.gethostname()
        alive = {(host, pid): process_alive(pid) for host, pid in processes if host == here and pid > 0}
        result = reconciled(shown, rows, alive, self._clock.wall())
        for row, state in result.ended:
            await self._rows.ended(row.backend, row.owner, state)
        missed = {row.backend for row in rows} & faults.keys()
        return SandboxListing(
            views=result.views, faults={name: faults[name] for name in sorted(missed)}, foreign=result.foreign
        )

    async def remove(self, views: Iterable[SandboxView]) -> list[str]:
        """Remove these; what went wrong, as texts."""
        problems: list[str] = []
        for view in views:
            try:
                await self._backends.provider(view.backend).reap(self._found[view.backend, view.id])
                await self._rows.ended(view.backend, view.owner, SandboxState.GONE)
            except EvalfleetError as error:
                problems.append(f"sandbox {view.id} of {view.backend} could not be removed: {describe(error)}")
        return problems

    async def forget(self) -> None:
        """Drop the rows of sandboxes that are gone as their runs are."""
        await self._rows.forget()

    async def shell(self, view: SandboxView) -> tuple[str, ...]:
        """The command that opens a shell in it. Raises ConfigurationError when its backend can't."""
        provider = self._backends.provider(view.backend)
        if not isinstance(provider, Enterable):
            raise ConfigurationError(f"the backend {view.backend!r} can't open a shell in a sandbox")
        return await provider.enter_argv(self._found[view.backend, view.id])


async def sandboxes() -> SandboxListing:
    """The sandboxes of every backend that is installed. Raises StoreError."""
    async with _keeper() as keeper:
        return await keeper.look(sandbox_factories())


async def reap_sandboxes(options: ReapOptions | None = None) -> Sequence[SandboxView]:
    """Remove the sandboxes that are nobody's any more, and return them.

    Raises InfrastructureError with what could not be removed, after all had their turn, and StoreError.
    """
    chosen = options or ReapOptions()
    standings = {Standing.ORPHAN}
    if chosen.kept:
        standings.add(Standing.KEPT)
    if chosen.force:
        standings.add(Standing.UNVERIFIED)
    async with _keeper() as keeper:
        doomed = [view for view in (await keeper.look(sandbox_factories())).views if view.standing in standings]
        problems = await keeper.remove(doomed)
        await keeper.forget()
    if problems:
        raise InfrastructureError("; ".join(problems))
    return doomed


async def sandbox_shell(target: str) -> tuple[str, ...]:
    """The command that opens a shell in the sandbox that `target` names, for this process to become.

    Raises ConfigurationError when it names none or several, or its backend opens no shells.
    """
    async with _keeper() as keeper:
        return await keeper.shell(_named(target, (await keeper.look(sandbox_factories())).views))


async def stop_sandbox(target: str) -> SandboxView:
    """Remove the sandbox that `target` names, and return it.

    Raises ConfigurationError when it names none or several, or one whose attempt is under way.
    """
    async with _keeper() as keeper:
        view = _named(target, (await keeper.look(sandbox_factories())).views)
        if view.standing is Standing.IN_USE:
            hint = "" if view.run is None else f"; orchestrate cancel {view.run} ends its run"
            raise ConfigurationError(f"sandbox {view.id} is in use: {view.why}{hint}")
        problems = await keeper.remove([view])
    if problems:
        raise InfrastructureError("; ".join(problems))
    return view


@asynccontextmanager
async def swept(blueprint: RunBlueprint) -> AsyncGenerator[None]:
    """Remove what dead processes left of the run's backends before it begins, and what its own left when it ended.

    What can't be removed is said, and keeps no run from going on: it is found again.
    """
    if not blueprint.backends:
        yield
        return
    await _sweep(blueprint)
    try:
        yield
    finally:
        await _sweep(blueprint, patience=_GONE_WITHIN)


async def _sweep(blueprint: RunBlueprint, patience: float = 0.0) -> None:
    clock, own = SystemClock(), f"{blueprint.run}/"
    async with _kept_by(Path(blueprint.state_dir), blueprint.database_url) as keeper:
        try:
            views = (await keeper.look(blueprint.backends)).views
            for _ in range(int(patience / _LOOK_SECONDS)):
                if not any(view.standing is Standing.IN_USE and view.owner.startswith(own) for view in views):
                    break
                await clock.sleep(_LOOK_SECONDS)
                views = (await keeper.look(blueprint.backends)).views
            for problem in await keeper.remove(view for view in views if view.standing is Standing.ORPHAN):
                _log.warning("%s", problem)
        except EvalfleetError as error:
            _log.warning("no sandboxes of dead runs are removed: %s", describe(error))


def _named(target: str, views: Sequence[SandboxView]) -> SandboxView:
    """The sandbox of this id, or the only one whose id, owner or eval begins so; a kept one before the others."""
    exact = [view for view in views if target in (view.id, view.owner)]
    found = exact or [view for view in views if _begins(target, view)]
    kept = [view for view in found if view.standing is Standing.KEPT]
    found = kept or found
    if not found:
        raise ConfigurationError(f"there is no sandbox {target!r}: orchestrate sandboxes lists them")
    if len(found) > 1:
        several = ", ".join(view.id for view in found[:6])
        raise ConfigurationError(f"{target!r} names several sandboxes: {several}{' and more' * (len(found) > 6)}")
    return found[0]


def _begins(target: str, view: SandboxView) -> bool:
    return any(name is not None and name.startswith(target) for name in (view.id, view.owner, view.eval_id))


@asynccontextmanager
async def _keeper() -> AsyncGenerator[_Keeper]:
    session = await Session.open()
    try:
        async with _kept_by(session.settings.state_dir, session.url) as keeper:
            yield keeper
    finally:
        await session.close()


@asynccontextmanager
async def _kept_by(state_dir: Path, url: str) -> AsyncGenerator[_Keeper]:
    spawner = SystemSpawner()
    backends = Backends(state_dir, spawner, run="")
    rows = SandboxRows(url, socket.gethostname(), os.getpid(), _PATIENCE)
    try:
        yield _Keeper(backends, rows)
    finally:
        await rows.close()
        await backends.close()
        await spawner.close()
