"""A sandbox that is a Pod."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.model.definition import SandboxSpec
from evalfleet.sandbox_ports import Command, CommandResult, Inlet, Opening
from evalfleet_sandboxes.blocking import in_thread
from evalfleet_sandboxes.kubernetes_home import Home, Homes
from evalfleet_sandboxes.kubernetes_pods import notices
from evalfleet_sandboxes.making import bringing_files, starting_files
from evalfleet_sandboxes.remote_commands import RemoteExecution
from evalfleet_sandboxes.setup_commands import set_up

#: How many calls of `probe` rest on what the cluster reports, between two that look inside.
_LOOKS = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class WayOut:
    """What opens a way out of a sandbox, and the image that what carries it runs in."""

    opening: Opening
    image: str


class KubernetesSandbox:
    """One attempt's Pod, made by `settle`. `notices` says what of the spec is not enforced, or can't be told.

    `no_policy` says why the namespace has no policy that closes networks, None where it has. Without a `way` out
    nothing can listen in its network.
    """

    def __init__(
        self,
        homes: Homes,
        spec: SandboxSpec,
        owner: str,
        no_policy: str | None,
        on_closed: Callable[[KubernetesSandbox], None],
        way: WayOut | None = None,
    ) -> None:
        self._homes = homes
        self._spec = spec
        self._owner = owner
        self._on_closed = on_closed
        self._way = way
        self._closed = False
        self._moving = asyncio.Lock()
        self._making: asyncio.Task[None] | None = None
        self._settled: Home | None = None
        self._left = False
        self._looks = 0
        self._no_policy = no_policy
        self.notices: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return self._owner if self._settled is None else self._settled.name

    @property
    def workdir(self) -> str:
        return self._home.workdir

    @property
    def tree(self) -> Path | None:
        return None

    async def run(self, command: Command) -> CommandResult:
        home = self._for(command)
        return await home.commands.run(command)

    async def start(self, command: Command) -> RemoteExecution:
        home = self._for(command)
        return await home.commands.start(command)

    async def attach(self, execution: str) -> RemoteExecution:
        return self._opened().commands.attach(execution)

    async def probe(self) -> None:
        """By what the cluster reports; after a command, and now and then, by a look inside."""
        home = self._opened()
        await home.door.require_alive()
        home.relays.require()
        if self._looks % _LOOKS == 0:
            await home.files.probe()
        self._looks += 1

    async def listen(self) -> Inlet:
        """See `Listening.listen`: by a relay in the container beside it."""
        return await self._opened().relays.listen()

    async def read(self, path: str) -> bytes:
        return await self._opened().files.read(path)

    async def write(self, path: str, data: bytes) -> None:
        await self._opened().files.write(path, data)

    async def upload(self, source: Path, target: str) -> None:
        await self._opened().files.upload(source, target)

    async def download(self, source: str, target: Path) -> None:
        await self._opened().files.download(source, target)

    async def export(self, target: Path) -> None:
        await self._opened().files.export(target)

    async def reset(self) -> None:
        """Move into a new Pod, made like the first: nothing of the old one is left. Its commands are forgotten."""
        async with self._moving:
            old = self._opened()
            try:
                await self._homes.move_out(old, _failure("SANDBOX_CLOSED", f"sandbox {old.name} was reset"))
                await self._move_in()
            except AttemptFailure as error:
                raise _failure("SANDBOX_UNCLEAN", f"sandbox {old.name} could not be made anew: {error}") from error

    async def close(self) -> None:
        self._closed = True
        if self._making is not None:
            self._making.cancel()
        async with self._moving:
            if self._settled is not None and not self._left:
                why = _failure("SANDBOX_CLOSED", f"sandbox {self.id} is closed")
                await self._homes.move_out(self._settled, why)
            self._left = True
            self._on_closed(self)

    async def keep(self) -> None:
        """See `Keepable.keep`: the Pod runs on without processes, until its own deadline at the latest."""
        self._closed = True
        async with self._moving:
            await self._homes.keep(self._home, _failure("SANDBOX_CLOSED", f"sandbox {self.id} is kept"))
            self._left = True
            self._on_closed(self)

    async def settle(self) -> None:
        """Make the Pod, copy the files, run the setup commands; `close` it when this fails."""
        async with self._moving:
            await self._move_in()

    async def _move_in(self) -> None:
        self._making = asyncio.create_task(self._made(), name=f"sandbox of {self._owner}")
        try:
            await self._making
        except asyncio.CancelledError:
            if self._closed:  # by `close`, which is not to wait for a setup command
                raise _failure("SANDBOX_CLOSED", f"sandbox {self.id} was closed while it was made") from None
            raise
        finally:
            self._making = None

    async def _made(self) -> None:
        files = await in_thread(starting_files, self._spec)
        home = self._settled = await self._homes.move_in(
            self._spec, self._owner, None if self._way is None else self._way.image
        )
        self._looks = 0
        self.notices = tuple(notices(self._spec, self._no_policy, routes=home.routes))
        if self._way is not None:
            home.commands.know(await self._way.opening(self))
        if files is not None:
            with bringing_files():
                await home.files.upload(files, ".")
        await set_up(self._spec.setup, home.bash, home.commands.run)

    def _for(self, command: Command) -> Home:
        home = self._opened()
        if command.user is not None and command.user != self._spec.user:
            message = f"a Pod runs all commands as one user: set sandbox.user instead (user: {command.user})"
            raise _failure("SANDBOX_UNSUPPORTED", message)
        self._looks = 0  # it may destroy what is probed
        return home

    def _opened(self) -> Home:
        if self._closed:
            raise _failure("SANDBOX_CLOSED", f"sandbox {self.id} is closed")
        return self._home

    @property
    def _home(self) -> Home:
        if self._settled is None:
            raise _failure("SANDBOX_CLOSED", f"sandbox {self.id} was not made")
        return self._settled


def _failure(code: str, message: str) -> AttemptFailure:
    return AttemptFailure(FailureKind.SANDBOX, code, message)
