"""What stays, on whose wish: kept Pods, who enters them, and a network closed by a template."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from evalfleet.model.definition import SandboxSpec
from evalfleet.sandbox_ports import Command
from tests.kubernetes.cluster import IMAGE, admin, closing_template, pods, provider_of, save

SPEC = SandboxSpec(image=IMAGE)


async def test_a_kept_pod_stays_without_processes_until_it_is_reaped(tmp_path: Path) -> None:
    async with admin() as cluster:
        async with provider_of(tmp_path / "state") as provider:
            env = {"COLOUR": "deep 'blue' é", "DOOR_CODE": "7-1-3"}
            sandbox = await provider.create(replace(SPEC, env=env, env_from=("DOOR_CODE",)), "kept")
            home = (await sandbox.run(Command(argv=("sh", "-c", 'echo "$HOME $LC_ALL"')))).text
            await sandbox.write("evidence", b"x")
            await sandbox.run(Command(argv=("sh", "-c", "sleep 1000 & :")))
            await sandbox.keep()
            identifier, workdir = sandbox.id, sandbox.workdir
        async with provider_of(tmp_path / "state") as provider:
            (found,) = [found for found in await provider.found() if found.id == identifier]
            assert (found.kept, found.owner) == (True, "kept")
            entered = await provider.enter_argv(found)
            assert (entered[0], identifier in entered) == ("kubectl", True)
            shell = entered[entered.index("--") + 1 :]
            say = b'echo "$COLOUR"; echo "[$DOOR_CODE]"; echo "$HOME $LC_ALL"; pwd; exit\n'
            said = (await cluster.execute(identifier, "sandbox", shell, say)).stdout.decode()
            assert said == f"deep 'blue' é\n[]\n{home}{workdir}\n"
            look = "cat \"$1/evidence\"; grep -l '^sleep.1000.$' /proc/[0-9]*/cmdline"
            inside = await cluster.execute(identifier, "sandbox", ("sh", "-c", look, "sh", workdir))
            assert inside.stdout == b"x"
            await provider.reap(found)
            assert identifier not in [pod["metadata"]["name"] for pod in await pods(cluster)]


async def test_a_pod_whose_maker_lives_is_not_reaped(tmp_path: Path) -> None:
    async with provider_of(tmp_path / "state") as provider, provider_of(tmp_path / "other") as other:
        sandbox = await provider.create(SPEC, "alive")
        (found,) = [found for found in await other.found() if found.id == sandbox.id]
        assert found.alive is True
        await other.reap(found)
        assert (await sandbox.run(Command(argv=("echo", "here")))).text == "here\n"


async def test_a_pod_without_our_labels_is_never_reaped(tmp_path: Path) -> None:
    manifest = {
        "metadata": {"name": "somebody"},
        "spec": {"containers": [{"name": "it", "image": IMAGE, "command": ["sleep", "1000"]}]},
    }
    async with admin() as cluster, provider_of(tmp_path / "state") as provider:
        await cluster.call("POST", cluster.path("pods"), body=manifest)
        try:
            sandbox = await provider.create(SPEC, "own")
            (found,) = [found for found in await provider.found() if found.id == sandbox.id]
            await provider.reap(replace(found, id="somebody", alive=None))
            assert "somebody" in [pod["metadata"]["name"] for pod in await pods(cluster)]
        finally:
            await cluster.call("DELETE", cluster.path("pods", "somebody"), query={"gracePeriodSeconds": "0"})


async def test_a_template_can_close_the_network_where_no_plugin_does(tmp_path: Path) -> None:
    routes = Command(argv=("sh", "-c", "tail -n +2 /proc/net/route | grep -vw lo"))
    async with provider_of(tmp_path / "state", save(closing_template(), tmp_path / "pod.yaml")) as provider:
        closed = await provider.create(SPEC, "closed")
        opened = await provider.create(replace(SPEC, network="open"), "opened")
        assert (await closed.run(routes)).stdout == b""
        assert (await opened.run(routes)).stdout != b""
