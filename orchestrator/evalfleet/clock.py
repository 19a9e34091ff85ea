"""The real clock: the only reader of the system's time."""

from __future__ import annotations

import asyncio
import time


class SystemClock:
    """Time of this machine, behind the `Clock` port."""

    def wall(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
