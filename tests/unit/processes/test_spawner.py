"""What the spawner promises beyond the sandbox suite: groups, reuse, broken helpers, programs that can't start."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import signal
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from evalfleet.errors import InfrastructureError
from evalfleet.processes import SystemSpawner
from evalfleet.sandbox_ports import Command, CommandResult
from evalfleet.testing.sandbox_subject import alive, forever

ENV = {"PATH": "/usr/bin:/bin"}


@pytest.fixture
async def spawner() -> AsyncGenerator[SystemSpawner]:
    spawner = SystemSpawner()
    yield spawner
    await spawner.close()


async def shell(spawner: SystemSpawner, script: str, group: str | None = None) -> CommandResult:
    return await spawner.run(Command(argv=("sh", "-c", script), timeout=30.0), base_env=ENV, group=group)


async def count_becomes(seconds: str, count: int) -> bool:
    for _ in range(500):
        if alive(seconds) == count:
            return True
        await asyncio.sleep(0.01)
    return False


class TestGroups:
    async def test_without_a_group_nothing_outlives_the_call(self, spawner: SystemSpawner) -> None:
        seconds = forever()
        await shell(spawner, f"sleep {seconds} & (env -i setsid sleep {seconds} &)")
        assert alive(seconds) == 0

    async def test_a_background_child_that_ends_just_then_does_no_harm(self, spawner: SystemSpawner) -> None:
        for number in range(200):
            assert (await shell(spawner, f"sleep 0.00{number % 4} & echo {number}")).text == f"{number}\n"

    async def test_end_kills_one_group_and_no_other(self, spawner: SystemSpawner) -> None:
        ours, theirs = forever(), forever()
        await shell(spawner, f"sleep {ours} &", group="ours")
        await shell(spawner, f"sleep {theirs} &", group="theirs")
        await spawner.end("ours")
        assert (alive(ours), alive(theirs)) == (0, 1)
        await spawner.close()
        assert alive(theirs) == 0

    async def test_ending_a_group_that_never_was_is_nothing(self, spawner: SystemSpawner) -> None:
        await spawner.end("nobody")

    async def test_ending_a_group_interrupts_a_running_command_without_a_result(self, spawner: SystemSpawner) -> None:
        seconds = forever()
        running = asyncio.ensure_future(shell(spawner, f"sleep {seconds}; exit 0", group="g"))
        assert await count_becomes(seconds, 1)
        await spawner.end("g")
        with pytest.raises(InfrastructureError, match="unknown"):
            await running

    async def test_output_of_background_children_is_read_away_after_the_result(
        self, spawner: SystemSpawner, tmp_path: Path
    ) -> None:
        script = f"(sleep 0.3; head -c 1000000 /dev/zero && echo written > {tmp_path}/proof) & echo now"
        result = await shell(spawner, script, group="g")
        assert result.stdout == b"now\n"
        for _ in range(200):
            if (tmp_path / "proof").exists():
                return
            await asyncio.sleep(0.02)
        pytest.fail("the background child could not write its output")


class TestSupervisors:
    async def test_one_serves_command_after_command(self, spawner: SystemSpawner) -> None:
        parents = {(await shell(spawner, "echo $PPID")).text for _ in range(5)}
        assert len(parents) == 1

    async def test_one_with_a_background_child_is_not_reused_until_that_is_gone(self, spawner: SystemSpawner) -> None:
        busy = (await shell(spawner, "echo $PPID; sleep 0.4 &", group="g")).text
        other = (await shell(spawner, "echo $PPID")).text
        assert other != busy
        await asyncio.sleep(0.7)
        both = await asyncio.gather(*(shell(spawner, "echo $PPID; sleep 0.1") for _ in range(2)))
        assert {result.text for result in both} == {busy, other}

    async def test_hundreds_start_at_once(self, spawner: SystemSpawner) -> None:
        results = await asyncio.gather(*(shell(spawner, f"echo {number}") for number in range(400)))
        assert [result.text for result in results] == [f"{number}\n" for number in range(400)]

    async def test_polite_signals_of_a_command_do_not_end_its_supervisor(self, spawner: SystemSpawner) -> None:
        result = await shell(spawner, "kill -TERM $PPID; kill -INT $PPID; kill -HUP $PPID; echo fine")
        assert (result.exit_code, result.text) == (0, "fine\n")

    async def test_a_killed_supervisor_is_no_result_and_its_tree_dies(self, spawner: SystemSpawner) -> None:
        seconds = forever()
        with pytest.raises(InfrastructureError, match="unknown"):
            await shell(spawner, f"setsid sleep {seconds} & kill -9 $PPID; sleep {seconds}; exit 0")
        assert await count_becomes(seconds, 0)

    async def test_a_supervisor_killed_while_idle_is_replaced(self, spawner: SystemSpawner) -> None:
        os.kill(int((await shell(spawner, "echo $PPID")).text), signal.SIGKILL)
        await asyncio.sleep(0.1)
        assert (await shell(spawner, "echo fine")).text == "fine\n"

    async def test_a_killed_launcher_is_replaced(self, spawner: SystemSpawner) -> None:
        launcher = parent_of(int((await shell(spawner, "echo $PPID")).text))
        os.kill(launcher, signal.SIGKILL)
        await asyncio.sleep(0.1)
        results = await asyncio.gather(*(shell(spawner, "echo fine; sleep 0.1") for _ in range(3)))
        assert [result.text for result in results] == ["fine\n"] * 3

    async def test_they_hold_none_of_our_environment(self, spawner: SystemSpawner) -> None:
        result = await shell(spawner, "cat /proc/$PPID/environ")
        assert (result.exit_code, result.stdout) == (0, b"")

    async def test_commands_get_streams_and_nothing_else(self, spawner: SystemSpawner) -> None:
        assert (await shell(spawner, "ls /proc/$$/fd")).text.split() == ["0", "1", "2"]

    async def test_commands_find_signals_as_they_expect_them(self, spawner: SystemSpawner) -> None:
        result = await shell(spawner, "grep -E 'SigIgn|SigBlk' /proc/self/status")
        masks = [int(line.split()[1], 16) for line in result.text.splitlines()]
        assert [mask & (1 << signal.SIGSYS) - 1 for mask in masks] == [0, 0]  # above it are the C library's own

    async def test_a_forgotten_spawner_ends_its_processes(self) -> None:
        spawner = SystemSpawner()
        supervisor = int((await shell(spawner, "echo $PPID")).text)
        launcher = parent_of(supervisor)
        del spawner
        gc.collect()
        await asyncio.sleep(0.2)
        assert not os.path.exists(f"/proc/{supervisor}")
        assert not os.path.exists(f"/proc/{launcher}")

    async def test_closing_twice_and_running_again(self, spawner: SystemSpawner) -> None:
        await spawner.close()
        assert (await shell(spawner, "echo fine")).text == "fine\n"
        await spawner.close()
        await spawner.close()


@pytest.mark.parametrize(
    ("command", "number", "about"),
    [
        (Command(argv=("no-such-program",)), errno.ENOENT, "no-such-program"),
        (Command(argv=("/no/such/program",)), errno.ENOENT, "/no/such/program"),
        (Command(argv=("/etc/passwd",)), errno.EACCES, "/etc/passwd"),
        (Command(argv=("/etc",)), errno.EACCES, "/etc"),
        (Command(argv=("true",), cwd="/no/such/folder"), errno.ENOENT, "/no/such/folder"),
        (Command(argv=("true", "a\0b")), errno.EINVAL, "true"),
        (Command(argv=("true",), env={"A=B": "c"}), errno.EINVAL, "true"),
        (Command(argv=("true", "a" * 131_072)), errno.E2BIG, "true"),
        (Command(argv=("true", "\ud800")), errno.EILSEQ, None),
        (Command(argv=()), errno.EINVAL, None),
    ],
    ids=lambda value: repr(value)[:40],
)
async def test_what_can_not_be_started_is_an_oserror(
    spawner: SystemSpawner, command: Command, number: int, about: str | None
) -> None:
    with pytest.raises(OSError) as caught:
        await spawner.run(command, base_env=ENV)
    assert (caught.value.errno, caught.value.filename) == (number, about)
    assert (await shell(spawner, "echo fine")).text == "fine\n"


async def test_programs_are_found_on_the_path_of_the_command(spawner: SystemSpawner, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("#!/bin/sh\necho mine\n")
    (tmp_path / "mine").chmod(0o755)
    result = await spawner.run(Command(argv=("mine",), env={"PATH": f"{tmp_path}:/bin"}), base_env=ENV)
    assert result.text == "mine\n"


async def test_many_arguments_are_sent_whole(spawner: SystemSpawner) -> None:
    arguments = tuple("x" * 1000 for _ in range(1500))
    result = await spawner.run(Command(argv=("sh", "-c", "echo $#", "sh", *arguments)), base_env=ENV)
    assert result.text == "1500\n"


async def test_no_descriptor_is_left_behind(spawner: SystemSpawner) -> None:
    async def each_way_to_end() -> None:
        await shell(spawner, "cat; sleep 0.1 &", group="g")
        await spawner.run(Command(argv=("sleep", "9"), timeout=0.05), base_env=ENV)
        with pytest.raises(OSError):
            await spawner.run(Command(argv=("no-such-program",), stdin=b"x"), base_env=ENV)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(shell(spawner, "sleep 9"), 0.05)
        with pytest.raises(InfrastructureError):
            await shell(spawner, "kill -9 $PPID; sleep 9")
        await spawner.end("g")
        await spawner.close()

    await each_way_to_end()
    before = len(os.listdir("/proc/self/fd"))
    await each_way_to_end()
    assert len(os.listdir("/proc/self/fd")) == before


def parent_of(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as stat:
        return int(stat.read().rpartition(")")[2].split()[1])
