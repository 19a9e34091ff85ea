"""What any sandbox has to do from its making to its end: isolation of owners, failing setup, nothing left."""

from __future__ import annotations

import asyncio

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.model.definition import SandboxSpec
from evalfleet.sandbox_ports import Command, Sandbox
from evalfleet.testing.runner import pytest
from evalfleet.testing.sandbox_subject import Subject, alive, forever


async def sandboxes_share_nothing(on: Subject) -> None:
    other = await on.create("other")
    assert other.id != on.sandbox.id
    await on.sandbox.write("file", b"mine")
    await on.shell('echo mine > "$HOME/file"; echo mine > "${TMPDIR:-/tmp}/file"')
    with pytest.raises(FileNotFoundError):
        await other.read("file")
    seen = await other.run(Command(argv=("sh", "-c", 'cat "$HOME/file" "${TMPDIR:-/tmp}/file"')))
    assert seen.stdout == b""


async def setup_commands_run_in_order_in_the_workdir(on: Subject) -> None:
    sandbox = await on.create("set-up", SandboxSpec(setup=("echo 1 >> log", "echo 2 >> log && pwd >> log")))
    assert await sandbox.read("log") == f"1\n2\n{sandbox.workdir}\n".encode()


async def a_failing_setup_is_a_failure_of_the_sandbox(on: Subject) -> None:
    for line in ("exit 3", "false; true", "kill -9 $$", "no-such-program-here"):
        with pytest.raises(AttemptFailure) as caught:
            await on.create("bad", SandboxSpec(setup=("true", line, "touch never")))
        assert (caught.value.kind, caught.value.code) == (FailureKind.SANDBOX, "SANDBOX_SETUP_FAILED")
        assert line in str(caught.value)


async def a_failing_setup_shows_the_end_of_its_stderr_and_no_more(on: Subject) -> None:
    script = "head -c 100000 /dev/zero | tr '\\0' x >&2; echo the cause >&2; exit 1"
    with pytest.raises(AttemptFailure) as caught:
        await on.create("bad", SandboxSpec(setup=(script,)))
    assert str(caught.value).endswith("the cause")
    assert len(str(caught.value)) < 5_000


async def a_failing_setup_leaves_no_process(on: Subject) -> None:
    seconds = forever()
    with pytest.raises(AttemptFailure):
        await on.create("bad", SandboxSpec(setup=(f"setsid sleep {seconds} & exit 1",)))
    await on.dead(seconds)


async def missing_files_are_a_failure_of_the_sandbox(on: Subject) -> None:
    with pytest.raises(AttemptFailure) as caught:
        await on.create("bad", SandboxSpec(files=str(on.folder / "missing")))
    assert caught.value.kind is FailureKind.SANDBOX
    assert str(on.folder / "missing") in str(caught.value)


async def closing_ends_background_services(on: Subject) -> None:
    plain, detached = forever(), forever()
    await on.shell(f"sleep {plain} & (env -i setsid sleep {detached} &)")
    await on.started(plain)
    await on.started(detached)
    await on.sandbox.close()
    assert (alive(plain), alive(detached)) == (0, 0)


async def closing_ends_running_commands(on: Subject) -> None:
    seconds = forever()
    running = [asyncio.ensure_future(on.shell(f"sleep {seconds}", timeout=None)) for _ in range(3)]
    await on.until(lambda: alive(seconds) == 3, "three commands run")
    await on.sandbox.close()
    assert alive(seconds) == 0
    for outcome in await asyncio.gather(*running, return_exceptions=True):
        assert isinstance(outcome, AttemptFailure)
        assert (outcome.kind, outcome.code) == (FailureKind.SANDBOX, "SANDBOX_CLOSED")


async def closing_spares_the_neighbours(on: Subject) -> None:
    seconds = forever()
    other = await on.create("other")
    await other.run(Command(argv=("sh", "-c", f"sleep {seconds} &")))
    await on.started(seconds)
    await on.sandbox.close()
    assert alive(seconds) == 1
    await other.close()
    assert alive(seconds) == 0


async def closing_twice_and_at_once_is_closing(on: Subject) -> None:
    await on.shell("sleep 1000 &")
    await asyncio.gather(on.sandbox.close(), on.sandbox.close())
    await on.sandbox.close()


async def closing_after_everything_inside_was_destroyed(on: Subject) -> None:
    await on.shell('rm -rf "$PWD" "$HOME"')
    await on.sandbox.close()


async def closing_removes_what_its_maker_locked(on: Subject) -> None:
    await on.shell("mkdir -p locked/in && touch locked/in/file && chmod 000 locked/in locked")
    await on.sandbox.close()


async def a_destroyed_sandbox_is_lost_and_no_result(on: Subject) -> None:
    await on.shell('rm -rf "$PWD"')
    if not await _lost(on):  # where the workdir can't be removed from inside, it is empty and goes on
        assert (await on.shell("pwd; ls -A")).text == f"{on.sandbox.workdir}\n"


async def killing_its_own_parent_is_never_a_success(on: Subject) -> None:
    try:
        result = await on.shell("kill -9 $PPID; sleep 0.3; echo went on")
    except AttemptFailure as failure:
        assert (failure.kind, failure.code) == (FailureKind.SANDBOX, "SANDBOX_LOST")
        return
    assert result.text == "went on\n" if result.ok else result.text == ""


async def killing_everything_inside_is_never_a_wrong_result(on: Subject) -> None:
    on.needs_isolation()
    seconds = forever()
    await on.shell(f"setsid sleep {seconds} &")
    await on.started(seconds)
    try:
        result = await on.shell("kill -9 -1; sleep 0.3; echo went on")
    except AttemptFailure as failure:
        assert (failure.kind, failure.code) == (FailureKind.SANDBOX, "SANDBOX_LOST")
    else:
        assert result.text == "went on\n" if result.ok else result.text == ""
    await on.dead(seconds)
    if not await _lost(on):
        assert (await on.shell("echo alive")).text == "alive\n"


async def a_living_sandbox_is_probed_beside_its_commands(on: Subject) -> None:
    seconds = forever()
    execution = await on.sandbox.start(Command(argv=("sleep", seconds)))
    await on.started(seconds)
    await asyncio.gather(*(on.sandbox.probe() for _ in range(20)))
    await execution.end()


async def a_closed_sandbox_refuses_everything(on: Subject) -> None:
    await on.sandbox.close()
    uses = (
        on.run("true"),
        on.sandbox.start(Command(argv=("true",))),
        on.sandbox.attach("1"),
        on.sandbox.probe(),
        on.sandbox.read("x"),
        on.sandbox.write("x", b""),
        on.sandbox.upload(on.folder, "x"),
        on.sandbox.download("x", on.folder / "x"),
        on.sandbox.export(on.folder / "x"),
    )
    for outcome in await asyncio.gather(*uses, return_exceptions=True):
        assert isinstance(outcome, AttemptFailure)
        assert (outcome.kind, outcome.code) == (FailureKind.SANDBOX, "SANDBOX_CLOSED")


async def an_owner_gets_a_fresh_sandbox_after_closing(on: Subject) -> None:
    first = await on.create("again")
    await first.write("file", b"old")
    await first.close()
    second = await on.create("again")
    with pytest.raises(FileNotFoundError):
        await second.read("file")


async def _closing(on: Subject, *sandboxes: Sandbox) -> float:
    start = on.clock.monotonic()
    await asyncio.gather(*(sandbox.close() for sandbox in sandboxes))
    return on.clock.monotonic() - start


async def twenty_are_closed_within_two_seconds(on: Subject) -> None:
    stubborn = Command(argv=("sh", "-c", "(trap '' TERM; while :; do sleep 1; done) & :"))
    one, *sandboxes = await asyncio.gather(*(on.create(f"stubborn-{number}") for number in range(21)))
    await asyncio.gather(*(sandbox.run(stubborn) for sandbox in (one, *sandboxes)))
    alone = await _closing(on, one)
    together = await _closing(on, *sandboxes)
    # an engine whose machine has much else to do closes them one after the other, in effect: never with a grace
    assert together < max(2.0, 30 * alone) and alone < 2.0, (alone, together)


async def closing_the_provider_closes_its_sandboxes(on: Subject) -> None:
    seconds = forever()
    await on.shell(f"sleep {seconds} &")
    await on.started(seconds)
    await on.provider.close()
    assert alive(seconds) == 0


async def _lost(on: Subject) -> bool:
    """Whether the sandbox is gone; its probe and its commands have to agree on that."""
    outcomes = await asyncio.gather(on.sandbox.probe(), on.run("true"), return_exceptions=True)
    lost = [isinstance(outcome, AttemptFailure) and outcome.code == "SANDBOX_LOST" for outcome in outcomes]
    assert lost[0] == lost[1], f"probe and command disagree: {outcomes}"
    return lost[0]
