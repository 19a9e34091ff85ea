"""Container engines of the tests' own: a dockerd with its own root, a podman with its own storage."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from evalfleet.processes import SystemSpawner, process_alive, start_daemon
from evalfleet.sandbox_ports import SandboxPlace
from evalfleet_sandboxes import container
from evalfleet_sandboxes.container import ContainerProvider
from tests.engines.image import image

IMAGE = "evalfleet-test/base:1"
#: One with python3, as relays need it.
PYTHON_IMAGE = "evalfleet-test/python:1"
#: Other images by name: what they lack of the first one, and what they change of it, as an engine's `import` takes it.
IMAGES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    IMAGE: ((), ()),
    PYTHON_IMAGE: ((), ()),
    "evalfleet-test/shell-entry:1": ((), ('ENTRYPOINT ["/bin/bash"]',)),
    "evalfleet-test/deaf-entry:1": ((), ('ENTRYPOINT ["/bin/sh", "-c", "exit 3"]',)),
    "evalfleet-test/c-locale:1": ((), ("ENV LC_ALL=C",)),
    "evalfleet-test/worker:1": ((), ("USER worker", "WORKDIR /home/worker/project")),
    "evalfleet-test/locked:1": ((), ("USER worker", "WORKDIR /app")),
    "evalfleet-test/no-shell:1": (("sh", "dash", "bash"), ()),
    "evalfleet-test/no-tar:1": (("tar",), ()),
}
_START_SECONDS = 30.0
_STOP_SECONDS = 30.0


class NoEngineError(Exception):
    """What is missing to start an engine here, and what to install."""


@contextmanager
def docker(folder: Path, *, elsewhere: bool = False) -> Generator[dict[str, str]]:
    """The environment of clients of a dockerd that ends with the block.

    One that is `elsewhere` has a process namespace of its own: its containers can't be seen from here.
    """
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        raise NoEngineError("needs root and a dockerd that can be started: apt-get install docker.io")
    address = f"unix://{folder}/docker.sock"
    argv = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"] if elsewhere else []
    argv += ["dockerd", "--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec", "--host", address]
    argv += ["--pidfile", f"{folder}/docker.pid", "--iptables=false", "--ip6tables=false"]
    pid = start_daemon([*argv, "--exec-opt", "native.cgroupdriver=cgroupfs"], env=None, log=folder / "log")
    environment = {**_own(), "DOCKER_HOST": address}
    try:
        end = time.monotonic() + _START_SECONDS
        while _call(["docker", "ps"], environment).returncode != 0:
            if time.monotonic() > end or not process_alive(pid):
                raise NoEngineError(f"a dockerd did not start: {(folder / 'log').read_text()[-500:]}")
            time.sleep(0.1)
        _bring(["docker"], environment, (IMAGE, PYTHON_IMAGE) if elsewhere else tuple(IMAGES))
        yield {**environment, "EVALFLEET_CONTAINER_ENGINE": "docker"}
    finally:
        if process_alive(pid):
            os.kill(pid, 9 if elsewhere else 15)  # its namespaces go with it; what made them passes nothing else on
        end = time.monotonic() + _STOP_SECONDS
        while process_alive(pid) and time.monotonic() < end:
            time.sleep(0.1)
        shutil.rmtree(folder / "data", ignore_errors=True)


@contextmanager
def podman(folder: Path) -> Generator[dict[str, str]]:
    """The environment of a podman with storage of its own, which goes with the block: rootless but for root."""
    rootless = os.geteuid() != 0
    if shutil.which("podman") is None or (rootless and shutil.which("newuidmap") is None):
        raise NoEngineError("needs podman, and of ordinary users newuidmap: apt-get install podman runc uidmap")
    runtime = "runc" if shutil.which("runc") else "crun"
    (folder / "containers.conf").write_text(
        f"""
[containers]
default_ulimits = ["nofile=1024:4096", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "{runtime}"
tmp_dir = "{folder}/tmp"
static_dir = "{folder}/static"
volume_path = "{folder}/volumes"
"""
    )
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n'
    )
    environment = {
        **_own(),
        "CONTAINERS_CONF": str(folder / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
    }
    try:
        _bring(["podman"], environment, tuple(IMAGES))
        yield {**environment, "EVALFLEET_CONTAINER_ENGINE": "podman"}
    finally:
        _call(["podman", "rm", "--all", "--force", "--time", "0"], environment)
        if rootless:  # what is in there belongs to the user's other ids
            _call(["podman", "unshare", "rm", "-rf", str(folder / "graph")], environment)
        else:
            _call(["umount", str(folder / "graph" / "overlay")], environment)
            shutil.rmtree(folder / "graph", ignore_errors=True)


def _bring(client: list[str], environment: Mapping[str, str], images: tuple[str, ...]) -> None:
    for name in images:
        without, changes = IMAGES[name]
        options = [part for change in changes for part in ("--change", change)]
        result = _call(
            [*client, "import", *options, "-", name], environment, image(without=without, python=name == PYTHON_IMAGE)
        )
        if result.returncode != 0:
            raise NoEngineError(f"{client[0]} does not work here: {result.stderr.decode(errors='replace')[-500:]}")


def _own() -> dict[str, str]:
    return {name: os.environ[name] for name in ("PATH", "HOME", "XDG_RUNTIME_DIR") if name in os.environ}


def _call(argv: list[str], environment: Mapping[str, str], stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(argv, env=dict(environment), input=stdin, capture_output=True, check=False, timeout=300)


def call(engine: str, *args: str) -> str:
    """What an engine of these tests prints."""
    environment = environment_of(engine)
    result = _call([environment["EVALFLEET_CONTAINER_ENGINE"], *args], environment)
    assert result.returncode == 0, result.stderr.decode(errors="replace")
    return result.stdout.decode()


def variable(engine: str) -> str:
    """Where the fixture leaves the engine's environment for providers in any process of the tests."""
    return f"EVALFLEET_TEST_{engine.upper()}"


def environment_of(engine: str) -> dict[str, str]:
    return json.loads(os.environ[variable(engine)])


@asynccontextmanager
async def provider_of(engine: str, state: Path, **settings: str) -> AsyncGenerator[ContainerProvider]:
    """A provider on an engine of these tests, which the fixture of its name has started; with more settings."""
    spawner = SystemSpawner()
    place = SandboxPlace(state=state, spawner=spawner, environment={**environment_of(engine), **settings})
    provider = container.factory.build(place)
    try:
        yield provider
    finally:
        await provider.close()
        await spawner.close()
