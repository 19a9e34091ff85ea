"""The backend `bubblewrap`: sandboxes on this machine's own system, read-only, with one place to write to.

One `bwrap` makes a template, of which each sandbox is a copy with namespaces of its own. What is isolated, what is seen
and what is not enforced where: `docs/sandboxes.md`.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
from collections.abc import Iterator
from dataclasses import replace

from evalfleet.errors import AttemptFailure, ConfigurationError, FailureKind
from evalfleet.model.definition import SandboxSpec
from evalfleet.sandbox_ports import Command, FoundSandbox, Opening, SandboxPlace
from evalfleet_sandboxes.blocking import in_thread
from evalfleet_sandboxes.bubblewrap_etc import EtcFolders
from evalfleet_sandboxes.bubblewrap_rights import find_bwrap, remedy, rights
from evalfleet_sandboxes.bubblewrap_sandbox import BubblewrapSandbox, Machine, cgroup_name
from evalfleet_sandboxes.bubblewrap_shell import shell_argv
from evalfleet_sandboxes.bubblewrap_templates import Templates
from evalfleet_sandboxes.bubblewrap_view import HOME, view_of_this_machine
from evalfleet_sandboxes.cgroups import hierarchies
from evalfleet_sandboxes.host_commands import SYSTEM_PATH
from evalfleet_sandboxes.kept_environment import NAME, left_environment
from evalfleet_sandboxes.lease import Lease, found_leases, reap_lease
from evalfleet_sandboxes.making import close_all, made, unresolved_secrets

_UNFILTERED = "system calls are not filtered: this kernel or architecture has no filter for them"


class BubblewrapProvider:
    """Makes bubblewrap sandboxes, one directory an owner below the state folder."""

    name = "bubblewrap"
    isolates = True
    outlives = False

    def __init__(self, place: SandboxPlace) -> None:
        self._place = place
        self._open: set[BubblewrapSandbox] = set()
        self._looking = asyncio.Lock()
        self._machine: Machine | None = None
        self._filtered: bool | None = None
        self._checks = itertools.count(1)

    async def check(self) -> None:
        await self._look()
        try:
            sandbox = await self.create(SandboxSpec(), f"check {os.getpid()} {next(self._checks)}")
            await sandbox.close()
        except AttemptFailure as error:
            raise ConfigurationError(f"sandbox backend bubblewrap does not work here: {error}; {remedy()}") from error

    async def create(self, spec: SandboxSpec, owner: str) -> BubblewrapSandbox:
        """A fresh sandbox; `spec.files` is absolute or starts at this process's directory.

        Raises AttemptFailure of kind sandbox: SANDBOX_UNSUPPORTED for an image, a user by name or a secret that nobody
        resolved, SANDBOX_EXISTS while the owner has one, SANDBOX_FILES_MISSING,
        SANDBOX_FILES_REFUSED, SANDBOX_SETUP_FAILED, SANDBOX_FAILED when bwrap makes none.
        """
        return await self._created(spec, owner)

    async def create_reachable(self, spec: SandboxSpec, owner: str, opening: Opening) -> BubblewrapSandbox:
        """See `Reachable.create_reachable`."""
        return await self._created(spec, owner, opening)

    async def _created(self, spec: SandboxSpec, owner: str, opening: Opening | None = None) -> BubblewrapSandbox:
        if refused := list(_unsupported(spec)):
            raise AttemptFailure(
                FailureKind.SANDBOX, "SANDBOX_UNSUPPORTED", f"the bubblewrap sandbox has {'; '.join(refused)}"
            )
        machine = await self._look()
        sandbox = BubblewrapSandbox(machine, Lease(self._place.state, owner), spec, self._open.discard, opening)
        self._open.add(sandbox)
        return await made(sandbox, self._prepare(sandbox))

    async def close(self) -> None:
        try:
            await close_all(self._open)
        finally:
            if self._machine is not None:
                await self._machine.templates.close()
                await in_thread(self._machine.templates.etc.close)

    async def found(self) -> list[FoundSandbox]:
        return await in_thread(found_leases, self._place.state, socket.gethostname())

    async def reap(self, sandbox: FoundSandbox) -> None:
        state = self._place.state.absolute()
        if await in_thread(reap_lease, state, sandbox.id):
            groups = await in_thread(hierarchies)
            await in_thread(groups.remove, cgroup_name(state / sandbox.id))
            await in_thread(EtcFolders(self._place.state, HOME).close)  # what its process left beside its sandboxes

    async def enter_argv(self, sandbox: FoundSandbox) -> tuple[str, ...]:
        """See `Enterable.enter_argv`."""
        machine = await self._look()
        root = self._place.state / sandbox.id
        own = {"TERM": self._place.environment.get("TERM", "dumb"), **await in_thread(left_environment, root / NAME)}
        return shell_argv(machine.templates.bwrap, root, machine.templates.view, machine.rights, own)

    async def _look(self) -> Machine:
        """Look at the machine once. Raises ConfigurationError saying what is missing."""
        async with self._looking:
            if self._machine is None:
                templates = Templates(
                    spawner=self._place.spawner,
                    rights=await in_thread(rights),
                    bwrap=await in_thread(find_bwrap, self._place.environment),
                    view=await in_thread(view_of_this_machine),
                    etc=EtcFolders(self._place.state, HOME),
                    places=self._place.state,
                )
                path = self._place.environment.get("PATH", SYSTEM_PATH)
                self._machine = Machine(templates=templates, hierarchies=await in_thread(hierarchies), path=path)
            return self._machine

    async def _prepare(self, sandbox: BubblewrapSandbox) -> None:
        """Have it move in. Commands that turn out to run without a filter are noticed, which the first one shows."""
        await sandbox.move_in()
        if self._filtered is None:
            seen = await sandbox.run(Command(argv=("grep", "^Seccomp:\t2$", "/proc/self/status")))
            self._filtered = seen.ok
        if not self._filtered:
            sandbox.notices = (*sandbox.notices, _UNFILTERED)


class BubblewrapFactory:
    """Entry point `bubblewrap` of `evalfleet.sandboxes`."""

    name = "bubblewrap"

    def build(self, place: SandboxPlace) -> BubblewrapProvider:
        return BubblewrapProvider(replace(place, state=place.state.absolute()))


factory = BubblewrapFactory()


def _unsupported(spec: SandboxSpec) -> Iterator[str]:
    if spec.image is not None:
        yield f"no images (image: {spec.image})"
    if spec.build is not None:
        yield f"no images (build: {spec.build})"
    yield from unresolved_secrets(spec)
