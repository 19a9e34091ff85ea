"""Commands in enclosures: copies of real namespaces, made by `unshare`."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from evalfleet.enclosure_ports import Enclosure, Mount
from evalfleet.errors import InfrastructureError
from evalfleet.process_enclosed import EnclosedProcesses
from evalfleet.process_filter import program
from evalfleet.processes import SystemSpawner
from evalfleet.sandbox_ports import Command, CommandResult
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


def holder(*options: str, within: Sequence[str] = ()) -> Generator[int]:
    """A process that holds namespaces; its pid. It is started by the command `within`, which takes another."""
    command = ["unshare", *options, *NAMESPACES, *within, "sh", "-c", "echo up; exec sleep 1000"]
    made = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert made.stdout is not None and made.stderr is not None
    with made, made.stdout, made.stderr:
        if made.stdout.readline() != b"up\n":
            pytest.skip(f"this kernel gives no namespaces: {made.stderr.read().decode().strip()}")
        try:
            yield int(Path(f"/proc/{made.pid}/task/{made.pid}/children").read_text())
        finally:
            made.kill()


@dataclass(frozen=True, slots=True)
class Template:
    """A process whose namespaces are copied, whom the first process becomes, and as whom commands run."""

    pid: int
    first: tuple[int, int] | None
    user: tuple[int, int]

    async def enclosed(
        self, spawner: SystemSpawner, *mounts: Mount, cgroups: tuple[str, ...] = (), filtered: bool = True
    ) -> EnclosedProcesses:
        warden = await spawner.warden(self.pid)
        return await warden.enclose(Enclosure(user=self.first, mounts=mounts, cgroups=cgroups, filtered=filtered))


@pytest.fixture
def of_user() -> Generator[Template]:
    """Namespaces that belong to a user namespace, whose root we are."""
    for pid in holder("--user", "--map-root-user"):
        yield Template(pid, (0, 0), (0, 0))


@pytest.fixture
def of_inner_user() -> Generator[Template]:
    """The same, with a process in a user namespace within that: as `bwrap` makes them for an ordinary user."""
    inner = ("unshare", "--user", f"--map-user={NOBODY}", f"--map-group={NOBODY}")
    for pid in holder("--user", "--map-root-user", within=inner):
        yield Template(pid, (NOBODY, NOBODY), (NOBODY, NOBODY))


@pytest.fixture
def of_root() -> Generator[Template]:
    """Namespaces that belong to the machine's root."""
    if os.geteuid() != 0:
        pytest.skip("only root makes namespaces without a user namespace")
    for pid in holder():
        yield Template(pid, None, (NOBODY, NOBODY))


@pytest.fixture(params=["of_user", "of_inner_user", "of_root"])
def template(request: pytest.FixtureRequest) -> Template:
    return request.getfixturevalue(request.param)


@dataclass(frozen=True, slots=True)
class Place:
    """An enclosure, and as whom commands run in it."""

    enclosed: EnclosedProcesses
    user: tuple[int, int]

    async def run(self, *argv: str, timeout: float | None = 30.0) -> CommandResult:
        command = Command(argv=argv, timeout=timeout, stdin=b"in")
        return await self.enclosed.run(command, base_env=ENV, user=self.user)

    async def shell(self, script: str, timeout: float | None = 30.0) -> CommandResult:
        return await self.run("sh", "-c", script, timeout=timeout)

    async def python(self, script: str) -> str:
        result = await self.run(sys.executable, "-I", "-S", "-c", script)
        assert result.exit_code == 0, result.stderr.decode()
        return result.text.strip()

    async def space(self) -> str:
        return (await self.shell("readlink /proc/self/ns/pid")).text.strip()

    async def fill(self) -> str:
        """Leave something running, so that the first process supervises no other command; its seconds."""
        seconds = forever()
        assert (await self.shell(f"setsid sleep {seconds} &")).ok
        return seconds


@pytest.fixture
async def place(spawner: SystemSpawner, template: Template) -> Place:
    return Place(await template.enclosed(spawner), template.user)


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


async def test_a_command_is_in_namespaces_of_its_own(template: Template, place: Place) -> None:
    for kind in ("pid", "mnt", "net", "ipc", "uts", "user"):
        there = (await place.shell(f"readlink /proc/self/ns/{kind}")).text.strip()
        assert there.startswith(f"{kind}:")
        assert (there == os.readlink(f"/proc/{template.pid}/ns/{kind}")) == (kind in ("uts", "user"))
    assert (await place.shell("grep -c : /proc/net/dev")).text == "1\n"


async def test_two_of_one_template_do_not_meet(spawner: SystemSpawner, template: Template) -> None:
    warden = await spawner.warden(template.pid)
    one, other = [Place(await warden.enclose(Enclosure(user=template.first)), template.user) for _ in range(2)]
    assert await one.space() != await other.space()
    seconds = await one.fill()
    assert seconds not in (await other.shell("cat /proc/[0-9]*/cmdline")).text
    await one.enclosed.end()
    assert alive(seconds) == 0
    assert (await other.shell("echo fine")).text == "fine\n"


@pytest.mark.parametrize("filled", [False, True], ids=["the first process", "a supervisor"])
async def test_it_has_no_privilege_and_no_way_to_one(place: Place, filled: bool) -> None:
    if filled:
        await place.fill()
    status = dict(line.split(":\t", 1) for line in (await place.shell("cat /proc/self/status")).text.splitlines())
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert status["NoNewPrivs"] == "1"
    assert status["Uid"] == "\t".join([str(place.user[0])] * 4)
    assert status["Gid"] == "\t".join([str(place.user[1])] * 4)


async def test_as_root_of_the_machine_it_has_no_supplementary_groups(spawner: SystemSpawner, of_root: Template) -> None:
    place = Place(await of_root.enclosed(spawner), of_root.user)
    assert (await place.shell("id -G")).text.strip() == str(NOBODY)


async def test_root_keeps_no_right_but_to_hold_together(spawner: SystemSpawner, of_root: Template) -> None:
    place = Place(await of_root.enclosed(spawner), of_root.user)
    status = (await place.shell("cat /proc/1/status")).text
    for line in ("CapPrm:\t00000000000000e0", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"):
        assert line in status


async def test_it_ends_as_any_command_does(place: Place) -> None:
    result = await place.shell("cat; echo err >&2; exit 7")
    assert (result.exit_code, result.signal, result.stdout, result.stderr) == (7, None, b"in", b"err\n")
    assert (await place.shell("kill -TERM $$")).signal == signal.SIGTERM
    with pytest.raises(FileNotFoundError):
        await place.run("no-such-program")
    assert (await place.shell("echo fine")).text == "fine\n"


async def test_a_timeout_ends_orphans_too(place: Place) -> None:
    seconds = forever()
    result = await place.shell(f"(env -i setsid sleep {seconds} &); echo out; sleep {seconds}", timeout=1.0)
    assert (result.timed_out, result.exit_code, result.text) == (True, None, "out\n")
    assert alive(seconds) == 0


async def test_a_timeout_ends_one_command_and_spares_the_others(place: Place) -> None:
    own, forked, late = forever(), forever(), forever()
    first = asyncio.ensure_future(place.shell(f"(setsid sleep {own} &); sleep {own}", timeout=2.0))
    assert await becomes(lambda: alive(own) == 2)
    second = asyncio.ensure_future(place.shell(f"(setsid sleep {forked} &); sleep {forked}"))
    assert await becomes(lambda: alive(forked) == 2)
    assert (await first).timed_out
    assert (alive(own), alive(forked)) == (0, 2)
    assert (await place.shell(f"sleep {late}", timeout=1.0)).timed_out
    assert (alive(late), alive(forked)) == (0, 2)
    second.cancel()
    await asyncio.wait((second,))
    assert alive(forked) == 0


async def test_what_it_left_lives_until_the_end(place: Place) -> None:
    seconds = await place.fill()
    assert await becomes(lambda: alive(seconds) == 1)
    await place.enclosed.end()
    assert alive(seconds) == 0 and place.enclosed.ended


async def test_the_first_process_serves_command_after_command(place: Place) -> None:
    space = await place.space()
    assert {(await place.shell("echo $PPID")).text for _ in range(5)} == {"1\n"}
    assert len(processes_of(space)) == 1
    await place.fill()
    assert len({(await place.shell("echo $PPID")).text for _ in range(5)} - {"1\n"}) == 1
    await place.enclosed.end()
    assert processes_of(space) == []


async def test_commands_outside_do_not_meet_those_inside(spawner: SystemSpawner, place: Place) -> None:
    await place.shell("true")
    result = await spawner.run(Command(argv=("readlink", "/proc/self/ns/pid")), base_env=ENV)
    assert result.text.strip() == os.readlink("/proc/self/ns/pid")


async def test_the_first_process_can_not_be_killed_or_stopped(place: Place) -> None:
    result = await place.shell("for name in KILL STOP TERM INT HUP CHLD; do kill -$name 1; done; kill -9 -1; echo on")
    assert (result.exit_code, result.text) == (0, "on\n")


async def test_a_killed_supervisor_is_no_result(place: Place) -> None:
    await place.fill()
    with pytest.raises(InfrastructureError, match="how 'sh' ended is unknown"):
        await place.shell("kill -9 $PPID; sleep 5; exit 0")


async def test_what_supervises_it_shows_and_gives_nothing(place: Place) -> None:
    for _ in range(2):
        for look in ("cat environ", "cat maps", "cat mem", "cat fd/0", "ls root/", "ls cwd/"):
            result = await place.shell("cd /proc/$PPID && " + look)
            assert result.stdout == b"" and b"denied" in result.stderr, look
        streams = await place.shell("ls /proc/$$/fd")
        assert streams.text.split() == ["0", "1", "2"]
        await place.fill()


async def test_a_process_that_holds_no_namespaces_is_no_template(spawner: SystemSpawner, template: Template) -> None:
    """Its id may have been given to another process, which is none of ours."""
    with pytest.raises(InfrastructureError, match="no namespaces can be made: No such process"):
        await spawner.warden(os.getpid())
    os.kill(template.pid, signal.SIGKILL)
    assert await becomes(lambda: not os.path.exists(f"/proc/{template.pid}"))
    with pytest.raises(InfrastructureError, match="no namespaces can be made"):
        await spawner.warden(template.pid)


async def test_when_the_template_dies_a_command_has_no_result(template: Template, place: Place) -> None:
    seconds = forever()
    task = asyncio.ensure_future(place.shell(f"sleep {seconds}; exit 0"))
    assert await becomes(lambda: alive(seconds) == 1)
    os.kill(template.pid, signal.SIGKILL)
    with pytest.raises(InfrastructureError, match="unknown"):
        await task
    assert await becomes(lambda: alive(seconds) == 0)
    assert await becomes(lambda: place.enclosed.ended)
    with pytest.raises(InfrastructureError, match="what held that together is gone"):
        await place.shell("true")


async def test_memory_takes_the_place_of_a_folder(spawner: SystemSpawner, template: Template) -> None:
    first = Mount(target="/mnt", mode=0o1777, size=1 << 20)
    place = Place(await template.enclosed(spawner, first), template.user)
    assert (await place.shell("stat -c %a /mnt && head -c 2000000 /dev/zero >/mnt/big")).text == "1777\n"
    assert (await place.shell("stat -c %s /mnt/big")).text == f"{1 << 20}\n"
    assert not os.path.exists("/mnt/big")


async def test_it_joins_the_cgroups_that_it_is_given(spawner: SystemSpawner, template: Template) -> None:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, own = line.split(":", 2)
        for root in ("/sys/fs/cgroup/" + controllers, "/sys/fs/cgroup/unified", "/sys/fs/cgroup"):
            folder = Path(root + own, f"test-{os.getpid()}")
            if os.access(folder.parent / "cgroup.procs", os.W_OK):
                folder.mkdir()
                try:
                    place = Place(await template.enclosed(spawner, cgroups=(str(folder),)), template.user)
                    result = await place.shell("cat /proc/self/cgroup")
                    await place.enclosed.end()
                    assert await becomes(lambda: (folder / "cgroup.procs").read_text() == "")  # noqa: B023 - awaited before the loop goes on
                finally:
                    folder.rmdir()
                assert folder.name in result.text
                return
    pytest.skip("no cgroup folder can be made here (needs root, or a delegated one)")


WORKER = """
import asyncio, sys
from evalfleet.enclosure_ports import Enclosure
from evalfleet.sandbox_ports import Command
from evalfleet.processes import SystemSpawner

async def main():
    template, first, user, seconds = int(sys.argv[1]), eval(sys.argv[2]), eval(sys.argv[3]), sys.argv[4]
    spawner = SystemSpawner()
    enclosed = await (await spawner.warden(template)).enclose(Enclosure(user=first))
    command = Command(argv=("sh", "-c", f"setsid sleep {seconds} & echo up; sleep {seconds}"))
    await enclosed.run(command, base_env={"PATH": "/usr/bin:/bin"}, user=user)

asyncio.run(main())
"""


def start_worker(template: Template, seconds: str) -> subprocess.Popen[bytes]:
    values = (template.pid, template.first, template.user, seconds)
    return subprocess.Popen([sys.executable, "-c", WORKER, *map(str, values)])


async def test_a_killed_worker_takes_what_is_inside_along(template: Template) -> None:
    seconds = forever()
    worker = start_worker(template, seconds)
    assert await becomes(lambda: alive(seconds) == 2)
    worker.kill()
    worker.wait()
    assert await becomes(lambda: alive(seconds) == 0)
    space = os.readlink(f"/proc/{template.pid}/ns/pid")
    assert await becomes(lambda: processes_of(space) == [template.pid])


async def test_no_descriptor_is_left_behind(spawner: SystemSpawner, template: Template) -> None:
    async def each_way_to_end() -> None:
        place = Place(await template.enclosed(spawner), template.user)
        await place.shell("true")
        await place.shell("sleep 9", timeout=0.05)
        await place.fill()
        with pytest.raises(InfrastructureError):
            await place.shell("kill -9 $PPID; sleep 9")
        with pytest.raises(InfrastructureError):
            await spawner.warden(os.getpid())
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


async def test_the_filter_refuses_what_exploits_need_and_nothing_else(
    spawner: SystemSpawner, of_user: Template
) -> None:
    if program(os.uname().machine) is None:
        pytest.skip("there is no filter for this architecture")
    place = Place(await of_user.enclosed(spawner), of_user.user)
    answers = dict(line.rsplit(" ", 1) for line in (await place.python(CALLS)).splitlines())
    expected = {name: "fine" if name in FINE else "EPERM" for name in answers} | {"clone3": "ENOSYS"}
    assert answers == expected
    assert len(answers) > 20


async def test_without_the_filter_the_kernel_answers(spawner: SystemSpawner, of_user: Template) -> None:
    place = Place(await of_user.enclosed(spawner, filtered=False), of_user.user)
    answers = dict(line.rsplit(" ", 1) for line in (await place.python(CALLS)).splitlines())
    assert answers["clone3"] != "ENOSYS"
    assert errno.errorcode[errno.EINVAL] in (answers["fsopen"], answers["io_uring_setup"], answers["clone3"])


def test_an_architecture_without_a_filter_is_known_as_such() -> None:
    assert program("riscv64") is None
    assert {len(program(machine) or ()) for machine in ("x86_64", "aarch64")} == {len(program("x86_64") or ())}
