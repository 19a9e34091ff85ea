"""Looking after an attempt's sandbox while its agent and its author work in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from evalfleet.errors import AttemptFailure, describe
from evalfleet.execution.threads import AuthorThreads
from evalfleet.sandbox_ports import Sandbox

#: Seconds between two looks.
PERIOD = 1.0


class SandboxProbe:
    """Probes a sandbox once a period, from `start` until `stop`; `lost` is called once with what a probe raised.

    Whatever else a probe raises says nothing about the sandbox: `note` is told, once, and the looking goes on.
    """

    __slots__ = ("_lost", "_note", "_period", "_sandbox", "_task", "_timer", "_told")

    def __init__(
        self,
        sandbox: Sandbox,
        lost: Callable[[AttemptFailure], None],
        note: Callable[[str], None],
        period: float = PERIOD,
    ) -> None:
        self._sandbox = sandbox
        self._lost = lost
        self._note = note
        self._period = period
        self._told = False
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look for the first time in one period: what lives less long costs a timer and nothing else."""
        self._timer = asyncio.get_running_loop().call_later(self._period, self._ring)

    def stop(self, threads: AuthorThreads) -> None:
        """Look no more. A probe that ignores its cancellation is counted in `threads` until it ends."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None and not self._task.done():
            self._task.cancel()
            threads.abandon(self._task)

    def _ring(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._look())

    async def _look(self) -> None:
        try:
            await self._sandbox.probe()
        except AttemptFailure as failure:
            self._lost(failure)
            return
        except Exception as error:  # noqa: BLE001 - a backend may raise anything; only its word counts as a loss
            if not self._told:
                self._told = True
                self._note(f"sandbox: a probe did not answer: {type(error).__name__}: {describe(error)}")
        self.start()
