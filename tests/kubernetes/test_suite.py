"""The sandbox `kubernetes` passes the public suite, on a real cluster."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from evalfleet.processes import SystemSpawner
from evalfleet.sandbox_ports import SandboxPlace, SandboxProvider
from evalfleet.testing.sandbox_suite import sandbox_suite
from evalfleet_sandboxes import kubernetes
from tests.kubernetes.cluster import ENVIRONMENT, IMAGE


@asynccontextmanager
async def kubernetes_provider(state: Path) -> AsyncGenerator[SandboxProvider]:
    spawner = SystemSpawner()
    provider = kubernetes.factory.build(SandboxPlace(state=state, spawner=spawner, environment=ENVIRONMENT))
    try:
        yield provider
    finally:
        await provider.close()
        await spawner.close()


TestKubernetes = sandbox_suite(kubernetes_provider, image=IMAGE)
