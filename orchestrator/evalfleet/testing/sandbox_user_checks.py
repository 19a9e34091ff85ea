"""What any sandbox has to do with users: a named one runs what was asked for, or nothing runs."""

from __future__ import annotations

import asyncio

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.model.definition import SandboxSpec
from evalfleet.sandbox_ports import Command, CommandResult
from evalfleet.testing.sandbox_subject import Subject

#: Nobody's id on any machine or image: it needs no entry in a list of users.
_SOMEBODY = "54321"
_WHO = ("id", "-u")


async def the_user_of_the_spec_runs_everything_and_owns_the_workdir(on: Subject) -> None:
    sandbox = await on.create("somebody", SandboxSpec(user=_SOMEBODY, setup=("id -u > who",)))
    assert await sandbox.read("who") == f"{_SOMEBODY}\n".encode()
    await sandbox.write("given", b"given")
    writes = 'id -u; cat given; echo x >> given; mkdir new && touch new/file "$HOME/mine" && mktemp > /dev/null'
    result = await sandbox.run(Command(argv=("sh", "-c", writes)))
    assert (result.exit_code, result.text) == (0, f"{_SOMEBODY}\ngiven")
    assert (await (await sandbox.start(Command(argv=_WHO))).result()).text == f"{_SOMEBODY}\n"


async def a_command_may_name_another_user(on: Subject) -> None:
    own = (await on.run(*_WHO)).text
    assert (await on.sandbox.run(Command(argv=_WHO, user=_SOMEBODY))).text == f"{_SOMEBODY}\n" != own
    assert (await (await on.sandbox.start(Command(argv=_WHO, user=_SOMEBODY))).result()).text == f"{_SOMEBODY}\n"
    assert (await on.run(*_WHO)).text == own


async def a_user_is_never_ignored(on: Subject) -> None:
    async def detached() -> CommandResult:
        return await (await on.sandbox.start(Command(argv=_WHO, user=_SOMEBODY))).result()

    async def of_the_spec() -> CommandResult:
        return await (await on.create("somebody", SandboxSpec(user=_SOMEBODY))).run(Command(argv=_WHO))

    ways = (on.sandbox.run(Command(argv=_WHO, user=_SOMEBODY)), detached(), of_the_spec())
    for outcome in await asyncio.gather(*ways, return_exceptions=True):
        if isinstance(outcome, CommandResult):
            assert outcome.text == f"{_SOMEBODY}\n"
        else:
            assert isinstance(outcome, AttemptFailure)
            assert (outcome.kind, outcome.code) == (FailureKind.SANDBOX, "SANDBOX_UNSUPPORTED")


async def a_user_that_is_not_there_runs_nothing(on: Subject) -> None:
    for user in ("no-such-user-here", "4294967299"):
        try:
            result = await on.sandbox.run(Command(argv=("touch", "ran"), user=user))
        except AttemptFailure as failure:
            assert failure.kind is FailureKind.SANDBOX
        else:
            assert result.exit_code == 126
    assert (await on.run("ls")).text == ""
