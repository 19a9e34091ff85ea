"""A database that an earlier version wrote can be opened, migrated and read, for ever.

The dumps under `tests/data` are written by `make_dump`; a new migration leaves them alone and adds one of its own.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from evalfleet.errors import FailureKind
from evalfleet.model.events import Message, OperationStarted, Role
from evalfleet.model.verdict import RunStatus, Verdict
from evalfleet.store.reader import Reader
from evalfleet.store.sandboxes import SandboxRows
from evalfleet.store.schema import HEAD, ensure_schema
from evalfleet.store.suites import suite_documents, suite_results
from evalfleet.store.writer import PostgresRecorder
from tests.integration.store.make_dump import DATA, WEIRD
from tests.integration.store.samples import ME, batch, evidence, ignore
from tests.integration.store.sql import execute, one
from tests.integration.store.test_sandboxes import ENTRY
from tests.integration.store.test_suites import RESULTS, SUITE
from tests.postgres import database_url

DUMPS = sorted(DATA.glob("record_store_*.sql.gz"))


@pytest.mark.parametrize("dump", DUMPS, ids=lambda path: path.name.split(".")[0])
async def test_a_stored_run_is_read_after_every_migration(postgres: str, dump: Path) -> None:
    name = f"t_{dump.name.split('.')[0]}"
    await execute(postgres, f"CREATE DATABASE {name}")
    url = database_url(postgres, name)
    await execute(url, gzip.decompress(dump.read_bytes()).decode())
    await ensure_schema(url)
    assert await one(url, "SELECT version_num FROM alembic_version") == (HEAD,)
    # 0.002 is what the one judge call cost that the newer of these runs made
    asked = dump.name > "record_store_0003"
    assert await one(url, "SELECT judge_usd, unknown_judge_cost FROM runs") == (0.002 if asked else 0.0, 0)
    reader = Reader(url)
    info = await reader.find_run("r1")
    assert (info.status, info.total, info.experiment) == (RunStatus.RUNNING, 4, {"name": "sweep"})
    assert [(v.verdict, v.kind) for v in await reader.cases("r1")] == [
        (Verdict.PASSED, None),
        (Verdict.ERRORED, FailureKind.PROVIDER),
        (Verdict.PASSED, None),
        (None, None),
    ]
    (attempt,) = await reader.attempts("r1", 0)
    detail = await reader.attempt_detail("r1", attempt.attempt)
    turn = detail.turns[0]
    assert [call.reply for call in detail.judge_calls] == ([WEIRD] if asked else [])
    assert turn.events == (Message(Role.USER, WEIRD), OperationStarted("1", "search", {"n": 2**70}))
    assert repr(turn.data) == "[nan, inf, None]"
    paged = (await reader.attempts("r1", 2))[0].attempt
    assert (await reader.events("r1", paged, 149, 149)) == [(149, Message(Role.USER, "149 " * 200))]
    await reader.close()
    recorder = PostgresRecorder(url, "r1", ignore)
    claim = await recorder.claim(ME, takeover=False)
    assert (await recorder.commit(batch(claim.run_key, evidence(9 << 40, 3)))).settled
    await recorder.close()
    ledger = SandboxRows(url, "here", 12)
    assert [row.owner for row in await ledger.known(())] == ([ENTRY.owner] if dump.name > "record_store_0008" else [])
    await ledger.close()
    planned = dump.name > "record_store_0009"
    assert await suite_documents(url, "r1") == ({SUITE.id: SUITE.document} if planned else {})
    assert await suite_results(url, "r1") == (RESULTS if planned else {})
    await execute(postgres, f"DROP DATABASE {name} WITH (FORCE)")


def test_the_newest_schema_has_a_dump() -> None:
    assert DUMPS[-1].name == f"record_store_{HEAD}.sql.gz"
