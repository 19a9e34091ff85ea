"""What only containers have: images of any make, builds, engines that cut a connection, labels."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from evalfleet.errors import AttemptFailure
from evalfleet.model.definition import Resources, SandboxSpec
from evalfleet.sandbox_ports import Command, FoundSandbox
from evalfleet.testing.sandbox_subject import alive, forever
from tests.engines.engines import IMAGE, call, provider_of

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="function")]

WHO = Command(argv=("sh", "-c", 'id -u; pwd; echo "$HOME"; echo "$LC_ALL"'))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("shell-entry", "0 /workspace /root C.UTF-8"),
        ("deaf-entry", "0 /workspace /root C.UTF-8"),
        ("c-locale", "0 /workspace /root C.UTF-8"),
    ],
)
async def test_an_images_own_entrypoint_is_never_run(engine: str, tmp_path: Path, name: str, said: str) -> None:
    async with provider_of(engine, tmp_path) as provider:
        sandbox = await provider.create(SandboxSpec(image=f"evalfleet-test/{name}:1"), "mine")
        assert (await sandbox.run(WHO)).text.split() == said.split()


async def test_the_user_and_the_workdir_of_an_image_are_taken(engine: str, tmp_path: Path) -> None:
    call(engine, "build", "--tag", "evalfleet-test/owned:1", str(_context(tmp_path / "context", _OWNED)))
    async with provider_of(engine, tmp_path / "state") as provider:
        sandbox = await provider.create(SandboxSpec(image="evalfleet-test/owned:1"), "mine")
        assert (await sandbox.run(WHO)).text.split()[:2] == ["1000", "/home/worker/project"]
        await sandbox.write("deep/file", b"mine")
        assert (await sandbox.run(Command(argv=("stat", "-c", "%u", "deep/file")))).text == "1000\n"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("no-shell", "sh"),
        ("locked", "the user 'worker' can't write to the workdir /app"),
    ],
)
async def test_an_unfit_image_is_told_once_and_leaves_nothing(engine: str, tmp_path: Path, name: str, why: str) -> None:
    spec = SandboxSpec(image=f"evalfleet-test/{name}:1")
    async with provider_of(engine, tmp_path) as provider:
        messages: list[str] = []
        for number in range(3):
            with pytest.raises(AttemptFailure) as caught:
                await provider.create(spec, f"owner-{number}")
            assert caught.value.code == "SANDBOX_IMAGE_UNFIT"
            messages.append(str(caught.value))
        assert why in messages[0]
        assert len(set(messages)) == 1
        assert await provider.found() == []


async def test_files_are_the_users_in_an_image_without_tar(engine: str, tmp_path: Path) -> None:
    (tmp_path / "files" / "deep").mkdir(parents=True)
    (tmp_path / "files" / "deep" / "file").write_bytes(b"given\n")
    spec = SandboxSpec(image="evalfleet-test/no-tar:1", user="1000", files=str(tmp_path / "files"))
    async with provider_of(engine, tmp_path / "state") as provider:
        sandbox = await provider.create(spec, "mine")
        script = "echo more >> deep/file; touch deep/new; stat -c %u:%g deep deep/file"
        assert (await sandbox.run(Command(argv=("sh", "-c", script)))).text == "1000:1000\n1000:1000\n"
        await sandbox.export(tmp_path / "out")
    assert (tmp_path / "out" / "deep" / "file").read_bytes() == b"given\nmore\n"


async def test_an_image_that_is_nowhere_is_missing(engine: str, tmp_path: Path) -> None:
    async with provider_of(engine, tmp_path) as provider:
        with pytest.raises(AttemptFailure) as caught:
            await provider.create(SandboxSpec(image="localhost:1/no-such-image:1"), "mine")
        assert caught.value.code == "SANDBOX_IMAGE_MISSING"


async def test_a_secret_is_on_no_command_line_and_in_no_description(engine: str, tmp_path: Path) -> None:
    secret = f"secret-{os.getpid()}-é"
    async with provider_of(engine, tmp_path) as provider:
        sandbox = await provider.create(SandboxSpec(image=IMAGE, env={"TOKEN": secret}), "mine")
        seconds = forever()
        execution = await sandbox.start(
            Command(argv=("sh", "-c", f'test -n "$TOKEN" && echo begun && exec sleep {seconds}'))
        )
        async with asyncio.timeout(30):
            await execution.read(wait=30.0)
        assert alive(seconds) == 1
        lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
        assert not any(secret.encode() in line for line in lines)
        assert secret not in call(engine, "inspect", sandbox.id)
        await execution.end()


async def test_a_command_whose_connection_is_cut_is_reported_whole_and_runs_once(engine: str, tmp_path: Path) -> None:
    async with provider_of(engine, tmp_path) as provider:
        sandbox = await provider.create(SandboxSpec(image=IMAGE), "mine")
        script = "echo ran >> times; seq 1 1000; sleep 3; seq 1001 2000; exit 7"
        running = asyncio.ensure_future(sandbox.run(Command(argv=("sh", "-c", script))))
        await _cut(engine, sandbox.id, script)
        result = await running
        assert (result.exit_code, result.signal) == (7, None)
        assert result.text == "".join(f"{number}\n" for number in range(1, 2001))
        assert await sandbox.read("times") == b"ran\n"


async def test_a_container_that_somebody_removed_is_lost(engine: str, tmp_path: Path) -> None:
    async with provider_of(engine, tmp_path) as provider:
        sandbox = await provider.create(SandboxSpec(image=IMAGE), "mine")
        neighbour = await provider.create(SandboxSpec(image=IMAGE), "neighbour")
        running = asyncio.ensure_future(sandbox.run(Command(argv=("sleep", "1000"))))
        await asyncio.sleep(0.5)
        call(engine, "rm", "--force", sandbox.id)
        for use in (running, sandbox.probe(), sandbox.read("x")):
            with pytest.raises(AttemptFailure) as caught:
                await use
            assert caught.value.code == "SANDBOX_LOST"
        assert (await neighbour.run(Command(argv=("echo", "well")))).text == "well\n"
    async with provider_of(engine, tmp_path) as provider:
        assert await provider.found() == [], "what is closed together with one that is gone stays"


async def test_containers_of_others_are_neither_found_nor_removed(engine: str, tmp_path: Path) -> None:
    call(engine, "run", "--detach", "--name", "not-ours", "--network", "none", "--entrypoint", "sleep", IMAGE, "1000")
    try:
        async with provider_of(engine, tmp_path / "one") as one, provider_of(engine, tmp_path / "two") as two:
            sandbox = await one.create(SandboxSpec(image=IMAGE), "mine")
            assert await two.found() == []
            (found,) = await one.found()
            assert (found.id, found.owner, found.pid, found.alive) == (sandbox.id, "mine", os.getpid(), True)
            for provider, name in ((two, found.id), (one, "not-ours")):
                await provider.reap(_renamed(found, name))
            assert (await sandbox.run(Command(argv=("echo", "well")))).text == "well\n"
        assert "not-ours" in call(engine, "ps", "--format", "{{.Names}}")
    finally:
        call(engine, "rm", "--force", "not-ours")


async def test_a_kept_container_stands_still_with_its_files_until_it_is_reaped(engine: str, tmp_path: Path) -> None:
    seconds = forever()
    async with provider_of(engine, tmp_path) as provider:
        spec = SandboxSpec(image=IMAGE, env={"COLOUR": "deep 'blue' é", "DOOR_CODE": "7-1-3"}, env_from=("DOOR_CODE",))
        sandbox = await provider.create(spec, "mine")
        await sandbox.run(Command(argv=("sh", "-c", f"echo evidence > file; sleep {seconds} &")))
        await sandbox.keep()
    assert alive(seconds) == 0
    async with provider_of(engine, tmp_path) as provider:
        (found,) = await provider.found()
        assert found.kept
        argv = await provider.enter_argv(found)
        assert argv[0] == "sh" and found.id in argv
        assert {"COLOUR=deep 'blue' é", "HOME=/root", "LANG=C.UTF-8"} <= set(argv) and not any(
            "DOOR_CODE" in argument for argument in argv
        )
        call(engine, "start", found.id)
        assert call(engine, "exec", "--workdir", sandbox.workdir, found.id, "cat", "file") == "evidence\n"
        await provider.reap(found)
        assert await provider.found() == []


async def test_an_image_is_built_once_for_all_of_one_content(engine: str, tmp_path: Path) -> None:
    context = _context(tmp_path / "context", f"FROM {IMAGE}\nCOPY marker /marker\n")
    (context / "marker").write_text("one")
    spec = SandboxSpec(build=str(context))
    async with provider_of(engine, tmp_path / "state") as provider:
        await provider.bring(spec)
        sandboxes = await asyncio.gather(*(provider.create(spec, f"owner-{number}") for number in range(3)))
        for sandbox in sandboxes:
            assert (await sandbox.run(Command(argv=("cat", "/marker")))).text == "one"
    before = _builds(engine)
    (context / "marker").write_text("two")
    async with provider_of(engine, tmp_path / "state") as provider:
        sandbox = await provider.create(spec, "changed")
        assert (await sandbox.run(Command(argv=("cat", "/marker")))).text == "two"
    assert len(_builds(engine)) == len(before) + 1


async def test_a_build_that_fails_is_told_the_same_way_to_all(engine: str, tmp_path: Path) -> None:
    context = _context(tmp_path / "context", f"FROM {IMAGE}\nRUN echo the cause >&2; exit 3\n")
    async with provider_of(engine, tmp_path / "state") as provider:
        makings = (provider.create(SandboxSpec(build=str(context)), f"owner-{number}") for number in range(5))
        outcomes = await asyncio.gather(*makings, return_exceptions=True)
    codes = {outcome.code for outcome in outcomes if isinstance(outcome, AttemptFailure)}
    assert (codes, len({str(outcome) for outcome in outcomes})) == ({"SANDBOX_BUILD_FAILED"}, 1)
    assert "the cause" in str(outcomes[0])
    assert call(engine, "ps", "--all", "--quiet") == ""


@pytest.mark.usefixtures("docker")  # podman does not tell why the kernel ended a container where cgroups are v1
async def test_a_sandbox_whose_memory_stays_full_is_told_as_that(tmp_path: Path) -> None:
    async with provider_of("docker", tmp_path) as provider:
        sandbox = await provider.create(SandboxSpec(image=IMAGE, resources=Resources(memory=24 << 20)), "mine")
        with pytest.raises(AttemptFailure) as caught:
            await sandbox.run(Command(argv=("sh", "-c", "head -c 60000000 /dev/zero > /dev/shm/full"), timeout=60.0))
        assert caught.value.code == "SANDBOX_OOM"


async def test_a_process_killed_for_memory_is_counted(engine: str, tmp_path: Path) -> None:
    async with provider_of(engine, tmp_path) as provider:
        spec = SandboxSpec(image=IMAGE, resources=Resources(memory=64 << 20))
        sandbox = await provider.create(spec, "mine")
        if any("resources.memory" in notice for notice in sandbox.notices):
            pytest.skip(f"not enforced here: {sandbox.notices}")
        assert sandbox.notices == ()
        result = await sandbox.run(Command(argv=("dd", "if=/dev/zero", "of=/dev/null", "bs=400M", "count=1")))
        assert (result.signal, result.oom_kills) == (signal.SIGKILL, 1)
        assert (await sandbox.run(Command(argv=("true",)))).oom_kills == 0


_OWNED = f"""FROM {IMAGE}
RUN mkdir -p /home/worker/project && chown worker /home/worker/project
USER worker
WORKDIR /home/worker/project
"""


def _context(folder: Path, dockerfile: str) -> Path:
    folder.mkdir()
    (folder / "Dockerfile").write_text(dockerfile)
    return folder


def _builds(engine: str) -> set[str]:
    return set(call(engine, "images", "--quiet", "--filter", "reference=*evalfleet-build*").split())


def _renamed(found: FoundSandbox, name: str) -> FoundSandbox:
    return replace(found, id=name, alive=False)


async def _cut(engine: str, sandbox: str, script: str) -> None:
    """Kill the engine's client that holds the command's connection."""
    while True:
        await asyncio.sleep(0.05)
        for process in Path("/proc").glob("[0-9]*"):
            try:
                line = (process / "cmdline").read_bytes()
            except OSError:
                continue
            if line.startswith(engine.encode() + b"\0exec\0") and sandbox.encode() in line and script.encode() in line:
                await asyncio.sleep(1.0)  # it has begun inside by then
                os.kill(int(process.name), signal.SIGKILL)
                return
