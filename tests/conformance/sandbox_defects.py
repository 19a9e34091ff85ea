"""Sandboxes with one planted defect each, and the check that has to catch it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from evalfleet.model.definition import SandboxSpec
from evalfleet.processes import SystemSpawner
from evalfleet.sandbox_ports import (
    Command,
    CommandResult,
    Execution,
    FoundSandbox,
    OutputPiece,
    Sandbox,
    SandboxPlace,
    SandboxProvider,
    Stream,
    Unenforced,
)
from evalfleet.testing.sandbox_subject import MakeProvider
from evalfleet_sandboxes import local


class CarefulExecution:
    """A detached command of the local sandbox; each subclass breaks one thing of it."""

    def __init__(self, inner: Execution) -> None:
        self.inner = inner

    @property
    def id(self) -> str:
        return self.inner.id

    async def read(self, stream: Stream = Stream.STDOUT, *, after: int = 0, wait: float = 0.0) -> OutputPiece:
        return await self.inner.read(stream, after=after, wait=wait)

    async def result(self) -> CommandResult:
        return await self.inner.result()

    async def end(self) -> None:
        await self.inner.end()


class Careful:
    """The local sandbox; each subclass breaks one thing of it."""

    execution: type[CarefulExecution] = CarefulExecution

    def __init__(self, inner: Sandbox) -> None:
        self.inner = inner

    @property
    def id(self) -> str:
        return self.inner.id

    @property
    def workdir(self) -> str:
        return self.inner.workdir

    @property
    def tree(self) -> Path | None:
        return self.inner.tree

    @property
    def notices(self) -> tuple[str, ...]:
        return self.inner.notices if isinstance(self.inner, Unenforced) else ()

    async def run(self, command: Command) -> CommandResult:
        return await self.inner.run(command)

    async def start(self, command: Command) -> Execution:
        return self.execution(await self.inner.start(command))

    async def attach(self, execution: str) -> Execution:
        return self.execution(await self.inner.attach(execution))

    async def probe(self) -> None:
        await self.inner.probe()

    async def export(self, target: Path) -> None:
        await self.inner.export(target)

    async def reset(self) -> None:
        await self.inner.reset()

    async def read(self, path: str) -> bytes:
        return await self.inner.read(path)

    async def write(self, path: str, data: bytes) -> None:
        await self.inner.write(path, data)

    async def upload(self, source: Path, target: str) -> None:
        await self.inner.upload(source, target)

    async def download(self, source: str, target: Path) -> None:
        await self.inner.download(source, target)

    async def close(self) -> None:
        await self.inner.close()


class JoinsArguments(Careful):
    async def run(self, command: Command) -> CommandResult:
        return await self.inner.run(replace(command, argv=("sh", "-c", " ".join(command.argv))))


class DropsTail(Careful):
    async def run(self, command: Command) -> CommandResult:
        whole = await self.inner.run(replace(command, output_limit=1 << 24))
        return replace(whole, stdout=whole.stdout[: command.output_limit])


class DecodesOutput(Careful):
    async def run(self, command: Command) -> CommandResult:
        result = await self.inner.run(command)
        return replace(result, stdout=result.text.encode())


class FoldsSignals(Careful):
    async def run(self, command: Command) -> CommandResult:
        result = await self.inner.run(command)
        return result if result.signal is None else replace(result, exit_code=128 + result.signal, signal=None)


class ForgetsStdin(Careful):
    async def run(self, command: Command) -> CommandResult:
        return await self.inner.run(replace(command, stdin=None))


class WaitsForPipes(Careful):
    """Kills what a command leaves in the background, as a sandbox does that waits for the end of the output."""

    async def run(self, command: Command) -> CommandResult:
        spawner = SystemSpawner()
        placed = replace(command, cwd=f"{self.workdir}/{command.cwd or ''}")
        try:
            return await spawner.run(placed, base_env={"PATH": "/usr/bin:/bin"})
        finally:
            await spawner.close()


class WritesThroughShell(Careful):
    async def write(self, path: str, data: bytes) -> None:
        text = data.decode("utf-8", "replace").replace("\0", "")
        await self.inner.run(Command(argv=("sh", "-c", f"printf '%s' '{text}' > '{path}'")))


class FollowsLinks(Careful):
    async def read(self, path: str) -> bytes:
        return (Path(self.workdir) / path).read_bytes()


class LeavesProcesses(Careful):
    async def close(self) -> None:
        """Nothing."""


class RunsAfterClose(Careful):
    async def run(self, command: Command) -> CommandResult:
        try:
            return await self.inner.run(command)
        except Exception:
            return CommandResult(exit_code=0, stdout=b"", stderr=b"", duration=0.0)


class ReadsOnce(CarefulExecution):
    """Hands each byte to the first reader only, as a stream of an engine does."""

    def __init__(self, inner: Execution) -> None:
        super().__init__(inner)
        self.given = 0

    async def read(self, stream: Stream = Stream.STDOUT, *, after: int = 0, wait: float = 0.0) -> OutputPiece:
        piece = await self.inner.read(stream, after=max(after, self.given), wait=wait)
        self.given = piece.cursor
        return replace(piece, cursor=after + len(piece.data))


class ReadsAtTheEnd(CarefulExecution):
    async def read(self, stream: Stream = Stream.STDOUT, *, after: int = 0, wait: float = 0.0) -> OutputPiece:
        await self.inner.result()
        return await self.inner.read(stream, after=after)


class LetsGoOn(CarefulExecution):
    async def end(self) -> None:
        """Nothing."""


class Streams(Careful):
    execution = ReadsOnce


class Buffers(Careful):
    execution = ReadsAtTheEnd


class Detaches(Careful):
    execution = LetsGoOn


class ResolvesLinks(Careful):
    async def export(self, target: Path) -> None:
        await self.inner.export(target)
        for path in target.iterdir():
            if path.is_symlink() and path.is_file():  # what leads to a folder may lead to this whole machine
                data = path.read_bytes()
                path.unlink()
                path.write_bytes(data)


class ForgetsModes(Careful):
    async def export(self, target: Path) -> None:
        await self.inner.export(target)
        for path in target.rglob("*"):
            path.chmod(0o777)


class ResetsInName(Careful):
    async def reset(self) -> None:
        """Nothing."""


class CleansFilesOnly(Careful):
    async def reset(self) -> None:
        await self.inner.run(Command(argv=("sh", "-c", "rm -rf ./*")))


class SaysItLives(Careful):
    async def probe(self) -> None:
        """Nothing."""


class IgnoresUsers(Careful):
    async def run(self, command: Command) -> CommandResult:
        return await self.inner.run(replace(command, user=None))

    async def start(self, command: Command) -> Execution:
        return await self.inner.start(replace(command, user=None))


class SaysNothing(Careful):
    """Enforces no limit, and has no notice of that."""

    @property
    def notices(self) -> tuple[str, ...]:
        return ()


class TalksToAll(SaysNothing):
    """Has the host's network, and no notice of that."""


class TakesTurns(Careful):
    """One command at a time, and each gets the answer of the first."""

    async def run(self, command: Command) -> CommandResult:
        if not hasattr(self, "first"):
            self.first = asyncio.ensure_future(self.inner.run(command))
        return await self.first


class CarefulProvider:
    """The local backend with sandboxes of one kind; each subclass breaks one thing of it."""

    name = "defective"
    isolates = False
    outlives = False

    def __init__(self, inner: SandboxProvider, kind: type[Careful], state: Path) -> None:
        self.inner = inner
        self.kind = kind
        self.state = state

    async def check(self) -> None:
        await self.inner.check()

    async def create(self, spec: SandboxSpec, owner: str) -> Sandbox:
        return self.kind(await self.inner.create(spec, owner))

    async def found(self) -> list[FoundSandbox]:
        return await self.inner.found()

    async def reap(self, sandbox: FoundSandbox) -> None:
        await self.inner.reap(sandbox)

    async def close(self) -> None:
        await self.inner.close()


class ForgetsTheDead(CarefulProvider):
    """Knows only what it made itself."""

    async def found(self) -> list[FoundSandbox]:
        return [item for item in await self.inner.found() if item.pid == os.getpid()]


class TakesAllForDead(CarefulProvider):
    async def found(self) -> list[FoundSandbox]:
        return [replace(item, alive=False) for item in await self.inner.found()]


class ReapsHalf(CarefulProvider):
    """Removes the files of a living sandbox and leaves the rest."""

    async def reap(self, sandbox: FoundSandbox) -> None:
        for file in (self.state / sandbox.id / "work").glob("*"):
            file.unlink()


class GoesOnMaking(CarefulProvider):
    """Takes no notice of a cancelled creation."""

    async def create(self, spec: SandboxSpec, owner: str) -> Sandbox:
        return await asyncio.shield(super().create(spec, owner))


class SaysItIsolates(CarefulProvider):
    isolates = True


@asynccontextmanager
async def opened(
    state: Path, provider: type[CarefulProvider] = CarefulProvider, kind: type[Careful] = Careful
) -> AsyncGenerator[SandboxProvider]:
    spawner = SystemSpawner()
    inner = local.factory.build(SandboxPlace(state=state, spawner=spawner))
    try:
        yield provider(inner, kind, state)
    finally:
        await inner.close()
        await spawner.close()


def provider_of(kind: type[Careful]) -> MakeProvider:
    return lambda state: opened(state, kind=kind)


def forgetting(state: Path) -> AbstractAsyncContextManager[SandboxProvider]:
    """A function of the module, as are those below: another process opens it by its name."""
    return opened(state, ForgetsTheDead)


def burying(state: Path) -> AbstractAsyncContextManager[SandboxProvider]:
    return opened(state, TakesAllForDead)


def reaping_half(state: Path) -> AbstractAsyncContextManager[SandboxProvider]:
    return opened(state, ReapsHalf)


def going_on(state: Path) -> AbstractAsyncContextManager[SandboxProvider]:
    return opened(state, GoesOnMaking)


def boasting(state: Path) -> AbstractAsyncContextManager[SandboxProvider]:
    return opened(state, SaysItIsolates)


#: Each defect with the check that has to catch it.
DEFECTS: Mapping[MakeProvider, str] = {
    provider_of(JoinsArguments): "arguments_arrive_as_they_are",
    provider_of(DropsTail): "output_over_the_limit_keeps_head_and_tail_and_is_counted",
    provider_of(DecodesOutput): "bytes_that_are_not_utf8_arrive_as_they_are",
    provider_of(FoldsSignals): "a_signal_is_told_from_an_exit_code",
    provider_of(ForgetsStdin): "a_large_stdin_arrives_whole",
    provider_of(WaitsForPipes): "a_background_service_outlives_its_command_and_may_go_on_writing",
    provider_of(TakesTurns): "a_hundred_commands_run_at_once_in_one",
    provider_of(WritesThroughShell): "every_byte_comes_back",
    provider_of(FollowsLinks): "a_link_that_leads_out_is_refused",
    provider_of(LeavesProcesses): "closing_ends_background_services",
    provider_of(RunsAfterClose): "a_closed_sandbox_refuses_everything",
    provider_of(Streams): "every_offset_can_be_read_again",
    provider_of(Buffers): "output_comes_piece_by_piece_while_the_command_runs",
    provider_of(Detaches): "ending_a_detached_command_ends_its_tree_and_keeps_its_output",
    provider_of(ResolvesLinks): "an_export_keeps_links_wherever_they_lead",
    provider_of(ForgetsModes): "an_export_keeps_modes",
    provider_of(ResetsInName): "a_reset_brings_files_and_setup_back",
    provider_of(CleansFilesOnly): "a_reset_ends_every_process",
    provider_of(SaysItLives): "a_destroyed_sandbox_is_lost_and_no_result",
    provider_of(IgnoresUsers): "a_user_is_never_ignored",
    provider_of(SaysNothing): "a_fork_bomb_is_contained",
    provider_of(TalksToAll): "without_a_network_the_host_is_out_of_reach",
    boasting: "without_a_network_no_route_leads_out",
    forgetting: "the_sandbox_of_a_killed_owner_is_found_dead_and_reaped",
    burying: "a_living_sandbox_is_found_by_others",
    reaping_half: "reaping_the_living_is_refused_or_takes_all_of_it",
    going_on: "a_cancelled_creation_leaves_nothing",
}
