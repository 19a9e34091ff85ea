"""The sandbox `container` passes the public suite with each engine."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from evalfleet.sandbox_ports import SandboxProvider
from evalfleet.testing.sandbox_suite import sandbox_suite
from tests.engines.engines import IMAGE, provider_of


@asynccontextmanager
async def docker_provider(state: Path) -> AsyncGenerator[SandboxProvider]:
    async with provider_of("docker", state) as provider:
        yield provider


@asynccontextmanager
async def podman_provider(state: Path) -> AsyncGenerator[SandboxProvider]:
    async with provider_of("podman", state) as provider:
        yield provider


pytestmark = pytest.mark.engine
TestDocker = pytest.mark.usefixtures("docker")(sandbox_suite(docker_provider, image=IMAGE))
TestPodman = pytest.mark.usefixtures("podman")(sandbox_suite(podman_provider, image=IMAGE))
