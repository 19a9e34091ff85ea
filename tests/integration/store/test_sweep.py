"""What no row names goes after a day, and nothing else does: a wrong deletion here would be lost evidence."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from evalfleet.model.events import Message, Role
from evalfleet.model.ids import sha256
from evalfleet.model.record import AttemptEvidence
from evalfleet.store.artifacts import FileArtifacts
from evalfleet.store.blobs import reference
from evalfleet.store.lifecycle import delete_old_tries
from evalfleet.store.reader import Reader
from evalfleet.store.rows import EvidenceEncoder
from evalfleet.store.sweep import KEPT_SECONDS, Swept, sweep
from tests.integration.store.samples import batch, evidence, started
from tests.integration.store.sql import execute, rows

NOW = 2_000_000_000.0
ORPHAN = b"nobody's"


@pytest.fixture
def artifacts(tmp_path: Path) -> FileArtifacts:
    return FileArtifacts(str(tmp_path / "artifacts"))


@pytest.fixture
def there(tmp_path: Path) -> Path:
    return tmp_path / "artifacts" / "runs"


def age(folder: Path, seconds: float) -> None:
    """Let everything below `folder` have been written so long before NOW."""
    for path in folder.rglob("*"):
        os.utime(path, (NOW - seconds, NOW - seconds))


def large() -> AttemptEvidence:
    """An attempt whose record and pages are too large for their rows."""
    plain = evidence(101, 0)
    noise = tuple(Message(Role.ASSISTANT, os.urandom(400_000).hex()) for _ in range(6))
    told = replace(plain.turns[0], events=noise)
    return replace(plain, turns=(told,), diagnostics=tuple(os.urandom(400_000).hex() for _ in range(4)))


async def finished(url: str, artifacts: FileArtifacts, *attempts: AttemptEvidence, status: str = "completed") -> None:
    """The run r1, over, with these attempts."""
    run, recorder = await started(url)
    encoder = EvidenceEncoder(run.run_key, artifacts, "r1")
    for each in attempts:
        sealed = await encoder.encode(each)
        written = batch(run.run_key, evidence(sealed.attempt, sealed.case))
        await recorder.commit(replace(written, attempts=(replace(written.attempts[0], sealed=sealed),)))
    await recorder.finish(status, None)
    await recorder.close()


async def test_what_a_row_names_stays_whatever_its_age(database: str, artifacts: FileArtifacts, there: Path) -> None:
    whole = large()
    await finished(database, artifacts, whole)
    kept = {path.name for path in there.rglob("*") if path.is_file()}
    assert len(kept) > 1, "record and pages stand in the artifact store"
    await artifacts.put("r1", ORPHAN)
    age(there, 365 * 86_400)
    found = await sweep(database, artifacts, NOW)
    assert found == Swept(objects={"r1": 1}, size=len(ORPHAN), unknown=())
    assert {path.name for path in there.rglob("*") if path.is_file()} == kept
    reader = Reader(database, artifacts)
    detail = await reader.attempt_detail("r1", 101)
    assert (detail.turns, detail.diagnostics) == (whole.turns, whole.diagnostics)
    await reader.close()


@pytest.mark.parametrize(("seconds", "objects"), [(KEPT_SECONDS - 1, {}), (KEPT_SECONDS + 1, {"r1": 2})])
async def test_what_no_row_names_goes_after_a_day_with_writes_that_were_cut_short(
    database: str, artifacts: FileArtifacts, there: Path, seconds: float, objects: dict[str, int]
) -> None:
    await finished(database, artifacts)
    await artifacts.put("r1", ORPHAN)
    (there / "r1" / f".{'a' * 64}.7.0").write_bytes(b"half")
    age(there, seconds)
    assert (await sweep(database, artifacts, NOW)).objects == objects
    assert len(list((there / "r1").iterdir())) == 2 - sum(objects.values())


async def test_a_dry_run_says_the_same_and_deletes_nothing(
    database: str, artifacts: FileArtifacts, there: Path
) -> None:
    await finished(database, artifacts)
    digest = await artifacts.put("r1", ORPHAN)
    age(there, 2 * KEPT_SECONDS)
    assert await sweep(database, artifacts, NOW, dry_run=True) == Swept(objects={"r1": 1}, size=len(ORPHAN), unknown=())
    assert await artifacts.get("r1", digest) == ORPHAN
    assert (await sweep(database, artifacts, NOW)).objects == {"r1": 1}
    assert await sweep(database, artifacts, NOW) == Swept(objects={}, size=0, unknown=())


@pytest.mark.parametrize(
    ("change", "swept"),
    [
        ("beat = now() - interval '23 hours'", False),
        ("beat = now() - interval '25 hours'", True),
        ("beat = NULL, holder = NULL, status = 'queued'", False),
        ("beat = NULL, status = 'queued', created_at = now() - interval '25 hours'", True),
        ("status = 'cancelled'", True),
        ("status = 'limited'", True),
        ("status = 'completed', deleted_at = now()", False),
    ],
)
async def test_a_run_that_somebody_may_work_on_is_left_alone(
    database: str, artifacts: FileArtifacts, there: Path, change: str, swept: bool
) -> None:
    _, recorder = await started(database)
    await recorder.close()
    await execute(database, f"UPDATE runs SET {change}")
    await artifacts.put("r1", ORPHAN)
    age(there, 2 * KEPT_SECONDS)
    assert (await sweep(database, artifacts, NOW)).objects == ({"r1": 1} if swept else {})


async def test_a_run_of_another_record_store_is_named_and_left_alone(
    database: str, artifacts: FileArtifacts, there: Path
) -> None:
    await artifacts.put("another", ORPHAN)
    age(there, 365 * 86_400)
    assert await sweep(database, artifacts, NOW) == Swept(objects={}, size=0, unknown=("another",))
    assert await artifacts.get("another", sha256(ORPHAN)) == ORPHAN


async def test_every_column_that_may_hold_a_body_counts(database: str, artifacts: FileArtifacts, there: Path) -> None:
    """A table that comes later is not forgotten: what a column of bytes refers to stays."""
    await finished(database, artifacts)
    named = {table: await artifacts.put("r1", f"named by {table}".encode()) for table in ("later", "artifacts")}
    (key,) = (await rows(database, "SELECT run_key FROM runs"))[0]
    await execute(database, "CREATE TABLE later (run_key integer, size integer, body bytea)")
    await execute(
        database, f"INSERT INTO later VALUES ({key}, 1, '\\x{reference(named['later']).hex()}'), ({key}, 2, '')"
    )
    await execute(
        database,
        "INSERT INTO artifacts (size, run_key, sha256, media_type, name) "
        f"VALUES (1, {key}, '\\x{named['artifacts']}', 'text/plain', 'note')",
    )
    age(there, 2 * KEPT_SECONDS)
    assert (await sweep(database, artifacts, NOW)).objects == {}
    await execute(database, "DROP TABLE later")
    assert (await sweep(database, artifacts, NOW)).objects == {"r1": 1}


async def test_an_object_store_is_swept_as_well(database: str, tmp_path: Path) -> None:
    artifacts = FileArtifacts(f"memory://{tmp_path.name}/sweep")
    await finished(database, artifacts)
    await artifacts.put("r1", ORPHAN)
    assert (await sweep(database, artifacts, NOW)).objects == {"r1": 1}, "NOW is later than any test"
    assert [name async for name in artifacts.list_run("r1")] == []


async def test_a_dry_run_keeps_old_tries_too(database: str, artifacts: FileArtifacts) -> None:
    _, recorder = await started(database)
    await recorder.close()
    await execute(
        database, "UPDATE runs SET kind = 'try', created_at = now() - interval '8 days', holder = NULL, beat = NULL"
    )
    assert await delete_old_tries(database, artifacts, dry_run=True) == ["r1"]
    assert await delete_old_tries(database, artifacts) == ["r1"]
    assert await delete_old_tries(database, artifacts) == []
