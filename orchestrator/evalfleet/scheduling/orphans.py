"""Which sandboxes are nobody's any more, by what their backends show and what the record store knows. PURE."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from evalfleet.model.sandbox import SandboxRow, SandboxState, SandboxView, Standing
from evalfleet.sandbox_ports import FoundSandbox

#: Seconds for which a sandbox that was announced may still appear, though its maker is dead: engines take their time.
APPEARS_WITHIN = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """What one backend shows. `outlives` is its provider's."""

    name: str
    outlives: bool
    found: Sequence[FoundSandbox]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """Both sides held together.

    `views` are the sandboxes that there are, oldest first. `foreign` counts those of another record store, which
    nobody touches. `ended` are rows whose sandbox is not there any more, with what became of it.
    """

    views: tuple[SandboxView, ...]
    foreign: int
    ended: tuple[tuple[SandboxRow, SandboxState], ...]


def reconciled(
    backends: Sequence[Backend], rows: Iterable[SandboxRow], alive: Mapping[tuple[str, int], bool], now: float
) -> Reconciled:
    """How each sandbox of these backends stands.

    `rows` holds all that have not ended and those of every owner found. `alive` says of processes (host, pid) whether
    they live, as far as that can be told from here; `now` is in seconds since the epoch.
    """
    known = {(row.backend, row.owner): row for row in rows}
    views: list[SandboxView] = []
    foreign = 0
    for backend in backends:
        for found in backend.found:
            row = known.pop((backend.name, found.owner), None)
            if row is None and backend.outlives:
                foreign += 1  # it would have been announced here
            else:
                views.append(_view(backend.name, found, row, alive))
    looked_at = {backend.name for backend in backends}
    gone = [row for row in known.values() if row.backend in looked_at and _is_over(row, alive, now)]
    return Reconciled(
        views=tuple(sorted(views, key=lambda view: view.created_at)),
        foreign=foreign,
        ended=tuple((row, _end(row)) for row in gone),
    )


def _view(
    backend: str, found: FoundSandbox, row: SandboxRow | None, alive: Mapping[tuple[str, int], bool]
) -> SandboxView:
    lives = found.alive
    if lives is None:
        lives = alive.get((found.host, found.pid) if row is None else (row.host, row.pid))
    standing, why = _standing(found, row, lives)
    return SandboxView(
        backend=backend,
        id=found.id,
        owner=found.owner,
        host=found.host,
        pid=found.pid,
        created_at=found.created_at,
        alive=lives,
        standing=standing,
        why=why,
        run=None if row is None else row.run,
        case=None if row is None else row.case,
        eval_id=None if row is None else row.eval_id,
    )


def _standing(found: FoundSandbox, row: SandboxRow | None, alive: bool | None) -> tuple[Standing, str]:
    if row is not None and row.expired:
        return Standing.ORPHAN, "its time is over"
    if found.kept or (row is not None and row.state is SandboxState.KEPT):
        return Standing.KEPT, "kept for somebody to look at"
    if alive:
        return Standing.IN_USE, f"process {found.pid} on {found.host} lives"
    if alive is False:
        return Standing.ORPHAN, f"process {found.pid} on {found.host} is dead"
    if row is not None and row.ownerless:
        return Standing.ORPHAN, f"run {row.run} has ended"
    return Standing.UNVERIFIED, f"whether process {found.pid} on {found.host} lives can't be told from here"


def _is_over(row: SandboxRow, alive: Mapping[tuple[str, int], bool], now: float) -> bool:
    """Whether a sandbox that its backend does not show will not appear any more, nor on the machine it was made on."""
    if row.state in (SandboxState.GONE, SandboxState.LOST) or now - row.created_at < APPEARS_WITHIN:
        return False
    lives = alive.get((row.host, row.pid))
    if lives is None:
        return row.expired
    return row.expired or row.ownerless or not lives or row.state is SandboxState.KEPT


def _end(row: SandboxRow) -> SandboxState:
    """What became of a sandbox that is not there: one that was never made is not lost."""
    return SandboxState.GONE if row.state is SandboxState.ANNOUNCED else SandboxState.LOST
