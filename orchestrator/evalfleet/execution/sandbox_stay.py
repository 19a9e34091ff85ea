"""One attempt's stay in its sandbox: announced, made, used, closed or kept; and what each part of that took."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from evalfleet.errors import AttemptFailure, FailureKind, StoreError, describe
from evalfleet.model.definition import SandboxSpec
from evalfleet.model.sandbox import SandboxEntry, SandboxState, SandboxUse
from evalfleet.ports import Clock
from evalfleet.sandbox_ports import Keepable, Opening, Reachable, Sandbox, SandboxLedger, SandboxProvider

#: Seconds that a kept sandbox stays when nobody removes it: a week.
KEPT_SECONDS = 7 * 86_400.0


class SandboxStay:
    """The sandbox of one attempt from its beginning to its end. `use` says so far what it took.

    One that outlives its maker is announced in the ledger before it is made, so that whoever comes later can find and
    remove it whatever happens. A sandbox that can't be made is no start, but the time it took is counted. `note` is
    told what could not be written down: the sandbox is found by its owner's label all the same.
    """

    __slots__ = ("_clock", "_entry", "_ledger", "_made", "_note", "_provider", "_ready_at", "use")

    def __init__(
        self,
        provider: SandboxProvider,
        entry: SandboxEntry,
        clock: Clock,
        ledger: SandboxLedger | None,
        note: Callable[[str], None],
    ) -> None:
        self._provider = provider
        self._entry = entry
        self._clock = clock
        self._ledger = ledger
        self._note = note
        self._made: Sandbox | None = None
        self._ready_at = 0.0
        self.use = SandboxUse(backend=provider.name, starts=0, making=0.0)

    @property
    def sandbox(self) -> Sandbox | None:
        """The sandbox as long as the attempt uses it."""
        return self._made

    async def begin(self, spec: SandboxSpec, opening: Opening | None = None) -> Sandbox:
        """Announce and make the sandbox; with `opening`, which only a provider that is `Reachable` takes.

        Raises what the provider raises, and AttemptFailure SANDBOX_NOT_ANNOUNCED when the ledger can't be written.
        """
        began = self._clock.monotonic()
        announced = await self._announced()
        try:
            sandbox = self._made = await self._create(spec, opening)
        except BaseException:
            if announced is not None:
                await self._told(announced.ended(self._entry.backend, self._entry.owner, SandboxState.GONE))
            raise
        finally:
            self._ready_at = self._clock.monotonic()
            starts = 0 if self._made is None else 1
            self.use = replace(self.use, starts=starts, making=self._ready_at - began)
        if announced is not None:
            await self._told(announced.made(self._entry, sandbox.id))
        return sandbox

    async def end(self, state: SandboxState = SandboxState.GONE) -> None:
        """Close the sandbox, if there is one, and write down what became of it. Raises what closing it raises."""
        made = self._leave()
        if made is None:
            return
        began = self._clock.monotonic()
        try:
            await made.close()
        finally:
            self.use = replace(self.use, closing=self._clock.monotonic() - began)
        if self._ledger is not None and self._provider.outlives:
            await self._told(self._ledger.ended(self._entry.backend, self._entry.owner, state))

    async def keep(self) -> None:
        """Leave the sandbox in place for a person to look at; one that can't be kept is closed.

        Raises what keeping or closing it raises.
        """
        made = self._made
        if made is None:
            return
        if self._ledger is None or not isinstance(made, Keepable):
            self._note(f"sandbox: the backend {self._entry.backend!r} can't keep a sandbox, so it was closed")
            return await self.end()
        try:
            # first, so that nobody takes it for an orphan, and it is found when its time is over
            await self._ledger.kept(self._entry, made.id, KEPT_SECONDS)
        except StoreError as error:
            self._note(f"sandbox: closed and not kept, since that could not be recorded: {error}")
            return await self.end()
        self._leave()
        began = self._clock.monotonic()
        await made.keep()
        self.use = replace(self.use, closing=self._clock.monotonic() - began, kept=made.id)

    async def _create(self, spec: SandboxSpec, opening: Opening | None) -> Sandbox:
        if opening is not None and isinstance(self._provider, Reachable):
            return await self._provider.create_reachable(spec, self._entry.owner, opening)
        return await self._provider.create(spec, owner=self._entry.owner)

    async def _announced(self) -> SandboxLedger | None:
        """The ledger, in which the sandbox stands now; None when its backend's sandboxes die with us anyway."""
        if self._ledger is None or not self._provider.outlives:
            return None
        try:
            await self._ledger.announce(self._entry)
        except StoreError as error:
            message = f"no sandbox is made that nobody could find again: {error}"
            raise AttemptFailure(FailureKind.INFRASTRUCTURE, "SANDBOX_NOT_ANNOUNCED", message) from error
        return self._ledger

    def _leave(self) -> Sandbox | None:
        """The sandbox, which is used no more."""
        made, self._made = self._made, None
        if made is not None:
            self.use = replace(self.use, using=self._clock.monotonic() - self._ready_at)
        return made

    async def _told(self, writing: Awaitable[None]) -> None:
        try:
            await writing
        except StoreError as error:
            self._note(f"sandbox: the record store was not told of it: {describe(error)}")
