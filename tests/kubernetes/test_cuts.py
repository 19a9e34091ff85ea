"""What a connection that breaks does to commands and files: nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

from evalfleet.model.definition import SandboxSpec
from evalfleet.sandbox_ports import Command, Stream
from tests.kubernetes.cluster import ENVIRONMENT, IMAGE, provider_of
from tests.kubernetes.relay import relayed

KUBECONFIG = Path(ENVIRONMENT["KUBECONFIG"])
LINES = 60
#: Says so many lines, a tenth of a second apart, and leaves a mark for each time that it was executed.
SLOW = f"echo once >> executions; i=0; while [ $i -lt {LINES} ]; do i=$((i + 1)); echo $i; sleep 0.1; done; exit 3"
WHOLE = "".join(f"{number}\n" for number in range(1, LINES + 1)).encode()


async def test_a_command_whose_connection_is_cut_five_times_runs_once_and_loses_nothing(tmp_path: Path) -> None:
    async with (
        relayed(KUBECONFIG, tmp_path) as (relay, through),
        provider_of(tmp_path / "state", through) as provider,
    ):
        sandbox = await provider.create(SandboxSpec(image=IMAGE), "cut")
        running = asyncio.create_task(sandbox.run(Command(argv=("sh", "-c", SLOW), timeout=90.0)))
        for _ in range(5):
            await asyncio.sleep(1.0)
            assert not running.done()
            relay.cut()
        result = await running
        assert relay.cuts >= 5
        assert (result.exit_code, result.timed_out) == (3, False)
        assert result.stdout == WHOLE
        assert await sandbox.read("executions") == b"once\n"


async def test_readers_go_on_from_their_cursor_after_cuts(tmp_path: Path) -> None:
    async with (
        relayed(KUBECONFIG, tmp_path) as (relay, through),
        provider_of(tmp_path / "state", through) as provider,
    ):
        sandbox = await provider.create(SandboxSpec(image=IMAGE), "cut")
        execution = await sandbox.start(Command(argv=("sh", "-c", SLOW)))
        seen, cursor, pieces = b"", 0, 0
        while True:
            piece = await execution.read(Stream.STDOUT, after=cursor, wait=0.5)
            seen, cursor, pieces = seen + piece.data, piece.cursor, pieces + 1
            if piece.complete:
                break
            if pieces <= 5:
                relay.cut()
        assert seen == WHOLE
        assert (await execution.result()).exit_code == 3
        assert await sandbox.read("executions") == b"once\n"


async def test_a_file_is_written_whole_though_its_connection_is_cut_on_the_way(tmp_path: Path) -> None:
    data = bytes(range(256)) * 8_000
    async with (
        relayed(KUBECONFIG, tmp_path) as (relay, through),
        provider_of(tmp_path / "state", through) as provider,
    ):
        sandbox = await provider.create(SandboxSpec(image=IMAGE), "cut")
        relay.cut_uploads(after=1_000_000, times=3)
        await sandbox.write("large", data)
        assert relay.cuts == 3
        assert await sandbox.read("large") == data


async def test_a_command_with_input_starts_once_though_its_connection_is_cut_on_the_way(tmp_path: Path) -> None:
    data = b"x" * 2_000_000
    async with (
        relayed(KUBECONFIG, tmp_path) as (relay, through),
        provider_of(tmp_path / "state", through) as provider,
    ):
        sandbox = await provider.create(SandboxSpec(image=IMAGE), "cut")
        relay.cut_uploads(after=1_000_000, times=3)
        count = Command(argv=("sh", "-c", "echo once >> executions; wc -c"), stdin=data)
        result = await sandbox.run(count)
        assert relay.cuts == 3
        assert (result.exit_code, result.text.strip()) == (0, str(len(data)))
        assert await sandbox.read("executions") == b"once\n"
