"""What is particular to the local sandbox: what it says it can't do, its directories, what dead owners leave."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from evalfleet.errors import AttemptFailure, FailureKind, InfrastructureError
from evalfleet.model.definition import Resources, SandboxSpec
from evalfleet.ports import AdapterFactory
from evalfleet.processes import SystemSpawner
from evalfleet.sandbox_ports import Command, Enterable, Keepable, SandboxFactory, SandboxPlace, Unenforced
from evalfleet.testing.sandbox_subject import alive, forever
from evalfleet_sandboxes.local import LocalProvider, factory


@pytest.fixture
async def provider(tmp_path: Path) -> AsyncGenerator[LocalProvider]:
    spawner = SystemSpawner()
    provider = factory.build(SandboxPlace(state=tmp_path / "state", spawner=spawner))
    yield provider
    await provider.close()
    await spawner.close()


def test_it_says_that_it_isolates_nothing(provider: LocalProvider) -> None:
    assert (provider.name, provider.isolates) == ("local", False)
    assert isinstance(factory, SandboxFactory)
    assert not isinstance(factory, AdapterFactory)


@pytest.mark.parametrize(
    ("spec", "notices"),
    [
        (SandboxSpec(network="open"), []),
        (SandboxSpec(), ["network: none"]),
        (SandboxSpec(network=("a.example", "b.example")), ["network: a.example, b.example"]),
        (
            SandboxSpec(network="open", resources=Resources(cpus=1.5, memory=1 << 30, pids=10, disk=5)),
            ["resources.cpus: 1.5", "resources.memory: 1073741824", "resources.pids: 10", "resources.disk: 5"],
        ),
    ],
)
async def test_what_is_not_enforced_is_said(provider: LocalProvider, spec: SandboxSpec, notices: list[str]) -> None:
    sandbox = await provider.create(spec, "owner")
    assert isinstance(sandbox, Unenforced)
    assert [notice.partition(" is not enforced")[0] for notice in sandbox.notices] == notices


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (SandboxSpec(image="python:3.12-slim"), "no images (image: python:3.12-slim)"),
        (SandboxSpec(user="nobody"), "no users of its own (user: nobody)"),
        (SandboxSpec(env_from=("TOKEN", "KEY"), env={"KEY": "resolved"}), "(env_from: TOKEN)"),
    ],
)
async def test_what_would_change_what_runs_is_refused(provider: LocalProvider, spec: SandboxSpec, reason: str) -> None:
    with pytest.raises(AttemptFailure) as caught:
        await provider.create(spec, "owner")
    assert (caught.value.kind, caught.value.code) == (FailureKind.SANDBOX, "SANDBOX_UNSUPPORTED")
    assert reason in str(caught.value)


async def test_nothing_of_the_hosts_environment_is_inside(
    provider: LocalProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "do not tell")
    sandbox = await provider.create(SandboxSpec(env={"MINE": "1"}), "owner")
    result = await sandbox.run(Command(argv=("env", "-0")))
    names = {line.partition("=")[0] for line in result.text.split("\0") if line}
    assert names == {"PATH", "LANG", "HOME", "TMPDIR", "MINE"}


async def test_python_is_the_one_that_runs_us(provider: LocalProvider) -> None:
    sandbox = await provider.create(SandboxSpec(), "owner")
    result = await sandbox.run(Command(argv=("python", "-c", "import sys; print(sys.prefix)")))
    assert result.text.strip() == sys.prefix


@pytest.mark.parametrize("owner", ["run/1/attempt/2", "..", ".", "a b", "é", "x.lock"])
async def test_any_owner_has_a_directory_of_its_own(provider: LocalProvider, tmp_path: Path, owner: str) -> None:
    sandbox = await provider.create(SandboxSpec(), owner)
    assert Path(sandbox.workdir).parent.parent == tmp_path / "state"
    await sandbox.write("file", owner.encode())
    await sandbox.close()
    assert list((tmp_path / "state").iterdir()) == []


async def test_an_owner_has_one_sandbox_at_a_time(provider: LocalProvider, tmp_path: Path) -> None:
    first = await provider.create(SandboxSpec(), "owner")
    await first.write("file", b"mine")
    spawner = SystemSpawner()
    for other in (provider, factory.build(SandboxPlace(state=tmp_path / "state", spawner=spawner))):
        with pytest.raises(AttemptFailure) as caught:
            await other.create(SandboxSpec(), "owner")
        assert caught.value.code == "SANDBOX_EXISTS"
    assert await first.read("file") == b"mine"


class Unending(SystemSpawner):
    """Can't end what runs."""

    async def end(self, group: str) -> None:
        raise InfrastructureError("a process stays")


async def test_one_that_is_closed_or_can_not_be_ended_says_so(provider: LocalProvider, tmp_path: Path) -> None:
    sandbox = await provider.create(SandboxSpec(), "owner")
    await sandbox.close()
    with pytest.raises(AttemptFailure) as closed:
        await sandbox.run(Command(argv=("true",)))
    assert closed.value.code == "SANDBOX_CLOSED"
    stubborn = factory.build(SandboxPlace(state=tmp_path / "state", spawner=Unending()))
    with pytest.raises(AttemptFailure, match="a process stays") as caught:
        await (await stubborn.create(SandboxSpec(), "other")).close()
    assert (caught.value.kind, caught.value.code) == (FailureKind.SANDBOX, "SANDBOX_CLEANUP_FAILED")


async def test_cancelling_a_creation_leaves_nothing(provider: LocalProvider, tmp_path: Path) -> None:
    seconds = forever()
    task = asyncio.ensure_future(provider.create(SandboxSpec(setup=(f"setsid sleep {seconds} & wait",)), "owner"))
    await asyncio.sleep(0.4)
    assert alive(seconds) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert alive(seconds) == 0
    assert list((tmp_path / "state").iterdir()) == []


async def test_a_failing_setup_leaves_nothing(provider: LocalProvider, tmp_path: Path) -> None:
    with pytest.raises(AttemptFailure):
        await provider.create(SandboxSpec(setup=("exit 1",)), "owner")
    assert list((tmp_path / "state").iterdir()) == []


async def test_a_pipe_in_setup_fails_with_any_part_of_it(provider: LocalProvider) -> None:
    """As the documentation says, where bash is installed."""
    with pytest.raises(AttemptFailure, match=r"setup command 2 of 2 ended with exit code 1: false \| cat"):
        await provider.create(SandboxSpec(setup=("true | cat", "false | cat")), "owner")


WORKER = """
import asyncio, sys
from pathlib import Path
from evalfleet.model.definition import SandboxSpec
from evalfleet.sandbox_ports import Command, SandboxPlace
from evalfleet.processes import SystemSpawner
from evalfleet_sandboxes.local import factory

async def main():
    place = SandboxPlace(state=Path(sys.argv[1]), spawner=SystemSpawner())
    sandbox = await factory.build(place).create(SandboxSpec(), "dead/owner")
    await sandbox.write("file", b"left")
    print("ready", flush=True)
    await sandbox.run(Command(argv=("sh", "-c", f"setsid sleep {sys.argv[2]} & sleep {sys.argv[2]}; true")))

asyncio.run(main())
"""


async def test_what_a_killed_worker_left_is_reaped_and_the_rest_is_not(provider: LocalProvider, tmp_path: Path) -> None:
    living = await provider.create(SandboxSpec(), "living")
    state, seconds = tmp_path / "state", forever()
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WORKER, str(state), seconds, stdout=asyncio.subprocess.PIPE
    )
    assert worker.stdout is not None
    assert await worker.stdout.readline() == b"ready\n"
    await asyncio.sleep(0.3)
    assert alive(seconds) == 2
    assert {found.owner: found.alive for found in await provider.found()} == {"dead/owner": True, "living": True}
    worker.kill()
    await worker.wait()
    await asyncio.sleep(0.3)
    assert alive(seconds) == 0
    assert (state / "dead%2Fowner" / "work" / "file").read_bytes() == b"left"
    found = await provider.found()
    assert {each.owner: each.alive for each in found} == {"dead/owner": False, "living": True}
    assert {each.pid for each in found} == {worker.pid, os.getpid()}
    for each in found:
        await provider.reap(each)
    assert sorted(path.name for path in state.iterdir()) == ["living", "living.lock"]
    assert (await living.run(Command(argv=("echo", "well")))).text == "well\n"


async def test_a_dead_owners_name_can_be_taken_again(provider: LocalProvider, tmp_path: Path) -> None:
    (tmp_path / "state" / "owner" / "work").mkdir(parents=True)
    (tmp_path / "state" / "owner" / "work" / "old").touch()
    (tmp_path / "state" / "owner.lock").touch()
    sandbox = await provider.create(SandboxSpec(), "owner")
    assert (await sandbox.run(Command(argv=("ls", "-A")))).stdout == b""


async def test_a_kept_one_lies_there_without_its_processes_until_somebody_reaps_it(
    provider: LocalProvider, tmp_path: Path
) -> None:
    sandbox = await provider.create(SandboxSpec(), "run/1")
    assert isinstance(sandbox, Keepable)
    seconds = forever()
    await sandbox.write("notes", b"left for you")
    await sandbox.run(Command(argv=("sh", "-c", f"sleep {seconds} &")))
    assert alive(seconds) == 1
    await sandbox.keep()
    assert alive(seconds) == 0
    with pytest.raises(AttemptFailure, match="is closed"):
        await sandbox.read("notes")
    await provider.close()
    (found,) = await provider.found()
    assert (found.owner, found.alive, found.kept, found.pid) == ("run/1", False, True, os.getpid())
    assert (tmp_path / "state" / found.id / "work" / "notes").read_bytes() == b"left for you"
    await provider.reap(found)
    assert list((tmp_path / "state").iterdir()) == []


async def test_a_person_gets_a_shell_in_it_with_nothing_of_his_own_environment(
    provider: LocalProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "do not tell")
    sandbox = await provider.create(SandboxSpec(), "run/1")
    await sandbox.write("notes", b"left for you")
    assert isinstance(provider, Enterable)
    (found,) = await provider.found()
    argv = await provider.enter_argv(found)
    shell = await asyncio.create_subprocess_exec(*argv, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
    out, _ = await shell.communicate(b"cat notes; env; pwd; exit 7\n")
    assert shell.returncode == 7
    assert b"left for you" in out and sandbox.workdir.encode() in out
    assert b"SECRET_TOKEN" not in out


async def test_who_only_looks_keeps_nobody_from_his_sandbox(provider: LocalProvider, tmp_path: Path) -> None:
    """A look at a lock takes it for a moment, also when that of a new sandbox is there and not yet taken."""
    (tmp_path / "state").mkdir()
    with (tmp_path / "state" / "owner.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        making = asyncio.ensure_future(provider.create(SandboxSpec(), "owner"))
        await asyncio.sleep(0.05)
        assert not making.done()
    assert (await (await making).run(Command(argv=("echo", "well")))).text == "well\n"


async def test_what_isolates_nothing_can_not_be_reset(provider: LocalProvider) -> None:
    sandbox = await provider.create(SandboxSpec(network="open"), "owner")
    with pytest.raises(AttemptFailure) as refused:
        await sandbox.reset()
    assert (refused.value.kind, refused.value.code) == (FailureKind.SANDBOX, "SANDBOX_UNCLEAN")
    await sandbox.close()
