"""What any sandbox has to do with limits of resources: enforce them, or have a notice that names what it doesn't."""

from __future__ import annotations

import re

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.model.definition import Resources, SandboxSpec
from evalfleet.sandbox_ports import Command, Sandbox
from evalfleet.testing.sandbox_subject import Subject, alive, forever, notices

_MEMORY = 128 << 20
#: Touches 400 MB at once, in one process.
_BOMB = "dd if=/dev/zero of=/dev/null bs=400M count=1"
_PIDS = 64
#: What a backend may add for processes of its own.
_OWN = 8
_DISK = 32 << 20
_CPUS = 0.25
_BUSY_SECONDS = 2


async def what_was_not_asked_for_is_not_told_of(on: Subject) -> None:
    assert notices(on.sandbox, "resources") == []


async def memory_over_the_limit_is_an_oom_kill_and_the_sandbox_goes_on(on: Subject) -> None:
    if (sandbox := await _limited(on, "memory", Resources(memory=_MEMORY))) is None:
        return
    try:
        result = await sandbox.run(Command(argv=tuple(_BOMB.split()), timeout=60.0))
        assert not result.ok and (result.oom_kills or 0) >= 1
        after = await sandbox.run(Command(argv=("echo", "alive")))
        assert (after.text, after.oom_kills) == ("alive\n", 0)
    except AttemptFailure as failure:
        assert (failure.kind, failure.code) == (FailureKind.SANDBOX, "SANDBOX_OOM")


async def an_oom_killed_child_is_counted_and_its_shell_goes_on(on: Subject) -> None:
    if (sandbox := await _limited(on, "memory", Resources(memory=_MEMORY))) is None:
        return
    try:
        result = await sandbox.run(Command(argv=("sh", "-c", f"{_BOMB}; echo $?"), timeout=60.0))
        assert (result.exit_code, result.text) == (0, "137\n")
        assert (result.oom_kills or 0) >= 1
    except AttemptFailure as failure:  # where the kernel ends all of a sandbox for one of its processes
        assert (failure.kind, failure.code) == (FailureKind.SANDBOX, "SANDBOX_OOM")


async def what_looks_like_an_oom_kill_is_none(on: Subject) -> None:
    if (sandbox := await _limited(on, "memory", Resources(memory=_MEMORY))) is None:
        return
    for script in ("exit 137", "kill -9 $$"):
        result = await sandbox.run(Command(argv=("sh", "-c", script)))
        assert (result.ok, result.timed_out, result.oom_kills) == (False, False, 0)


async def a_memory_limit_is_the_sandboxs_own(on: Subject) -> None:
    if (sandbox := await _limited(on, "memory", Resources(memory=_MEMORY))) is None:
        return
    other = await on.create("neighbour", SandboxSpec(resources=Resources(memory=_MEMORY)))
    try:
        await sandbox.run(Command(argv=tuple(_BOMB.split()), timeout=60.0))
    except AttemptFailure as failure:
        assert failure.code == "SANDBOX_OOM"
    assert (await other.run(Command(argv=("true",)))).oom_kills == 0


async def a_fork_bomb_is_contained(on: Subject) -> None:
    """A bounded one: a backend that does not keep its promise must not take the machine down."""
    if (sandbox := await _limited(on, "pids", Resources(pids=_PIDS))) is None:
        return
    seconds = forever()
    script = f"n=0; while test $n -lt 300; do sleep {seconds} & n=$((n + 1)); done"
    result = await sandbox.run(Command(argv=("sh", "-c", script), timeout=20.0))
    assert not result.ok
    assert (running := alive(seconds)) <= _PIDS + _OWN, f"{running} processes run under a limit of {_PIDS}"
    assert (await on.run("echo", "neighbour")).text == "neighbour\n"
    await sandbox.close()
    assert alive(seconds) == 0


async def a_full_disk_is_full_inside_only(on: Subject) -> None:
    if (sandbox := await _limited(on, "disk", Resources(disk=_DISK))) is None:
        return
    result = await sandbox.run(Command(argv=("sh", "-c", "head -c 200000000 /dev/zero > big"), timeout=60.0))
    assert not result.ok
    assert re.search(rb"no space|quota|too large", result.stderr, re.IGNORECASE)
    await on.sandbox.write("neighbour", b"x" * 1_000_000)
    await sandbox.run(Command(argv=("rm", "big")))
    await sandbox.write("small", b"fits again")
    assert await sandbox.read("small") == b"fits again"


async def a_share_of_a_core_is_not_exceeded(on: Subject) -> None:
    if (sandbox := await _limited(on, "cpus", Resources(cpus=_CPUS))) is None:
        return
    script = f"while :; do :; done & sleep {_BUSY_SECONDS}; kill -9 $!; wait $!; times"
    result = await sandbox.run(Command(argv=("sh", "-c", script), timeout=60.0))
    minutes_seconds = re.findall(r"(\d+)m([\d.]+)s", result.text.splitlines()[-1])
    used = sum(60 * int(minutes) + float(seconds) for minutes, seconds in minutes_seconds)
    assert 0 < used <= 2 * _CPUS * _BUSY_SECONDS


async def _limited(on: Subject, name: str, resources: Resources) -> Sandbox | None:
    """A sandbox with the limit; None when its notice says that this backend does not enforce it."""
    sandbox = await on.create("limited", SandboxSpec(resources=resources))
    return None if notices(sandbox, f"resources.{name}") else sandbox
