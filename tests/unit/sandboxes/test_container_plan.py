"""How an engine is told to make a container, whose it is, and which engine that is. No engine is needed."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from evalfleet.errors import ConfigurationError
from evalfleet.model.definition import Resources, SandboxSpec
from evalfleet.processes import SystemSpawner
from evalfleet.sandbox_ports import SandboxPlace
from evalfleet_sandboxes.container_box import BoxPlan
from evalfleet_sandboxes.container_engine import DIALECTS, InspectedContainer, choose_engine
from evalfleet_sandboxes.container_images import content_digest
from evalfleet_sandboxes.container_limits import WITHOUT_GROUPS, unenforced
from evalfleet_sandboxes.container_owner import Owner


@pytest.fixture
async def spawner() -> AsyncIterator[SystemSpawner]:
    spawner = SystemSpawner()
    yield spawner
    await spawner.close()


def told(spec: SandboxSpec, *, engine: str = "docker", workdir: str = "/workspace") -> list[str]:
    plan = BoxPlan(name="evalfleet-1", image="debian:12", workdir=workdir, user=None, labels=("a=b",), spec=spec)
    return list(plan.arguments(DIALECTS[engine], quota=False))


def pairs(arguments: list[str]) -> set[tuple[str, str]]:
    return set(itertools.pairwise(arguments))


def test_a_container_gets_no_rights_and_no_network() -> None:
    assert {
        ("--cap-drop", "ALL"),
        ("--security-opt", "no-new-privileges"),
        ("--network", "none"),
        ("--pids-limit", "-1"),
        ("--user", "0:0"),
        ("--pull", "never"),
        ("--label", "a=b"),
    } <= pairs(told(SandboxSpec()))


def test_a_list_of_hosts_closes_the_network_but_for_the_gateway() -> None:
    assert ("--network", "none") in pairs(told(SandboxSpec(network=("example.org",))))


def test_limits_are_told_and_memory_includes_swap() -> None:
    spec = SandboxSpec(network="open", resources=Resources(cpus=0.5, memory=1 << 30, pids=64))
    arguments = told(spec)
    limits = {("--memory", str(1 << 30)), ("--memory-swap", str(1 << 30)), ("--cpus", "0.5"), ("--pids-limit", "64")}
    assert limits <= pairs(arguments)
    assert "--network" not in arguments


def test_nothing_of_the_environment_is_told() -> None:
    arguments = told(SandboxSpec(env={"TOKEN": "secret"}))
    assert not any("secret" in argument or "TOKEN" in argument for argument in arguments)


@pytest.mark.parametrize(
    ("engine", "workdir", "apart"),
    [("docker", "/workspace", False), ("podman", "/workspace", True), ("podman", "/app", False)],
)
def test_podman_needs_a_volume_for_a_folder_at_the_top(engine: str, workdir: str, apart: bool) -> None:
    assert ("--volume" in told(SandboxSpec(), engine=engine, workdir=workdir)) == apart


def test_the_first_process_comes_after_the_image_whatever_its_entrypoint_is() -> None:
    arguments = told(SandboxSpec())
    assert arguments[-1] == "evalfleet-1"
    assert arguments[arguments.index("--entrypoint") : arguments.index("--entrypoint") + 4] == [
        *("--entrypoint", "sh", "debian:12", "-c"),
    ]


def test_no_two_containers_have_one_name(tmp_path: Path) -> None:
    owners = [
        Owner.of(SandboxPlace(state=tmp_path / state, spawner=SystemSpawner(), labels={"run": run}))
        for state in ("one", "two")
        for run in ("r1", "r2")
    ]
    names = {owner.name(attempt, number) for owner in owners for attempt in ("a", "b") for number in (1, 2)}
    assert len(names) == 16


@pytest.mark.parametrize(("start", "alive"), [("own", True), ("1", False), ("", None)])
def test_a_process_is_told_from_a_later_one_of_its_id(tmp_path: Path, start: str, alive: bool | None) -> None:
    owner = Owner.of(SandboxPlace(state=tmp_path, spawner=SystemSpawner()))
    labels = dict(label.split("=", 1) for label in owner.labels("mine"))
    if start != "own":
        labels["evalfleet.start"] = start
    container = InspectedContainer.model_validate(
        {
            "Name": "/evalfleet-1",
            "Created": "2026-01-02T03:04:05.123456789Z",
            "State": {"Running": True, "Pid": 1, "ExitCode": 0, "OOMKilled": False},
            "Config": {"Labels": labels},
        }
    )
    found = owner.found(container)
    assert (found.id, found.owner, found.pid, found.alive) == ("evalfleet-1", "mine", os.getpid(), alive)
    assert int(found.created_at) == 1767323045


async def test_without_an_engine_one_line_says_what_to_do(tmp_path: Path, spawner: SystemSpawner) -> None:
    with pytest.raises(ConfigurationError) as caught:
        await choose_engine(spawner, {"PATH": str(tmp_path)}, tmp_path / "engine")
    assert str(caught.value) == (
        "no container engine answers (docker can't be run; podman can't be run): "
        "install and start one of them, or name another by EVALFLEET_CONTAINER_ENGINE"
    )


async def test_an_engine_that_does_not_answer_is_quoted(tmp_path: Path, spawner: SystemSpawner) -> None:
    program = tmp_path / "mine"
    program.write_text("#!/bin/sh\necho first >&2; echo the daemon is down >&2; exit 1\n")
    program.chmod(0o755)
    with pytest.raises(ConfigurationError, match=r"mine said: the daemon is down\)") as caught:
        await choose_engine(spawner, {"PATH": "/usr/bin:/bin", "EVALFLEET_CONTAINER_ENGINE": str(program)}, tmp_path)
    assert "\n" not in str(caught.value)


def test_the_digest_of_a_build_follows_all_that_the_image_could_see(tmp_path: Path) -> None:
    def digest() -> str:
        return content_digest(tmp_path)

    (tmp_path / "Dockerfile").write_text("FROM x")
    (tmp_path / "sub").mkdir()
    digests = [digest()]
    for change in (
        lambda: (tmp_path / "Dockerfile").write_text("FROM y"),
        lambda: (tmp_path / "Dockerfile").chmod(0o755),
        lambda: (tmp_path / "sub" / "file").touch(),
        lambda: (tmp_path / "sub" / "file").rename(tmp_path / "sub" / "other"),
        lambda: (tmp_path / "link").symlink_to("a"),
    ):
        change()
        digests.append(digest())
    assert len(set(digests)) == len(digests)
    os.utime(tmp_path / "Dockerfile", (0, 0))
    assert digest() == digests[-1]


_ALL = Resources(memory=64, cpus=2.0, pids=9)


@pytest.mark.parametrize(
    ("asked", "line", "about"),
    [
        (
            _ALL,
            "Resource limits are not supported and ignored on cgroups V1 rootless systems",
            ["memory", "cpus", "pids"],
        ),
        (Resources(cpus=1.0), "Resource limits are not supported and ignored on cgroups V1 rootless systems", ["cpus"]),
        (_ALL, "WARNING: Your kernel does not support pids limit capabilities. PIDs limit discarded.", ["pids"]),
        (_ALL, "WARNING: Your kernel does not support memory limit capabilities. Limitation discarded.", ["memory"]),
        (Resources(), "Resource limits are not supported and ignored on cgroups V1 rootless systems", []),
        (_ALL, WITHOUT_GROUPS, ["memory", "cpus", "pids"]),
        (_ALL, 'time="now" level=warning msg="something else"', []),
    ],
)
def test_a_limit_that_the_engine_ignores_is_named(asked: Resources, line: str, about: list[str]) -> None:
    said = list(unenforced(asked, [line]))
    assert [notice.partition(":")[0] for notice in said] == [f"resources.{name}" for name in about]
    assert all(notice.endswith(line.removeprefix("WARNING: ")) for notice in said)


def test_another_warning_of_the_engine_is_passed_on() -> None:
    assert list(unenforced(_ALL, ["WARNING: IPv4 forwarding is disabled", "pulled"])) == ["IPv4 forwarding is disabled"]
