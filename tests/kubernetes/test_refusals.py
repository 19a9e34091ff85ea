"""What a cluster refuses or takes away, and what is said of it; no failure leaves a Pod."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from evalfleet.errors import AttemptFailure, ConfigurationError
from evalfleet.model.definition import Resources, SandboxSpec
from evalfleet.sandbox_ports import Command
from evalfleet_sandboxes.kubernetes import NAMESPACE, RUNTIME_CLASS, KubernetesProvider
from evalfleet_sandboxes.kubernetes_api import Cluster
from evalfleet_sandboxes.kubernetes_making import Patience
from tests.kubernetes.cluster import (
    ENVIRONMENT,
    IMAGE,
    NO_TAR_IMAGE,
    admin,
    load,
    make_namespace,
    pods,
    provider_of,
    save,
    shipped_template,
    until,
)

SPEC = SandboxSpec(image=IMAGE)


@asynccontextmanager
async def namespace(name: str) -> AsyncGenerator[Cluster]:
    """A namespace of the test's own."""
    async with admin(name) as cluster:
        await make_namespace(cluster)
        try:
            yield cluster
        finally:
            await cluster.call("DELETE", f"/api/v1/namespaces/{name}")


async def refused(provider: KubernetesProvider, spec: SandboxSpec, code: str, owner: str = "owner") -> str:
    with pytest.raises(AttemptFailure) as caught:
        await provider.create(spec, owner)
    assert caught.value.code == code, str(caught.value)
    return str(caught.value)


async def test_an_image_that_is_nowhere_is_said_in_the_same_words_each_time_and_leaves_no_pod(tmp_path: Path) -> None:
    template = shipped_template()
    template["spec"]["containers"][0]["imagePullPolicy"] = "Never"
    async with (
        namespace("images") as cluster,
        provider_of(tmp_path / "state", {NAMESPACE: "images", **save(template, tmp_path / "pod.yaml")}) as provider,
    ):
        for image, word in (("nowhere.invalid/image:1", "ErrImageNeverPull"), ("Not An Image", "InvalidImageName")):
            spec = SandboxSpec(image=image)
            said = {await refused(provider, spec, "SANDBOX_IMAGE_MISSING", f"owner-{number}") for number in range(3)}
            assert len(said) == 1
            assert word in said.pop()
        assert await pods(cluster) == []


async def test_what_no_node_takes_is_given_up_after_a_while(tmp_path: Path) -> None:
    async with (
        namespace("too-large") as cluster,
        provider_of(tmp_path / "state", {NAMESPACE: "too-large"}, Patience(place=2.0)) as provider,
    ):
        spec = SandboxSpec(image=IMAGE, resources=Resources(cpus=1000))
        said = await refused(provider, spec, "SANDBOX_UNSCHEDULABLE")
        assert "cpu" in said
        assert await pods(cluster) == []


async def test_a_quota_that_is_used_up_is_told_from_a_missing_right(tmp_path: Path) -> None:
    async with (
        namespace("quota") as cluster,
        provider_of(tmp_path / "state", {NAMESPACE: "quota"}) as provider,
    ):
        quota = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
        await cluster.call("POST", cluster.path("resourcequotas"), body=quota)
        await until(cluster, "resourcequotas", lambda found: "hard" in found.get("status", {}))
        assert "quota" in await refused(provider, SPEC, "SANDBOX_QUOTA")


async def test_ten_failing_setups_leave_no_pod(tmp_path: Path) -> None:
    async with (
        namespace("failing") as cluster,
        provider_of(tmp_path / "state", {NAMESPACE: "failing"}) as provider,
    ):
        for number in range(10):
            await refused(provider, SandboxSpec(image=IMAGE, setup=("exit 1",)), "SANDBOX_SETUP_FAILED", f"o{number}")
        assert await pods(cluster) == []


async def test_an_image_without_tools_is_unfit_before_anything_runs(tmp_path: Path) -> None:
    async with provider_of(tmp_path / "state") as provider:
        assert "tar" in await refused(provider, SandboxSpec(image=NO_TAR_IMAGE), "SANDBOX_IMAGE_UNFIT")


async def test_a_pod_that_somebody_deletes_is_lost_and_no_result(tmp_path: Path) -> None:
    async with admin() as cluster, provider_of(tmp_path / "state") as provider:
        sandbox = await provider.create(SPEC, "deleted")
        await cluster.call("DELETE", cluster.path("pods", sandbox.id), query={"gracePeriodSeconds": "0"})
        with pytest.raises(AttemptFailure) as caught:
            await sandbox.run(Command(argv=("true",)))
        assert caught.value.code == "SANDBOX_LOST"
        with pytest.raises(AttemptFailure) as caught:
            await sandbox.probe()
        assert caught.value.code == "SANDBOX_LOST"


async def test_a_pod_that_outlives_its_deadline_says_so(tmp_path: Path) -> None:
    template = shipped_template()
    template["spec"]["activeDeadlineSeconds"] = 8
    async with provider_of(tmp_path / "state", save(template, tmp_path / "pod.yaml")) as provider:
        sandbox = await provider.create(SPEC, "old")
        with pytest.raises(AttemptFailure, match="activeDeadlineSeconds") as caught:
            await sandbox.run(Command(argv=("sleep", "60")))
        assert caught.value.code == "SANDBOX_LOST"


async def test_memory_is_limited_and_its_kills_are_counted(tmp_path: Path) -> None:
    async with provider_of(tmp_path / "state") as provider:
        spec = SandboxSpec(image=IMAGE, resources=Resources(memory=64 << 20))
        sandbox = await provider.create(spec, "small")
        result = await sandbox.run(Command(argv=("sh", "-c", "head -c 200000000 /dev/zero | tail >/dev/null; echo on")))
        assert (result.exit_code, result.text) == (0, "on\n")
        assert result.oom_kills is not None and result.oom_kills >= 1


async def test_commands_run_as_the_users_number(tmp_path: Path) -> None:
    async with provider_of(tmp_path / "state") as provider:
        sandbox = await provider.create(SandboxSpec(image=IMAGE, user="4321"), "user")
        assert (await sandbox.run(Command(argv=("id", "-u")))).text == "4321\n"
        with pytest.raises(AttemptFailure) as caught:
            await sandbox.run(Command(argv=("id",), user="0"))
        assert caught.value.code == "SANDBOX_UNSUPPORTED"


async def test_secrets_of_the_environment_are_not_in_the_pods_manifest(tmp_path: Path) -> None:
    async with admin() as cluster, provider_of(tmp_path / "state") as provider:
        sandbox = await provider.create(SandboxSpec(image=IMAGE, env={"KEY": "swordfish"}), "secret")
        assert (await sandbox.run(Command(argv=("printenv", "KEY")))).text == "swordfish\n"
        assert "swordfish" not in str(await cluster.call("GET", cluster.path("pods", sandbox.id)))


async def test_a_check_says_which_rights_are_missing(tmp_path: Path) -> None:
    config = load(Path(ENVIRONMENT["KUBECONFIG"]))
    config["current-context"] = "nobody"
    save(config, tmp_path / "nobody")
    async with provider_of(tmp_path / "state", {"KUBECONFIG": str(tmp_path / "nobody")}) as provider:
        with pytest.raises(ConfigurationError, match="create pods/exec") as caught:
            await provider.check()
        assert "\n" not in str(caught.value)
        assert "create pods" in await refused(provider, SPEC, "SANDBOX_FORBIDDEN")


@pytest.mark.parametrize(
    ("environment", "word"),
    [
        ({"KUBECONFIG": "/nonexistent/config"}, "no kubeconfig at /nonexistent/config"),
        ({NAMESPACE: "not-there"}, "not-there"),
        ({RUNTIME_CLASS: "not-there"}, "not-there"),
    ],
)
async def test_a_check_says_what_is_wrong_in_a_line(tmp_path: Path, environment: dict[str, str], word: str) -> None:
    async with provider_of(tmp_path / "state", environment) as provider:
        with pytest.raises(ConfigurationError, match=word) as caught:
            await provider.check()
        assert "\n" not in str(caught.value)


async def test_a_check_says_that_the_server_is_not_there(tmp_path: Path) -> None:
    config = load(Path(ENVIRONMENT["KUBECONFIG"]))
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"
    save(config, tmp_path / "gone")
    async with provider_of(tmp_path / "state", {"KUBECONFIG": str(tmp_path / "gone")}) as provider:
        with pytest.raises(ConfigurationError, match="can't be reached") as caught:
            await provider.check()
        assert "\n" not in str(caught.value)


async def test_a_check_is_silent_where_all_is_well_and_makes_nothing(tmp_path: Path) -> None:
    async with (
        namespace("checked") as cluster,
        provider_of(tmp_path / "state", {NAMESPACE: "checked"}) as provider,
    ):
        await provider.check()
        assert await pods(cluster) == []


async def test_the_network_policy_is_made_once_and_what_it_is_worth_is_said(tmp_path: Path) -> None:
    async with (
        namespace("closed") as cluster,
        provider_of(tmp_path / "state", {NAMESPACE: "closed"}) as provider,
    ):
        first, second = [await provider.create(SPEC, owner) for owner in ("first", "second")]
        policies = await cluster.call("GET", cluster.path("networkpolicies", group="networking.k8s.io/v1"))
        assert [policy["metadata"]["name"] for policy in policies["items"]] == ["evalfleet-closed"]
        assert first.notices == second.notices
        assert any("network: none" in notice for notice in first.notices)
