"""What the namespaces of bubblewrap sandboxes are copies of: one that `bwrap` makes, once for many of them."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field
from pathlib import Path

from evalfleet.enclosure_ports import Enclosing, Warden
from evalfleet.errors import ConfigurationError
from evalfleet.sandbox_ports import Spawner
from evalfleet_sandboxes.anchored import Owner
from evalfleet_sandboxes.blocking import in_thread
from evalfleet_sandboxes.bubblewrap_etc import EtcFolders
from evalfleet_sandboxes.bubblewrap_holder import Holder
from evalfleet_sandboxes.bubblewrap_rights import Rights
from evalfleet_sandboxes.bubblewrap_view import ROOM, View


@dataclass(frozen=True, slots=True)
class _Template:
    holder: Holder
    warden: Warden


@dataclass(frozen=True, slots=True, kw_only=True)
class Templates:
    """Makes them as they are asked for, and ends them with `close`. `places` is the folder of the sandboxes."""

    spawner: Spawner
    bwrap: str
    rights: Rights
    view: View
    etc: EtcFolders
    places: Path
    _made: dict[tuple[Owner, bool], _Template] = field(default_factory=dict[tuple[Owner, bool], _Template], init=False)
    _making: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _numbers: itertools.count[int] = field(default_factory=itertools.count, init=False)

    async def of(self, user: Owner, *, network: bool) -> Warden:
        """The warden of the one for that user; `network` says that this machine's is shared.

        Raises AttemptFailure SANDBOX_FAILED, InfrastructureError.
        """
        async with self._making:
            key = (user, network)
            made = self._made.get(key)
            if made is None or made.holder.ended:
                etc = await in_thread(self.etc.of, user, network=network)
                number = next(self._numbers)
                holder = Holder(self.spawner, f"{etc} {number}", etc.with_name(f"holder-{number}"))
                await holder.start(self.bwrap, self._arguments(user, etc))
                made = self._made[key] = _Template(holder, await self._enclosing().warden(holder.pid))
            return made.warden

    async def close(self) -> None:
        for made in self._made.values():
            await made.warden.end()
            await made.holder.end()
        self._made.clear()

    def _enclosing(self) -> Enclosing:
        if not isinstance(self.spawner, Enclosing):
            raise ConfigurationError("sandbox backend bubblewrap needs a spawner that makes namespaces")
        return self.spawner

    def _arguments(self, user: Owner, etc: Path) -> tuple[str, ...]:
        return (
            *self.rights.arguments(user),
            *self.view.arguments(etc, self.places),
            *("--bind", str(self.places), ROOM),
            *self.rights.seals(),
        )
