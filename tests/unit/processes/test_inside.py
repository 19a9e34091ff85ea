"""Commands that start in the namespaces of another process: real namespaces, made by `unshare`."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import replace
from pathlib import Path

import pytest

from evalfleet.errors import InfrastructureError
from evalfleet.process_filter import program
from evalfleet.processes import SystemSpawner
from evalfleet.sandbox_ports import Command, CommandResult, Inside
from evalfleet.testing.sandbox_subject import alive, forever

if sys.platform != "linux" or shutil.which("unshare") is None:
    pytest.skip("needs Linux and unshare (install util-linux)", allow_module_level=True)

ENV = {"PATH": "/usr/bin:/bin"}
NAMESPACES = ("--fork", "--kill-child", "--pid", "--mount-proc", "--net", "--ipc", "--uts")
#: An unprivileged user that owns nothing.
NOBODY = 60_800


@pytest.fixture
async def spawner() -> AsyncGenerator[SystemSpawner]:
    spawner = SystemSpawner()
    yield spawner
    await spawner.close()


def holder(*options: str) -> Generator[int]:
    """A process that holds namespaces; its pid."""
    command = ["unshare", *options, *NAMESPACES, "sh", "-c", "echo up; exec sleep 1000"]
    made = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert made.stdout is not None and made.stderr is not None
    with made, made.stdout, made.stderr:
        if made.stdout.readline() != b"up\n":
            pytest.skip(f"this kernel gives no namespaces: {made.stderr.read().decode().strip()}")
        try:
            yield int(Path(f"/proc/{made.pid}/task/{made.pid}/children").read_text())
        finally:
            made.kill()


@pytest.fixture
def of_user() -> Generator[Inside]:
    """Namespaces that belong to a user namespace, whose root we are."""
    for pid in holder("--user", "--map-root-user"):
        yield Inside(pid=pid, uid=0, gid=0)


@pytest.fixture
def of_root() -> Generator[Inside]:
    """Namespaces that belong to the machine's root."""
    if os.geteuid() != 0:
        pytest.skip("only root makes namespaces without a user namespace")
    for pid in holder():
        yield Inside(pid=pid, uid=NOBODY, gid=NOBODY)


@pytest.fixture(params=["of_user", "of_root"])
def inside(request: pytest.FixtureRequest) -> Inside:
    return request.getfixturevalue(request.param)


async def shell(spawner: SystemSpawner, inside: Inside, script: str, timeout: float | None = 30.0) -> CommandResult:
    command = Command(argv=("sh", "-c", script), timeout=timeout, stdin=b"in")
    return await spawner.run(command, base_env=ENV, group="group", inside=inside)


async def python(spawner: SystemSpawner, inside: Inside, script: str) -> str:
    command = Command(argv=(sys.executable, "-I", "-S", "-c", script), timeout=30.0)
    result = await spawner.run(command, base_env=ENV, group="group", inside=inside)
    assert result.exit_code == 0, result.stderr.decode()
    return result.text.strip()


def processes_of(space: str) -> list[int]:
    """Processes of this host whose process namespace is that one."""
    found: list[int] = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{name}/ns/pid") == space:
                found.append(int(name))
        except OSError:
            continue
    return found


async def becomes(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + 20.0
    while time.monotonic() < end:
        if condition():
            return True
        await asyncio.sleep(0.02)
    return False


async def test_a_command_is_in_every_namespace(spawner: SystemSpawner, inside: Inside) -> None:
    for kind in ("pid", "mnt", "net", "ipc", "uts", "user"):
        result = await shell(spawner, inside, f"readlink /proc/self/ns/{kind}")
        assert result.text.strip() == os.readlink(f"/proc/{inside.pid}/ns/{kind}")


async def test_it_has_no_privilege_and_no_way_to_one(spawner: SystemSpawner, inside: Inside) -> None:
    status = dict(
        line.split(":\t", 1) for line in (await shell(spawner, inside, "cat /proc/self/status")).text.splitlines()
    )
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert status["NoNewPrivs"] == "1"
    assert status["Uid"] == "\t".join([str(inside.uid)] * 4)
    assert status["Gid"] == "\t".join([str(inside.gid)] * 4)


async def test_as_root_of_the_machine_it_has_no_supplementary_groups(spawner: SystemSpawner, of_root: Inside) -> None:
    assert (await shell(spawner, of_root, "id -G")).text.strip() == str(NOBODY)


async def test_it_ends_as_any_command_does(spawner: SystemSpawner, inside: Inside) -> None:
    result = await shell(spawner, inside, "cat; echo err >&2; exit 7")
    assert (result.exit_code, result.signal, result.stdout, result.stderr) == (7, None, b"in", b"err\n")
    assert (await shell(spawner, inside, "kill -TERM $$")).signal == signal.SIGTERM
    with pytest.raises(FileNotFoundError):
        await spawner.run(Command(argv=("no-such-program",)), base_env=ENV, inside=inside)


async def test_a_timeout_ends_orphans_too(spawner: SystemSpawner, inside: Inside) -> None:
    seconds = forever()
    result = await shell(spawner, inside, f"(env -i setsid sleep {seconds} &); echo out; sleep {seconds}", timeout=1.0)
    assert (result.timed_out, result.exit_code, result.text) == (True, None, "out\n")
    assert alive(seconds) == 0


async def test_what_it_left_lives_until_the_group_ends(spawner: SystemSpawner, inside: Inside) -> None:
    seconds = forever()
    assert (await shell(spawner, inside, f"(setsid sleep {seconds} &); exit 0")).exit_code == 0
    assert await becomes(lambda: alive(seconds) == 1)
    await spawner.end("group")
    assert alive(seconds) == 0


async def test_one_supervisor_serves_command_after_command_and_goes_with_the_group(
    spawner: SystemSpawner, inside: Inside
) -> None:
    parents = {(await shell(spawner, inside, "echo $PPID")).text for _ in range(5)}
    assert len(parents) == 1
    space = os.readlink(f"/proc/{inside.pid}/ns/pid")
    assert len(processes_of(space)) == 2
    await spawner.end("group")
    assert await becomes(lambda: processes_of(space) == [inside.pid])


async def test_commands_outside_do_not_meet_those_inside(spawner: SystemSpawner, inside: Inside) -> None:
    await shell(spawner, inside, "true")
    result = await spawner.run(Command(argv=("readlink", "/proc/self/ns/pid")), base_env=ENV, group="group")
    assert result.text.strip() == os.readlink("/proc/self/ns/pid")


async def test_a_killed_supervisor_is_no_result(spawner: SystemSpawner, inside: Inside) -> None:
    with pytest.raises(InfrastructureError, match="how 'sh' ended is unknown"):
        await shell(spawner, inside, "kill -9 $PPID; sleep 5; exit 0")
    assert (await shell(spawner, inside, "echo fine")).text == "fine\n"


async def test_its_supervisor_shows_and_gives_nothing(spawner: SystemSpawner, inside: Inside) -> None:
    for look in ("cat environ", "cat maps", "cat mem", "cat fd/0", "ls root/", "ls cwd/"):
        result = await shell(spawner, inside, "cd /proc/$PPID && " + look)
        assert result.stdout == b"" and b"denied" in result.stderr, look
    streams = await shell(spawner, inside, "ls /proc/$$/fd")
    assert streams.text.split() == ["0", "1", "2"]


async def test_a_process_that_holds_no_namespaces_is_not_entered(spawner: SystemSpawner, inside: Inside) -> None:
    """Its id may have been given to another process, which is none of a sandbox."""
    with pytest.raises(InfrastructureError, match="'sh' can't be started in its sandbox: No such process"):
        await shell(spawner, replace(inside, pid=os.getpid()), "true")
    os.kill(inside.pid, signal.SIGKILL)
    assert await becomes(lambda: not os.path.exists(f"/proc/{inside.pid}"))
    with pytest.raises(InfrastructureError, match="can't be started in its sandbox"):
        await shell(spawner, inside, "true")


async def test_when_the_holder_dies_a_command_has_no_result(spawner: SystemSpawner, inside: Inside) -> None:
    seconds = forever()
    task = asyncio.ensure_future(shell(spawner, inside, f"sleep {seconds}; exit 0"))
    assert await becomes(lambda: alive(seconds) == 1)
    os.kill(inside.pid, signal.SIGKILL)
    with pytest.raises(InfrastructureError, match="unknown"):
        await task
    assert await becomes(lambda: alive(seconds) == 0)


async def test_it_joins_the_cgroups_that_it_is_given(spawner: SystemSpawner, inside: Inside) -> None:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, own = line.split(":", 2)
        for root in ("/sys/fs/cgroup/" + controllers, "/sys/fs/cgroup/unified", "/sys/fs/cgroup"):
            folder = Path(root + own, f"test-{os.getpid()}")
            if os.access(folder.parent / "cgroup.procs", os.W_OK):
                folder.mkdir()
                try:
                    result = await shell(spawner, replace(inside, cgroups=(str(folder),)), "cat /proc/self/cgroup")
                    await spawner.end("group")
                    assert await becomes(lambda: (folder / "cgroup.procs").read_text() == "")  # noqa: B023 - awaited before the loop goes on
                finally:
                    folder.rmdir()
                assert folder.name in result.text
                return
    pytest.skip("no cgroup folder can be made here (needs root, or a delegated one)")


WORKER = """
import asyncio, sys
from evalfleet.sandbox_ports import Command, Inside
from evalfleet.processes import SystemSpawner

async def main():
    inside = Inside(pid=int(sys.argv[1]), uid=int(sys.argv[2]), gid=int(sys.argv[2]))
    script = f"setsid sleep {sys.argv[3]} & echo up; sleep {sys.argv[3]}"
    run = SystemSpawner().run(Command(argv=("sh", "-c", script)), base_env={"PATH": "/usr/bin:/bin"}, inside=inside)
    await run

asyncio.run(main())
"""


def start_worker(inside: Inside, seconds: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", WORKER, str(inside.pid), str(inside.uid), seconds])


async def test_a_killed_worker_takes_what_is_inside_along(inside: Inside) -> None:
    seconds = forever()
    worker = start_worker(inside, seconds)
    assert await becomes(lambda: alive(seconds) == 2)
    worker.kill()
    worker.wait()
    assert await becomes(lambda: alive(seconds) == 0)
    space = os.readlink(f"/proc/{inside.pid}/ns/pid")
    assert await becomes(lambda: processes_of(space) == [inside.pid])


async def test_no_descriptor_is_left_behind(spawner: SystemSpawner, inside: Inside) -> None:
    async def each_way_to_end() -> None:
        await shell(spawner, inside, "true")
        await shell(spawner, inside, "sleep 9", timeout=0.05)
        with pytest.raises(InfrastructureError):
            await shell(spawner, inside, "kill -9 $PPID; sleep 9")
        with pytest.raises(InfrastructureError):
            await shell(spawner, replace(inside, pid=os.getpid()), "true")
        await spawner.end("group")
        await spawner.close()

    await each_way_to_end()
    before = len(os.listdir("/proc/self/fd"))
    await each_way_to_end()
    assert len(os.listdir("/proc/self/fd")) == before


CALLS = """
import ctypes, errno, os, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
x86 = os.uname().machine == "x86_64"
def call(name, x86_64, aarch64, *arguments):
    ctypes.set_errno(0)
    libc.syscall(x86_64 if x86 else aarch64, *arguments)
    print(name, errno.errorcode.get(ctypes.get_errno(), "fine"))
call("unshare", 272, 97, 0x10000000)
call("clone", 56, 220, 0x10000000 | 17, 0, 0, 0, 0)
call("clone3", 435, 435, 0, 0)
call("mount", 165, 40, b"x", b"/tmp", b"tmpfs", 0, 0)
call("fsopen", 430, 430, b"tmpfs", 0)
call("setns", 308, 268, 0, 0)
call("keyctl", 250, 219, 0, -3, 0)
call("add_key", 248, 217, b"user", b"x", b"x", 1, -3)
call("bpf", 321, 280, 0, 0, 0)
call("perf_event_open", 298, 241, 0, 0, -1, -1, 0)
call("userfaultfd", 323, 282, 1)
call("io_uring_setup", 425, 425, 1, 0)
call("open_by_handle_at", 304, 265, 0, 0, 0)
call("process_vm_readv", 310, 270, os.getppid(), 0, 0, 0, 0, 0)
call("ptrace attach", 101, 117, 16, os.getppid(), 0, 0)
call("ptrace seize", 101, 117, 0x4206, os.getppid(), 0, 0)
call("TIOCSTI", 16, 29, 0, 0x5412, b"x")
call("TIOCLINUX", 16, 29, 0, 0x541C, b"x")
call("unshare files", 272, 97, 0x400)
call("getpid", 39, 172)
if x86:
    call("x32 getpid", 0x40000000 | 39, 0)
thread = threading.Thread(target=print, args=("thread fine",))
thread.start()
thread.join()
pid = os.fork()
if pid == 0:
    os._exit(0)
print("fork", "fine" if os.waitpid(pid, 0)[1] == 0 else "ended badly")
"""
FINE = {"unshare files", "getpid", "thread", "fork"}


async def test_the_filter_refuses_what_exploits_need_and_nothing_else(spawner: SystemSpawner, of_user: Inside) -> None:
    if program(os.uname().machine) is None:
        pytest.skip("there is no filter for this architecture")
    answers = dict(line.rsplit(" ", 1) for line in (await python(spawner, of_user, CALLS)).splitlines())
    expected = {name: "fine" if name in FINE else "EPERM" for name in answers} | {"clone3": "ENOSYS"}
    assert answers == expected
    assert len(answers) > 20


async def test_without_the_filter_the_kernel_answers(spawner: SystemSpawner, of_user: Inside) -> None:
    answers = dict(
        line.rsplit(" ", 1) for line in (await python(spawner, replace(of_user, filtered=False), CALLS)).splitlines()
    )
    assert answers["clone3"] != "ENOSYS"
    assert errno.errorcode[errno.EINVAL] in (answers["fsopen"], answers["io_uring_setup"], answers["clone3"])


def test_an_architecture_without_a_filter_is_known_as_such() -> None:
    assert program("riscv64") is None
    assert {len(program(machine) or ()) for machine in ("x86_64", "aarch64")} == {len(program("x86_64") or ())}
