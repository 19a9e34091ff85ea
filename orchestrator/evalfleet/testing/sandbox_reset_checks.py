"""What any sandbox has to do when it is reset: be as it was made, or say that this can't be proven.

Only a backend that isolates nothing may refuse, with SANDBOX_UNCLEAN: what its commands did may be anywhere.
"""

from __future__ import annotations

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.model.definition import SandboxSpec
from evalfleet.sandbox_ports import Command, Sandbox
from evalfleet.testing.sandbox_subject import Subject, alive, forever, refused

_LOOK = """
find . -exec ls -dn {} + | awk '{print $1, $3, $4, $9, $10, $11}' | sort; find . -type f -exec sha256sum {} + | sort
ls -A "$HOME" "${TMPDIR:-/tmp}"
"""


async def a_reset_brings_files_and_setup_back(on: Subject) -> None:
    (on.folder / "src").mkdir()
    (on.folder / "src" / "main").write_bytes(b"original")
    setup = ("mkdir built && cp src/main built/main && chmod 750 built", 'echo mine > "$HOME/mark"')
    sandbox = await on.create("reset", SandboxSpec(files=str(on.folder), setup=setup))
    before = await _run(sandbox, _LOOK)
    await _run(sandbox, 'echo changed > src/main; rm -r built; mkdir -p new/er; echo x > "$HOME/x"; rm "$HOME/mark"')
    await _run(sandbox, 'echo x > "${TMPDIR:-/tmp}/x"; chmod 700 src; ln -s / root')
    if await _reset(on, sandbox):
        assert await _run(sandbox, _LOOK) == before
        assert await sandbox.read("built/main") == b"original"


async def a_reset_ends_every_process(on: Subject) -> None:
    plain, detached = forever(), forever()
    await on.shell(f"sleep {plain} & (env -i setsid sleep {plain} &)")
    await on.sandbox.start(Command(argv=("sh", "-c", f"sleep {detached}")))
    await on.until(lambda: alive(plain) == 2 and alive(detached) == 1, "all three run")
    if await _reset(on, on.sandbox):
        assert (alive(plain), alive(detached)) == (0, 0)


async def a_reset_sandbox_is_as_good_as_a_new_one(on: Subject) -> None:
    sandbox = await on.create("reset", SandboxSpec(env={"COLOUR": "blue"}, setup=("echo set up > log",)))
    workdir = sandbox.workdir
    for number in range(3):
        await sandbox.write("work", str(number).encode())
        if not await _reset(on, sandbox):
            return
        assert await _run(sandbox, 'pwd; ls; cat log; echo "$COLOUR"') == f"{workdir}\nlog\nset up\nblue\n"
        await sandbox.probe()


async def a_reset_undoes_the_destruction_of_everything(on: Subject) -> None:
    sandbox = await on.create("reset", SandboxSpec(setup=("mkdir -p a/b && echo x > a/b/file",)))
    await sandbox.run(Command(argv=("sh", "-c", "chmod 000 a/b a; rm -rf ./* 2>/dev/null; chmod 500 .")))
    if await _reset(on, sandbox):
        assert await sandbox.read("a/b/file") == b"x\n"
        await sandbox.write("new", b"")


async def a_closed_sandbox_is_not_reset(on: Subject) -> None:
    await on.sandbox.close()
    await refused(on.sandbox.reset(), "SANDBOX_CLOSED")


async def _reset(on: Subject, sandbox: Sandbox) -> bool:
    """Whether the sandbox was reset; a backend that isolates nothing may refuse."""
    try:
        await sandbox.reset()
    except AttemptFailure as failure:
        assert (failure.kind, failure.code) == (FailureKind.SANDBOX, "SANDBOX_UNCLEAN")
        assert not on.provider.isolates, "a backend that isolates can prove that a reset sandbox is clean"
        return False
    return True


async def _run(sandbox: Sandbox, script: str) -> str:
    result = await sandbox.run(Command(argv=("sh", "-c", script), timeout=60.0))
    assert result.ok, result.stderr.decode("utf-8", "replace")
    return result.text
