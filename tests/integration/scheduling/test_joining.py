"""A Ray that is not there is said at once and in one line."""

from __future__ import annotations

import socket

import pytest

from evalfleet.errors import InfrastructureError
from evalfleet.scheduling.ray_cluster import ray_cluster


def test_an_address_where_nothing_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused, and nobody else gets the port
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(InfrastructureError) as raised, ray_cluster(address):
            pytest.fail("it was joined")
    assert str(raised.value) == f"there is no Ray to join at {address}: Connection refused"
