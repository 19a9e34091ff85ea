"""Which runs use which accounts, as their coordinators wrote it with their last heartbeats: from any machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from evalfleet.api.session import Session
from evalfleet.model.model_call import AccountUse
from evalfleet.model.verdict import RunStatus

#: Runs that are looked through, the newest first: no store has more of them under way.
_NEWEST = 1000
_FIELDS = frozenset(field.name for field in fields(AccountUse))


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityUse:
    """One run's use of one account, as it was `at`, in seconds since the epoch."""

    run: str
    name: str
    at: float
    use: AccountUse


async def capacity() -> Sequence[CapacityUse]:
    """The accounts whose rate is governed and used by the runs under way, by account and run."""
    session = await Session.open()
    try:
        found: list[CapacityUse] = []
        for info in await session.reader.runs(_NEWEST, tries=True):
            if info.status is not RunStatus.RUNNING or info.interrupted:
                continue
            progress = await session.reader.progress(info.id)
            if progress is not None:
                uses = [_use(told) for told in progress.rates]
                found += [CapacityUse(run=info.id, name=info.name, at=progress.at, use=use) for use in uses]
        return sorted(found, key=lambda each: (each.use.name, each.use.account, each.run))
    finally:
        await session.close()


def _use(told: Any) -> AccountUse:
    return AccountUse(**{name: value for name, value in told.items() if name in _FIELDS})
