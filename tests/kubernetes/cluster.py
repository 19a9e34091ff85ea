"""The cluster that `make test-k8s` started for these tests; without one they are skipped."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from evalfleet.processes import SystemSpawner
from evalfleet.sandbox_ports import SandboxPlace
from evalfleet_sandboxes import kubernetes, kubernetes_pods
from evalfleet_sandboxes.kubernetes import KubernetesProvider
from evalfleet_sandboxes.kubernetes_access import Access, find_source
from evalfleet_sandboxes.kubernetes_api import Cluster, Refused
from evalfleet_sandboxes.kubernetes_making import Patience
from evalfleet_sandboxes.kubernetes_pods import Manifest
from evalfleet_sandboxes.relay_program import RELAY_IMAGE

_KUBECONFIG = os.environ.get("EVALFLEET_TEST_KUBECONFIG")
if _KUBECONFIG is None:
    pytest.skip("`make test-k8s` runs these, on a Kubernetes that it starts here", allow_module_level=True)

ENVIRONMENT = {"KUBECONFIG": _KUBECONFIG, "HOME": "/nonexistent"}
#: Images that the cluster's node has: Debian with an entrypoint that takes no arguments, and one without tar.
IMAGE, NO_TAR_IMAGE = "evalfleet-test/debian:1", "evalfleet-test/no-tar:1"
#: One with python3, which the others lack, as relays need it.
PYTHON_IMAGE = "evalfleet-test/python:1"


@asynccontextmanager
async def provider_of(
    state: Path, environment: dict[str, str] | None = None, patience: Patience | None = None
) -> AsyncGenerator[KubernetesProvider]:
    """A provider on the cluster of these tests, with more in its environment."""
    spawner = SystemSpawner()
    place = SandboxPlace(state=state, spawner=spawner, environment={**ENVIRONMENT, **(environment or {})})
    provider = kubernetes.KubernetesProvider(place, patience)
    try:
        yield provider
    finally:
        await provider.close()
        await spawner.close()


@asynccontextmanager
async def suite_provider(state: Path) -> AsyncGenerator[KubernetesProvider]:
    """A provider in a namespace of this pytest process's own: what it finds is of the test alone."""
    name = f"suite-{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}"
    async with admin(name) as cluster:
        await make_namespace(cluster)
    state.mkdir(parents=True, exist_ok=True)
    environment = {
        kubernetes.NAMESPACE: name,
        RELAY_IMAGE: PYTHON_IMAGE,
        **save(closing_template(), state / "pod.yaml"),
    }
    async with provider_of(state / "scratch", environment) as provider:
        yield provider


async def make_namespace(cluster: Cluster) -> None:
    """Make the cluster's namespace, should there be none, and wait until Pods may be made in it."""
    try:
        await cluster.call("POST", "/api/v1/namespaces", body={"metadata": {"name": cluster.namespace}})
    except Refused as error:
        if error.status != 409:
            raise
    await until(cluster, "serviceaccounts", lambda account: "secrets" in account)


async def until(cluster: Cluster, kind: str, ready: Callable[[Manifest], bool]) -> None:
    """Wait until the controllers have done their part for a namespace."""
    for _ in range(100):
        items = (await cluster.call("GET", cluster.path(kind)))["items"]
        if items and all(ready(item) for item in items):
            return
        await asyncio.sleep(0.2)
    raise AssertionError(f"no {kind} within 20 s")


@asynccontextmanager
async def admin(namespace: str = "default") -> AsyncGenerator[Cluster]:
    """The cluster itself, for what tests prepare and look at."""
    access = Access(find_source(ENVIRONMENT))
    await access.open()
    try:
        yield Cluster(access, namespace)
    finally:
        await access.close()


async def pods(cluster: Cluster) -> list[Manifest]:
    """All Pods of the namespace that are not being removed."""
    items = (await cluster.call("GET", cluster.path("pods")))["items"]
    return [item for item in items if "deletionTimestamp" not in item["metadata"]]


def shipped_template() -> Manifest:
    return load(Path(kubernetes_pods.__file__).with_name("kubernetes_pod.yaml"))


def closing_template() -> Manifest:
    """The shipped template with what closes networks on a cluster without a plugin that does: see docs/sandboxes.md."""
    template = shipped_template()
    template["spec"]["initContainers"] = [
        {
            "name": "close-network",
            "image": "evalfleet-test/busybox:1",
            "command": ["sh", "-c", '[ "$NETWORK" = open ] || ip link set eth0 down'],
            "env": [
                {"name": "NETWORK", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['evalfleet.network']"}}}
            ],
            "securityContext": {
                "runAsUser": 0,
                "runAsNonRoot": False,
                "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]},
            },
        }
    ]
    return template


def load(file: Path) -> Manifest:
    return YAML(typ="safe", pure=True).load(file.read_bytes())


def save(template: Manifest, file: Path) -> dict[str, str]:
    """Write a template; the environment that names it."""
    with file.open("w", encoding="utf-8") as opened:
        YAML(typ="safe", pure=True).dump(template, opened)
    return {kubernetes.TEMPLATE: str(file)}
