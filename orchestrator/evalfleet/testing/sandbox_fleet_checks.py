"""What any backend has to do with many sandboxes, and with those of others, dead or alive."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.model.definition import SandboxSpec
from evalfleet.processes import start_daemon
from evalfleet.sandbox_ports import Command, FoundSandbox, Sandbox, SandboxProvider
from evalfleet.testing.runner import pytest
from evalfleet.testing.sandbox_subject import Subject, alive, forever

_DEAD = "run 7/城市 é.0"


async def a_backend_that_works_passes_its_own_check(on: Subject) -> None:
    await on.provider.check()
    await on.provider.check()


async def thirty_live_side_by_side_and_leave_nothing(on: Subject) -> None:
    async def live(number: int) -> Sandbox:
        sandbox = await on.create(f"number-{number}")
        await sandbox.write(f"file-{number}", b"")
        result = await sandbox.run(Command(argv=("sh", "-c", "sleep 0.1; ls -A")))
        assert result.text == f"file-{number}\n"
        return sandbox

    sandboxes = await asyncio.gather(*(live(number) for number in range(30)))
    assert len({sandbox.id for sandbox in sandboxes}) == 30
    assert len(await on.provider.found()) == 31
    await asyncio.gather(*(sandbox.close() for sandbox in sandboxes))
    assert [found.owner for found in await on.provider.found()] == ["subject"]


async def a_hundred_commands_run_at_once_in_one(on: Subject) -> None:
    results = await asyncio.gather(*(on.shell(f"echo {number}; exit {number}") for number in range(100)))
    assert [(result.exit_code, result.text) for result in results] == [(number, f"{number}\n") for number in range(100)]


async def a_cancelled_creation_leaves_nothing(on: Subject) -> None:
    seconds = forever()
    making = asyncio.ensure_future(on.create("given up", SandboxSpec(setup=(f"setsid sleep {seconds}",))))
    await on.started(seconds)
    making.cancel()
    await asyncio.wait((making,))
    assert making.cancelled()
    await on.dead(seconds)
    assert [found.owner for found in await on.provider.found()] == ["subject"]


async def a_living_sandbox_is_found_by_others(on: Subject) -> None:
    owner = "run 1/城市 é.0"
    sandbox = await on.create(owner)
    async with on.make(on.state) as other:
        found = {item.owner: item for item in await other.found()}
        assert set(found) == {"subject", owner}
        assert all(item.alive is not False for item in found.values())
        await sandbox.close()
        assert [item.owner for item in await other.found()] == ["subject"]


async def reaping_the_living_is_refused_or_takes_all_of_it(on: Subject) -> None:
    await on.sandbox.write("file", b"mine")
    async with on.make(on.state) as other:
        found = _only(await other.found())
        await other.reap(found)
    try:
        assert (await on.shell("cat file")).text == "mine"
    except AttemptFailure as failure:
        assert (failure.kind, failure.code) == (FailureKind.SANDBOX, "SANDBOX_LOST")
        assert await on.provider.found() == []


async def reaping_what_is_gone_hurts_nobody(on: Subject) -> None:
    found = _only(await on.provider.found())
    await on.sandbox.close()
    await on.provider.reap(found)
    again = await on.create("subject")
    await again.write("file", b"mine")
    if found not in await on.provider.found():
        await on.provider.reap(found)
    assert await again.read("file") == b"mine"
    await again.close()


async def the_sandbox_of_a_killed_owner_is_found_dead_and_reaped(on: Subject) -> None:
    seconds, before = forever(), _names(on.state)
    async with _owner_to_be_killed(on, seconds):
        living = _only(await _of_the_owner(on.provider))
        assert living.alive is not False and alive(seconds) == 1

    async def known_dead() -> bool:
        return all(item.alive is False for item in await _of_the_owner(on.provider))

    await on.comes_true(known_dead, "the owner is known to be dead")
    found = await _of_the_owner(on.provider)
    for item in (*found, *found):
        await on.provider.reap(item)
    assert (await _of_the_owner(on.provider), _names(on.state)) == ([], before)
    await on.dead(seconds)
    fresh = await on.create(_DEAD)
    assert (await fresh.run(Command(argv=("ls", "-A")))).text == ""
    await fresh.close()
    assert (await on.shell("echo neighbour")).text == "neighbour\n"


async def what_does_not_outlive_its_owner_ends_with_it(on: Subject) -> None:
    if on.provider.outlives:
        pytest.skip(f"the backend {on.provider.name} says that its sandboxes outlive their owner")
    seconds = forever()
    async with _owner_to_be_killed(on, seconds):
        pass
    await on.dead(seconds)
    for item in await _of_the_owner(on.provider):
        await on.provider.reap(item)


@asynccontextmanager
async def _owner_to_be_killed(on: Subject, seconds: str) -> AsyncGenerator[None]:
    """Another owner, which has a sandbox with a process `sleep seconds`; it is killed at the end, whatever happens."""
    function = inspect.unwrap(on.make)
    assert "<locals>" not in function.__qualname__, "another process can open make_provider only in a module"
    argv = (sys.executable, "-m", "evalfleet.testing.sandbox_owner", inspect.getfile(function), function.__qualname__)
    log = on.folder / "owner.log"
    image = () if on.image is None else (on.image,)
    pid = start_daemon((*argv, str(on.state), _DEAD, seconds, *image), env=None, log=log)
    try:
        await on.until(lambda: "\n" in log.read_text(), "another owner has its sandbox")
        assert log.read_text() == "ready\n"
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


async def _of_the_owner(provider: SandboxProvider) -> list[FoundSandbox]:
    return [item for item in await provider.found() if item.owner == _DEAD]


def _only(found: list[FoundSandbox]) -> FoundSandbox:
    assert len(found) == 1, f"not one sandbox: {found}"
    return found[0]


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []
