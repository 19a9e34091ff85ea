"""Starting a Ray of our own, or joining one that runs."""

# pyright: reportUnknownMemberType=false

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Generator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import ray
from ray.exceptions import RayError

from evalfleet.errors import InfrastructureError
from evalfleet.rewriting import Rewriting
from evalfleet.scheduling.ray_crew import Crew

_OBJECT_STORE = 100 << 20
_KNOCK_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """The Ray this process uses. `cpus` counts those of all nodes; `own` says that it ends with this process.

    `crew` is what stands ready there for this process's first run.
    """

    address: str
    cpus: int
    own: bool
    crew: Crew | None = None


@contextmanager
def ray_cluster(address: str | None, temporary: Path | None = None) -> Generator[Cluster, None, None]:
    """Join the Ray at `address`, or start a private one that ends with the block.

    Raises InfrastructureError when neither works.
    """
    try:
        if address is None:
            _start(temporary)
        else:
            _join(address)
    except (ConnectionError, RuntimeError, OSError, ValueError, RayError) as error:
        what = "Ray could not be started here" if address is None else f"there is no Ray to join at {address}"
        raise InfrastructureError(f"{what}: {_reason(error)}") from error
    # Ray keeps some of its remarks until it is shut down.
    with redirect_stdout(Rewriting(sys.stdout, _WithoutRemarks())):
        try:
            where = str(ray.get_runtime_context().gcs_address)  # pyright: ignore[reportUnknownArgumentType]
            yield Cluster(where, int(ray.cluster_resources().get("CPU", 1)), own=address is None)
        finally:
            ray.shutdown()


def _reason(error: Exception) -> str:
    """What went wrong, in one line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).strip().partition("\n")[0] or repr(error)


class _WithoutRemarks:
    """Drops Ray's remarks about dead workers: they would stand amid a program's JSON, and the run reports each death
    in its own words."""

    def __init__(self) -> None:
        self._dropped = False

    def __call__(self, text: str) -> str:
        # `print` writes a remark and its line end apart.
        remark = "(raylet)" in text[:40]
        kept = "" if remark or (self._dropped and text == "\n") else text
        self._dropped = remark
        return kept


def _join(address: str) -> None:
    _knock(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RayError) as error:
        # Ray says the same of a Ray that is none, and of one that refuses us.
        raise ConnectionError(f"{_reason(error)} (if it asks for a token, set RAY_AUTH_MODE=token)") from error


def _knock(address: str) -> None:
    """Raise OSError unless something listens at HOST:PORT: Ray itself would go on trying for ten minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), _KNOCK_SECONDS).close()


def _start(temporary: Path | None) -> None:
    ray.init(
        address="local",
        include_dashboard=False,
        object_store_memory=_OBJECT_STORE,
        log_to_driver=False,
        logging_level=logging.ERROR,
        _node_ip_address="127.0.0.1",
        _temp_dir=None if temporary is None else str(temporary),
    )
