"""Files in and out of a container whose image has no tar: the engine packs and unpacks them by itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet_sandboxes.container_engine import Engine

_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class EngineCopies:
    """See `Copying`: of the container `name`, whose commands are the user's and group's of `owner`."""

    engine: Engine
    name: str
    owner: tuple[int, int]

    async def copy_in(self, archive: bytes, folder: str) -> None:
        await self._copy("-", f"{self.name}:{folder}", stdin=archive)

    async def copy_out(self, path: str, file: Path) -> None:
        await self._copy(f"{self.name}:{path}", "-", into=file)

    async def _copy(self, source: str, target: str, *, stdin: bytes = b"", into: Path | None = None) -> None:
        asked = (*self.engine.dialect.copy, source, target)
        result = await self.engine.call(*asked, group=self.name, stdin=stdin, timeout=_SECONDS, into=into)
        if not result.ok:
            raise AttemptFailure(FailureKind.SANDBOX, "SANDBOX_FAILED", self.engine.said(result))
