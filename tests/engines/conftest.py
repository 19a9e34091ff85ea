"""Starts the engines once for all tests of a process; without one its tests are skipped, saying what to install."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.engines import engines
from tests.engines.engines import NoEngineError, variable


@pytest.fixture(scope="session", params=["docker", "podman"])
def engine(request: pytest.FixtureRequest) -> str:
    """The name of an engine that runs."""
    request.getfixturevalue(request.param)
    return request.param


@pytest.fixture(scope="session")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    yield from _started("docker", tmp_path_factory)


@pytest.fixture(scope="session")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    yield from _started("podman", tmp_path_factory)


@pytest.fixture(scope="session")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of a docker whose containers are not of this machine, as far as it shows."""
    try:
        with (
            engines.docker(tmp_path_factory.mktemp("elsewhere"), elsewhere=True) as environment,
            pytest.MonkeyPatch.context() as patch,
        ):
            patch.setenv(variable("elsewhere"), json.dumps(environment))
            yield "elsewhere"
    except NoEngineError as error:
        pytest.skip(f"docker: {error}")


def _started(name: str, folders: pytest.TempPathFactory) -> Iterator[None]:
    start = engines.docker if name == "docker" else engines.podman
    try:
        with start(folders.mktemp(name)) as environment, pytest.MonkeyPatch.context() as patch:
            patch.setenv(variable(name), json.dumps(environment))
            yield
    except NoEngineError as error:
        pytest.skip(f"{name}: {error}")
