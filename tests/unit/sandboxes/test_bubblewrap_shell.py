"""A bubblewrap sandbox that is kept, and a person's shell in it: its own user, its own view, no network."""

from __future__ import annotations

import asyncio

import pytest

from evalfleet.model.definition import Resources, SandboxSpec
from evalfleet.sandbox_ports import Command, Enterable, Keepable
from evalfleet.testing.sandbox_subject import alive, forever
from evalfleet_sandboxes.bubblewrap import BubblewrapProvider

ENV = {"COLOUR": "deep 'blue' é", "DOOR_CODE": "7-1-3"}
LOOK = b"""
cat notes; echo "$COLOUR|$DOOR_CODE"; pwd; id -u; grep ^CapEff /proc/self/status; cat /proc/net/dev
touch mine && exit 7
"""


@pytest.mark.parametrize(
    "spec",
    [
        SandboxSpec(env=ENV, env_from=("DOOR_CODE",)),
        SandboxSpec(env=ENV, env_from=("DOOR_CODE",), resources=Resources(disk=1 << 24)),
    ],
    ids=["disk", "memory"],
)
async def test_a_kept_one_can_be_entered_and_reaped(bubblewrap: BubblewrapProvider, spec: SandboxSpec) -> None:
    sandbox = await bubblewrap.create(spec, "run/1")
    assert isinstance(sandbox, Keepable) and isinstance(bubblewrap, Enterable)
    seconds = forever()
    await sandbox.run(Command(argv=("sh", "-c", f"echo left for you > notes; sleep {seconds} &")))
    inside = (await sandbox.run(Command(argv=("id", "-u")))).text
    await sandbox.keep()
    assert alive(seconds) == 0
    await bubblewrap.close()
    (found,) = await bubblewrap.found()
    assert (found.owner, found.alive, found.kept) == ("run/1", False, True)

    argv = await bubblewrap.enter_argv(found)
    shell = await asyncio.create_subprocess_exec(
        *argv, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await shell.communicate(LOOK)
    text = out.decode()
    if spec.resources.disk is None:
        assert shell.returncode == 7, err.decode()
    seen = f"left for you\ndeep 'blue' é|\n/sandbox/work\n{inside}CapEff:\t0000000000000000\n"
    assert text.startswith(seen), text + err.decode()
    interfaces = [line.split(":")[0].strip() for line in text.splitlines() if ":" in line and "CapEff" not in line]
    assert interfaces == ["lo"]

    await bubblewrap.reap(found)
    assert await bubblewrap.found() == []
