"""Who changed what in an attempt's workdir: it is looked at around every send, and sends there go one at a time.

created ── the eval writes ──► begin() ── the agent works ──► end of the send ── the eval writes ──► begin() …
   ╰── baseline                  ╰── a window of the eval's     ╰── a window of the agent's
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from evalfleet.errors import AttemptFailure, describe
from evalfleet.execution.git import CaptureError, GitTool
from evalfleet.execution.workdir_history import Look, WorkdirHistory
from evalfleet.model.changes import DEFAULT_IGNORED, Attribution, ChangedBy, TrackChanges, Window
from evalfleet.model.path_pattern import ignore_rules
from evalfleet.sandbox_ports import Sandbox

#: Windows kept of one attempt.
WINDOWS_LIMIT = 256


class WorkdirWatch:
    """Follows one sandbox's workdir from its baseline on. `record` is what is known so far.

    What can't be looked at ends the watch with the reason; it never reads as if nothing had changed.
    """

    def __init__(self, tool: GitTool, sandbox: Sandbox, tracking: TrackChanges) -> None:
        self._ignored = ignore_rules(DEFAULT_IGNORED, tracking.ignore, tracking.include)
        self._tool = tool
        self._sandbox = sandbox
        self._place: TemporaryDirectory[str] | None = None
        self._history: WorkdirHistory | None = None
        self._turns = asyncio.Lock()
        self._last: Look | None = None
        self._label: str | None = None
        self.record = Attribution()

    async def begin(self) -> None:
        """Take the workdir as it is as the baseline. Raises CaptureError when that is not possible."""
        self._place = await self._folder()
        self._history = WorkdirHistory(self._tool, Path(self._place.name), self._ignored)
        async with self._workdir() as root:
            self._last = await self._history.look(root)

    @property
    def busy(self) -> bool:
        """Whether a send is under way, so that what is written now would count as the agent's."""
        return self._turns.locked()

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        """Hold the workdir for one send, and close its window; `opened` is called in it, right before the send."""
        async with self._turns:
            try:
                yield
            except Exception:
                await self._close_turn()
                raise
            except BaseException:  # cancelled: the agent may be at work still
                self._give_up(f"{self._label or 'a send'} was broken off")
                raise
            await self._close_turn()

    async def opened(self, label: str) -> None:
        """What changed so far is the eval's; what changes from now on the agent's."""
        await self._close(label, ChangedBy.EVAL)
        self._label = label

    async def close(self) -> None:
        """Remove what was kept beside the workdir. May be called twice."""
        if self._place is not None:
            await asyncio.to_thread(self._place.cleanup)

    async def _close_turn(self) -> None:
        label, self._label = self._label, None
        if label is not None:
            await self._close(label, ChangedBy.AGENT)

    async def _close(self, label: str, by: ChangedBy) -> None:
        before, history = self._last, self._history
        if before is None or history is None:
            return
        if len(self.record.windows) >= WINDOWS_LIMIT:
            self._give_up(f"more than {WINDOWS_LIMIT} windows")
            return
        try:
            async with self._workdir() as root:
                after = await history.look(root)
                difference = await history.compare(root, before, after)
        except (CaptureError, AttemptFailure, OSError) as error:
            self._give_up(f"{label}: {describe(error)}")
            return
        self._last = after
        window = Window(
            label=label,
            by=by,
            before=before.tree,
            after=after.tree,
            changes=difference.changes,
            omitted=difference.omitted + after.omitted,
            unread=after.unread,
        )
        if by is ChangedBy.AGENT or window.changes:
            self.record = Attribution(windows=(*self.record.windows, window))

    def _give_up(self, reason: str) -> None:
        self._last = None
        self.record = Attribution(windows=self.record.windows, error=reason)

    @asynccontextmanager
    async def _workdir(self) -> AsyncGenerator[Path]:
        """The workdir where git can read it: in place, or as a copy made for this look."""
        if self._sandbox.tree is not None:
            yield self._sandbox.tree
            return
        mirror = await self._folder()
        try:
            await self._sandbox.export(Path(mirror.name))
            yield Path(mirror.name)
        finally:
            await asyncio.to_thread(mirror.cleanup)

    async def _folder(self) -> TemporaryDirectory[str]:
        try:
            return await asyncio.to_thread(self._tool.folders.make)
        except OSError as error:
            raise CaptureError(f"no private folder can be made: {error}") from error
