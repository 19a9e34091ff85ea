"""Writes the dump that `test_dump` reads: `python -m tests.integration.store.make_dump`, once per migration."""

from __future__ import annotations

import asyncio
import gzip
import subprocess
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from evalfleet.model.events import Message, OperationStarted, Role
from evalfleet.settings import Settings
from evalfleet.store.embedded import embedded
from evalfleet.store.sandboxes import SandboxRows
from evalfleet.store.schema import HEAD, ensure_schema
from evalfleet.store.server import binaries
from evalfleet.store.suites import write_suite_results
from tests.integration.store.samples import batch, errored, evidence, started
from tests.integration.store.test_judge_calls import ANSWERED
from tests.integration.store.test_sandboxes import ENTRY
from tests.integration.store.test_suites import RESULTS, SUITE

DATA = Path(__file__).parents[2] / "data"
WEIRD = "nul \0, lone \ud800, emoji \U0001f600"
FIRST = 1 << 40


async def some_run(url: str) -> None:
    """A run at work: an attempt with all that is hard to store, an errored one, one with paged events; a sandbox."""
    run, recorder = await started(url, 4, suites=(SUITE,))
    odd, long = evidence(FIRST + 1, 0), evidence(FIRST + 3, 2)
    events = (Message(Role.USER, WEIRD), OperationStarted("1", "search", {"n": 2**70}))
    data = [float("nan"), float("inf"), None]
    odd = replace(odd, turns=(replace(odd.turns[0], events=events, data=data),))
    odd = replace(odd, judge_calls=(replace(ANSWERED, reply=WEIRD),))
    many = tuple(Message(Role.USER, f"{n} " * 200) for n in range(300))
    long = replace(long, turns=(replace(long.turns[0], events=many),))
    await recorder.commit(batch(run.run_key, odd, errored(FIRST + 2, 1), long))
    await recorder.close()
    await write_suite_results(url, run.id, RESULTS)
    ledger = SandboxRows(url, "here", 11)
    await ledger.announce(ENTRY)
    await ledger.close()


async def main() -> None:
    with TemporaryDirectory() as state:
        async with embedded(Settings(state_dir=Path(state), artifacts="")) as url:
            await ensure_schema(url)
            await some_run(url)
            argv = [str(binaries() / "pg_dump"), "--inserts", "--no-owner", "--no-privileges", "--no-comments", url]
            done = await asyncio.to_thread(subprocess.run, argv, capture_output=True, check=True)
    lines = [line for line in done.stdout.decode().splitlines() if line and not line.startswith(("--", "\\"))]
    text = "\n".join(line for line in lines if "search_path" not in line and not line.startswith("SET "))
    (DATA / f"record_store_{HEAD}.sql.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    asyncio.run(main())
