"""A run in one file: exact, verified, and as good as the original."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from evalfleet.errors import ConfigurationError
from evalfleet.model.events import Message, Role
from evalfleet.model.record import CommitBatch, Intent, IntentKind
from evalfleet.model.verdict import CaseStatus, RunStatus, Settlement, Verdict
from evalfleet.store.artifacts import FileArtifacts
from evalfleet.store.creation import create_run
from evalfleet.store.lifecycle import reopen
from evalfleet.store.planned import Presettled
from evalfleet.store.reader import Reader
from evalfleet.store.rows import EvidenceEncoder
from evalfleet.store.transfer import export_run, import_run
from tests.integration.store.samples import a_case, a_run, batch, claimed, errored, evidence, resumed
from tests.integration.store.sql import execute, one, rows

WEIRD = "nul \0, lone \ud800, nan \U0001f600"


async def some_run(url: str, artifacts: FileArtifacts) -> None:
    """A run in progress with everything in it: weird text, pages in the artifact store, carried and reopened cases."""
    carried = Presettled(how=Settlement.CARRIED, verdict=Verdict.PASSED, from_run="old", from_attempt=5)
    cases = [(a_case(n, tags=("t",), variants={"v": "x"}), carried if n == 4 else None) for n in range(6)]
    run_key, recorder = await claimed(url, cases)
    noise = "".join(chr(0x4E00 + (n * n * 2654435761 >> 7) % 20000) for n in range(600_000))
    base = evidence(101, 0, message=WEIRD, earned=float("inf"))
    odd: list[object] = [10**300, float("nan"), None, {}, {"metadata": None}, {"metadata": {}}]
    large = replace(base, turns=(replace(base.turns[0], events=(Message(Role.USER, noise + WEIRD),), data=odd),))
    sealed = await EvidenceEncoder(run_key, artifacts, "r1").encode(large)
    first = batch(run_key, errored(102, 1), evidence(103, 2, verdict=Verdict.FAILED))
    large_write = replace(first.attempts[0], sealed=sealed)
    await recorder.commit(CommitBatch((large_write, *first.attempts)))
    await recorder.finish("limited", "budget")
    await recorder.close()
    await reopen(url, "r1", (CaseStatus.ERRORED, CaseStatus.FAILED), who="ann", why="outage")
    again = await resumed(url)
    null = evidence(104, 1)  # an answer that is null, which the others' absent one is not
    await again.commit(batch(run_key, replace(null, turns=(replace(null.turns[0], data=None),))))
    await again.commit(CommitBatch(intents=(Intent(105, 5, "w1", IntentKind.EXTERNAL),)))
    await again.beat({"settled": 3})
    await again.close()


async def seen(url: str, artifacts: FileArtifacts) -> list[object]:
    """Everything a reader can see of the run."""
    reader = Reader(url, artifacts)
    info = replace(await reader.find_run("r1"), holder=None, interrupted=True)
    found: list[object] = [info, (await reader.aggregate("r1")).arms]
    for case in await reader.cases("r1"):
        found.append(replace(case, status=CaseStatus.PENDING) if case.status is CaseStatus.RUNNING else case)
        for attempt in await reader.attempts("r1", case.ordinal):
            found.append(await reader.attempt_detail("r1", attempt.attempt))
    await reader.close()
    return found


@pytest.fixture
def here(tmp_path: Path) -> FileArtifacts:
    return FileArtifacts(str(tmp_path / "here"))


@pytest.fixture
def there(tmp_path: Path) -> FileArtifacts:
    return FileArtifacts(str(tmp_path / "there"))


async def exported(url: str, artifacts: FileArtifacts, path: Path) -> Path:
    await some_run(url, artifacts)
    await export_run(url, "r1", path, artifacts)
    return path


async def test_a_run_reads_the_same_in_another_store_and_can_be_resumed_there(
    database: str, other_database: str, here: FileArtifacts, there: FileArtifacts, tmp_path: Path
) -> None:
    path = await exported(database, here, tmp_path / "r1.zip")
    await create_run(other_database, a_run(id="another"))  # keys differ between the two
    assert await import_run(other_database, path, there) == "r1"
    assert repr(await seen(other_database, there)) == repr(await seen(database, here))
    for table in ("settlements", "assertions", "reopenings", "case_blocks", "intents"):
        where = "WHERE run_key = (SELECT run_key FROM runs WHERE id = 'r1')"
        columns = await one(
            database,
            "SELECT string_agg(attname, ', ' ORDER BY attname) FROM pg_attribute WHERE attnum > 0 AND attname <> "
            f"'run_key' AND attrelid = '{table}'::regclass",
        )
        query = f"SELECT {columns[0]} FROM {table} {where}"
        assert sorted(map(repr, await rows(other_database, query))) == sorted(map(repr, await rows(database, query)))
    reader = Reader(other_database, there)
    assert (await reader.find_run("r1")).status is RunStatus.RUNNING
    assert (await reader.find_run("r1")).interrupted, "nobody holds it here"
    await reader.close()
    recorder = await resumed(other_database)
    assert recorder.epoch == 3
    assert [pending.case.ordinal for pending in await recorder.page(-1, 9)] == [2, 3, 5]
    await recorder.close()


async def test_a_run_is_imported_once(database: str, here: FileArtifacts, tmp_path: Path) -> None:
    path = await exported(database, here, tmp_path / "r1.zip")
    with pytest.raises(ConfigurationError, match="already holds run r1"):
        await import_run(database, path, here)


def rewritten(change: Callable[[str, bytes], bytes | None]) -> Callable[[Path], None]:
    """Write the archive again with members changed (or left out)."""

    def work(path: Path) -> None:
        with zipfile.ZipFile(path) as file:
            members = {name: file.read(name) for name in file.namelist()}
        with zipfile.ZipFile(path, "w") as file:
            for name, data in members.items():
                changed = change(name, data)
                if changed is not None:
                    file.writestr(name, changed)

    return work


def flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def other_run(name: str, data: bytes) -> bytes:
    return json.dumps({**json.loads(data), "run": "r9"}).encode() if name == "manifest.json" else data


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-100]),
        lambda path: path.write_bytes(path.read_bytes()[:500]),
        lambda path: path.write_bytes(flip(data := path.read_bytes(), data.index(b"tables/runs.copy") + 100)),
        lambda path: path.write_bytes(b"not a zip at all"),
        lambda path: path.write_bytes(b""),
        rewritten(lambda name, data: flip(data, 40) if name == "tables/cases.copy" else data),
        rewritten(lambda name, data: None if name == "tables/assertions.copy" else data),
        rewritten(lambda name, data: None if name == "manifest.json" else data),
        rewritten(other_run),
        rewritten(lambda name, data: b"{}" if name == "manifest.json" else data),
        rewritten(lambda name, data: b"[]" if name == "manifest.json" else data),
        rewritten(lambda name, data: flip(data, 3) if name.startswith("artifacts/") else data),
    ],
    ids=[
        "end lost", "most lost", "bit flipped", "foreign", "empty", "rows changed", "table lost", "manifest lost",
        "other run", "empty manifest", "manifest no object", "artifact changed",
    ],
)  # fmt: skip
async def test_a_damaged_file_is_refused_and_leaves_nothing(
    database: str,
    other_database: str,
    here: FileArtifacts,
    there: FileArtifacts,
    tmp_path: Path,
    damage: Callable[[Path], object],
) -> None:
    path = tmp_path / "r1.zip"
    await create_run(database, a_run())
    await here.put("r1", b"a body")
    await export_run(database, "r1", path, here)
    damage(path)
    with pytest.raises(ConfigurationError, match=r"r1\.zip is damaged or no exported run: "):
        await import_run(other_database, path, there)
    assert await rows(other_database, "SELECT id FROM runs") == []


async def test_a_file_that_is_not_there_and_a_place_that_cannot_be_written(
    database: str, here: FileArtifacts, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match="there is no such file"):
        await import_run(database, tmp_path / "absent.zip", here)
    await create_run(database, a_run())
    with pytest.raises(ConfigurationError, match="cannot write"):
        await export_run(database, "r1", tmp_path / "no" / "r1.zip", here)
    with pytest.raises(ConfigurationError, match="there is no run r2"):
        await export_run(database, "r2", tmp_path / "r2.zip", here)
    assert list(tmp_path.glob("*.zip*")) == list(tmp_path.glob(".*.part")) == []


async def test_an_export_replaces_the_file_only_when_it_is_whole(
    database: str, here: FileArtifacts, tmp_path: Path
) -> None:
    path = await exported(database, here, tmp_path / "r1.zip")
    before = path.read_bytes()
    await here.delete_run("r1")
    await execute(database, "DROP TABLE edits")
    with pytest.raises(Exception, match="edits"):
        await export_run(database, "r1", path, here)
    assert path.read_bytes() == before
    assert list(tmp_path.glob(".*")) == []
