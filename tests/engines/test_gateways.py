"""The gateway where a container's network can't be entered from here: by a relay, which outlives cuts."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from evalfleet.errors import AttemptFailure
from evalfleet.gateway.listener import GatewayRoom
from evalfleet.model.definition import SandboxSpec
from evalfleet.processes import SystemSpawner
from evalfleet.randomness import SystemRandom
from evalfleet.sandbox_ports import Command, Listening, Sandbox
from evalfleet_sandboxes.container_box import BoxPlan
from evalfleet_sandboxes.container_engine import choose_engine
from evalfleet_sandboxes.container_relay import relay_in
from evalfleet_sandboxes.relay import Relays
from evalfleet_sandboxes.relay_program import RELAY_IMAGE
from tests.acceptance.escape.attempts import TRIES, scene
from tests.engines.engines import IMAGE, PYTHON_IMAGE, call, environment_of, provider_of

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="function")]

OF_GATEWAYS = ("only_its_own_gateway_answers", "a_tunnel_leads_to_the_allowed_host_only")
#: The image of a sandbox, and that of its relay.
PLACES = [pytest.param(PYTHON_IMAGE, None, id="inside"), pytest.param(IMAGE, PYTHON_IMAGE, id="beside")]
_GET = """
url=${EVALFLEET_GATEWAY#http://}; place=${url%%/*}
exec 3<>"/dev/tcp/${place%:*}/${place#*:}" && printf 'GET /%s/ HTTP/1.0\\r\\n\\r\\n' "${url#*/}" >&3 && cat <&3
"""
ALIVE = '{"gateway":"evalfleet"}'


@pytest.mark.parametrize(("image", "relay"), PLACES)
@pytest.mark.parametrize("name", OF_GATEWAYS)
async def test_containers_elsewhere_reach_their_own_gateway_only(
    elsewhere: str, name: str, image: str, relay: str | None, tmp_path: Path
) -> None:
    settings = {} if relay is None else {RELAY_IMAGE: relay}
    async with (
        provider_of(elsewhere, tmp_path / "state", **settings) as provider,
        scene(provider, SandboxSpec(image=image), tmp_path) as here,
    ):
        await TRIES[name](here)
    assert call(elsewhere, "ps", "--all", "--quiet") == ""


async def test_an_image_without_python_is_told_before_anything_runs(elsewhere: str, tmp_path: Path) -> None:
    async def opening(sandbox: Listening) -> Mapping[str, str]:
        return (await GatewayRoom(SystemRandom()).open(sandbox, (), {})).environment

    async with provider_of(elsewhere, tmp_path) as provider:
        with pytest.raises(AttemptFailure, match=rf"its image needs python3 .*, or {RELAY_IMAGE} names") as caught:
            await provider.create_reachable(SandboxSpec(image=IMAGE, setup=("touch /ran",)), "mine", opening)
        assert caught.value.code == "SANDBOX_UNREACHABLE"
        assert await provider.found() == []


@pytest.mark.parametrize(("image", "relay"), PLACES)
async def test_a_relay_whose_client_is_killed_comes_back(
    engine: str, image: str, relay: str | None, tmp_path: Path
) -> None:
    async with provider_of(engine, tmp_path / "state") as provider:
        sandbox = await provider.create(SandboxSpec(image=image), "mine")
        async with _relayed(engine, sandbox, relay, tmp_path) as (get, relays):
            for _ in range(3):
                assert (await sandbox.run(get)).text.endswith(ALIVE)
                _kill_client(sandbox.id)
                async with asyncio.timeout(60):
                    while True:
                        if (await sandbox.run(get)).text.endswith(ALIVE):
                            break
            relays.require()
    assert call(engine, "ps", "--all", "--quiet") == ""


async def test_a_relay_whose_container_is_gone_is_told(engine: str, tmp_path: Path) -> None:
    async with provider_of(engine, tmp_path / "state") as provider:
        sandbox = await provider.create(SandboxSpec(image=PYTHON_IMAGE), "mine")
        async with _relayed(engine, sandbox, None, tmp_path) as (get, relays):
            assert (await sandbox.run(get)).text.endswith(ALIVE)
            call(engine, "rm", "--force", sandbox.id)
            with pytest.raises(AttemptFailure) as caught:
                async with asyncio.timeout(60):
                    while True:
                        relays.require()
                        await asyncio.sleep(0.1)
            assert caught.value.code == "SANDBOX_UNREACHABLE"


@asynccontextmanager
async def _relayed(
    engine: str, sandbox: Sandbox, relay: str | None, folder: Path
) -> AsyncGenerator[tuple[Command, Relays]]:
    """A gateway behind a relay, though an engine of this machine needs none."""
    spawner = SystemSpawner()
    client = await choose_engine(spawner, environment_of(engine), folder / "clients")
    plan = BoxPlan(name=sandbox.id, image="", workdir="/", user=None, spec=SandboxSpec(), relay_image=relay)
    relays = Relays(relay_in(client, plan))
    try:
        gateway = await GatewayRoom(SystemRandom()).open(relays, (), {})
        try:
            yield Command(argv=("bash", "-c", _GET), env=gateway.environment, timeout=30.0), relays
        finally:
            await gateway.close()
    finally:
        await relays.close()
        await spawner.close()


def _kill_client(sandbox: str) -> None:
    """Kill the engine's client that holds the relay's stream, as the death of its connection."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes()
        except OSError:
            continue
        program = line.split(b"\0")[0]
        if program in (b"docker", b"podman") and sandbox.encode() in line and b"\0-I\0-S\0-c\0" in line:
            os.kill(int(process.name), signal.SIGKILL)
