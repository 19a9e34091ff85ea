"""An artifact store in memory that obeys the port."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from evalfleet.errors import StoreError
from evalfleet.model.ids import sha256


class MemoryArtifacts:
    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], bytes] = {}

    async def put(self, run: str, data: bytes) -> str:
        digest = sha256(data)
        self.objects[run, digest] = data
        return digest

    async def get(self, run: str, sha256: str) -> bytes:
        if (run, sha256) not in self.objects:
            raise StoreError(f"no {sha256}")
        return self.objects[run, sha256]

    async def delete_run(self, run: str) -> None:
        self.objects = {key: data for key, data in self.objects.items() if key[0] != run}

    async def list_run(self, run: str) -> AsyncGenerator[str]:
        for owner, digest in list(self.objects):
            if owner == run:
                yield digest
