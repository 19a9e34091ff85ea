"""The gateway of a Pod: by a relay in the container beside the sandbox's, over the API server alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from evalfleet.errors import AttemptFailure
from evalfleet.gateway.listener import AttemptGateway, GatewayRoom
from evalfleet.model.definition import SandboxSpec
from evalfleet.randomness import SystemRandom
from evalfleet.sandbox_ports import Command, Listening
from evalfleet_sandboxes.kubernetes import KubernetesProvider
from evalfleet_sandboxes.kubernetes_pods import RELAY
from evalfleet_sandboxes.kubernetes_sandbox import KubernetesSandbox
from evalfleet_sandboxes.relay_program import RELAY_IMAGE
from tests.acceptance.escape.attempts import TRIES, scene
from tests.kubernetes.cluster import ENVIRONMENT, IMAGE, PYTHON_IMAGE, admin, closing_template, pods, provider_of, save
from tests.kubernetes.relay import relayed

SPEC = SandboxSpec(image=IMAGE)
_GET = """
url=${EVALFLEET_GATEWAY#http://}; place=${url%%/*}
exec 3<>"/dev/tcp/${place%:*}/${place#*:}" && printf 'GET /%s/ HTTP/1.0\\r\\n\\r\\n' "${url#*/}" >&3 && cat <&3
"""
GET = Command(argv=("bash", "-c", _GET), timeout=30.0)
ALIVE = '{"gateway":"evalfleet"}'


def settings(folder: Path, relay: str | None = PYTHON_IMAGE) -> dict[str, str]:
    """A network that is closed, and where relays run."""
    return {**save(closing_template(), folder / "pod.yaml"), **({} if relay is None else {RELAY_IMAGE: relay})}


@pytest.mark.parametrize(("image", "relay"), [(IMAGE, PYTHON_IMAGE), (PYTHON_IMAGE, None)], ids=["given", "its own"])
@pytest.mark.parametrize("name", ["only_its_own_gateway_answers", "a_tunnel_leads_to_the_allowed_host_only"])
async def test_pods_reach_their_own_gateway_only(name: str, image: str, relay: str | None, tmp_path: Path) -> None:
    async with (
        provider_of(tmp_path / "state", settings(tmp_path, relay)) as provider,
        scene(provider, SandboxSpec(image=image), tmp_path) as here,
    ):
        await TRIES[name](here)


async def test_a_relay_outlives_cuts_and_goes_with_its_pod(tmp_path: Path) -> None:
    async with (
        relayed(Path(ENVIRONMENT["KUBECONFIG"]), tmp_path) as (relay, through),
        provider_of(tmp_path / "state", {**settings(tmp_path), **through}) as provider,
        _reachable(provider, SPEC) as sandbox,
    ):
        for _ in range(3):
            assert (await sandbox.run(GET)).text.endswith(ALIVE)
            relay.cut()
            async with asyncio.timeout(60):
                while True:
                    if (await sandbox.run(GET)).text.endswith(ALIVE):
                        break
        await sandbox.probe()
        await sandbox.reset()
        assert (await sandbox.run(GET)).text.endswith(ALIVE)
        name = sandbox.id
    async with admin() as cluster:
        assert name not in [pod["metadata"]["name"] for pod in await pods(cluster)]


async def test_an_image_without_python_is_told_before_anything_runs(tmp_path: Path) -> None:
    async with provider_of(tmp_path / "state", settings(tmp_path, None)) as provider:
        with pytest.raises(AttemptFailure, match=rf"its image needs python3 .*, or {RELAY_IMAGE} names") as caught:
            async with _reachable(provider, SPEC, "without python"):
                raise AssertionError("it was made")
        assert caught.value.code == "SANDBOX_UNREACHABLE"
        assert [found for found in await provider.found() if found.owner == "without python"] == []


async def test_a_relay_is_out_of_the_sandboxs_sight_and_may_do_nothing(tmp_path: Path) -> None:
    async with (
        provider_of(tmp_path / "state", settings(tmp_path)) as provider,
        admin() as cluster,
        _reachable(provider, SPEC) as sandbox,
    ):
        programs = Command(argv=("sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' '\\n'"))
        assert "python3" not in (await sandbox.run(programs)).text.splitlines()
        assert (await sandbox.run(GET)).text.endswith(ALIVE)
        who = ("python3", "-c", "import os; print(os.getuid(), os.access('/', os.W_OK))")
        assert (await cluster.execute(sandbox.id, RELAY, who)).stdout == b"65534 False\n"


@asynccontextmanager
async def _reachable(
    provider: KubernetesProvider, spec: SandboxSpec, owner: str = "reachable"
) -> AsyncGenerator[KubernetesSandbox]:
    gateways: list[AttemptGateway] = []

    async def opening(sandbox: Listening) -> Mapping[str, str]:
        gateways.append(await GatewayRoom(SystemRandom()).open(sandbox, (), {}))
        return gateways[-1].environment

    try:
        yield await provider.create_reachable(spec, owner, opening)
    finally:
        for gateway in gateways:
            await gateway.close()
