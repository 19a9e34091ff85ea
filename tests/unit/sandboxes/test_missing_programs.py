"""What a command looked for and did not find: by its own name, and by what shells say of others."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalfleet.errors import AttemptFailure
from evalfleet.model.definition import SandboxSpec
from evalfleet.processes import SystemSpawner
from evalfleet.sandbox_ports import Command, SandboxPlace
from evalfleet_sandboxes.bubblewrap import factory
from evalfleet_sandboxes.missing_programs import missing_programs


@pytest.mark.parametrize(
    ("program", "stderr", "names"),
    [
        ("node", "node: No such file or directory\n", ["node"]),
        ("sh", "sh: 1: node: not found\n", ["sh", "node"]),
        ("bash", "bash: line 1: node: command not found\n", ["bash", "node"]),
        ("sh", "bash: line 1: /opt/x/bin/node: No such file or directory\n", ["sh", "/opt/x/bin/node"]),
        ("env", "env: ‘node’: No such file or directory\n", ["env", "node"]),
        ("env", "env: 'node': No such file or directory\n", ["env", "node"]),
        ("sh", "sh: 1: a: not found\nsh: 2: b: not found\nsh: 3: a: not found\n", ["sh", "a", "b"]),
        ("./own", "sh: 1: ../run: not found\n", []),
        ("sh", "it was not found, says nobody\n", ["sh"]),
        ("sh", "", ["sh"]),
    ],
)
def test_what_was_looked_for(program: str, stderr: str, names: list[str]) -> None:
    assert list(missing_programs(program, stderr.encode())) == names


def test_a_command_that_says_much_names_few() -> None:
    said = "".join(f"sh: 1: tool{number}: not found\n" for number in range(10_000))
    assert len(list(missing_programs("sh", said.encode()))) == 8


async def test_a_program_of_this_machine_that_a_sandbox_does_not_show_is_told_of(tmp_path: Path) -> None:
    tool = tmp_path / "tools/hosttool"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    spawner = SystemSpawner()
    environment = {"PATH": f"{tool.parent}:/usr/bin:/bin"}
    provider = factory.build(SandboxPlace(state=tmp_path / "state", spawner=spawner, environment=environment))
    told = f"program hosttool: {tool} is on this machine and not in a bubblewrap sandbox, which shows /usr and"
    try:
        sandbox = await provider.create(SandboxSpec(), "owner")
        before = sandbox.notices
        for argv in (("true",), ("sh", "-c", "exit 127"), ("nowhere-at-all",), ("sh", "-c", "nowhere-at-all")):
            await sandbox.run(Command(argv=argv))
        assert sandbox.notices == before
        for argv in (("hosttool",), ("sh", "-c", "hosttool")):
            assert (await sandbox.run(Command(argv=argv))).exit_code == 127
        (notice,) = (each for each in sandbox.notices if each not in before)
        assert notice.startswith(told)
        detached = await provider.create(SandboxSpec(), "detached")
        assert (await (await detached.start(Command(argv=(str(tool),)))).result()).exit_code == 127
        assert str(tool) in detached.notices[-1]
        with pytest.raises(AttemptFailure, match="setup command 1 of 1 ended with exit code 127") as caught:
            await provider.create(SandboxSpec(setup=("hosttool",)), "setup")
        assert told in str(caught.value)
    finally:
        await provider.close()
        await spawner.close()
