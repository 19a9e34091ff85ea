"""The artifact store in a directory and in an object store."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from evalfleet.errors import ConfigurationError, StoreError
from evalfleet.model.ids import sha256
from evalfleet.store.artifacts import FileArtifacts

BODY = b"some body \x00\xff"


@pytest.fixture(params=["directory", "file URL", "object store"])
def artifacts(request: pytest.FixtureRequest, tmp_path: Path) -> FileArtifacts:
    base = {
        "directory": str(tmp_path / "store"),
        "file URL": f"file://{tmp_path}/store",
        "object store": f"memory://{tmp_path.name}/store",
    }
    return FileArtifacts(base[request.param])


async def listed(artifacts: FileArtifacts, run: str) -> list[str]:
    return [digest async for digest in artifacts.list_run(run)]


async def test_a_body_is_kept_once_under_its_hash(artifacts: FileArtifacts) -> None:
    assert await listed(artifacts, "r1") == []
    assert await artifacts.put("r1", BODY) == await artifacts.put("r1", BODY) == sha256(BODY)
    assert await artifacts.get("r1", sha256(BODY)) == BODY
    assert await listed(artifacts, "r1") == [sha256(BODY)]
    assert await artifacts.put("r1", b"") == sha256(b"")
    assert await artifacts.get("r1", sha256(b"")) == b""


async def test_runs_share_nothing_and_are_deleted_whole(artifacts: FileArtifacts) -> None:
    for run in ("r1", "r2"):
        await artifacts.put(run, BODY)
    await artifacts.delete_run("r1")
    await artifacts.delete_run("r1")
    assert await listed(artifacts, "r1") == []
    assert await artifacts.get("r2", sha256(BODY)) == BODY
    with pytest.raises(StoreError, match="it is not there"):
        await artifacts.get("r1", sha256(BODY))


async def test_many_may_put_the_same_body_at_once(artifacts: FileArtifacts) -> None:
    assert len(set(await asyncio.gather(*(artifacts.put("r1", BODY * 10_000) for _ in range(20))))) == 1
    assert len(await listed(artifacts, "r1")) == 1


async def test_a_damaged_body_is_refused(tmp_path: Path) -> None:
    artifacts = FileArtifacts(str(tmp_path))
    digest = await artifacts.put("r1", BODY)
    (tmp_path / "runs" / "r1" / digest).write_bytes(BODY + b"!")
    with pytest.raises(StoreError, match="is damaged"):
        await artifacts.get("r1", digest)


async def test_a_write_that_was_cut_short_is_no_object(tmp_path: Path) -> None:
    artifacts = FileArtifacts(str(tmp_path))
    await artifacts.put("r1", BODY)
    (tmp_path / "runs" / "r1" / f".{'a' * 64}.7.0").write_bytes(b"half")
    assert await listed(artifacts, "r1") == [sha256(BODY)]


FUTURE = 9e12


async def test_what_is_old_is_listed_with_its_size_and_discarded(artifacts: FileArtifacts) -> None:
    assert (await artifacts.runs(), await artifacts.old("r1", FUTURE)) == ([], {})
    for run, body in (("r1", BODY), ("r1", b"more"), ("r2", BODY)):
        await artifacts.put(run, body)
    assert await artifacts.runs() == ["r1", "r2"]
    assert await artifacts.old("r1", 0.0) == {}
    assert await artifacts.old("r1", FUTURE) == {sha256(BODY): len(BODY), sha256(b"more"): 4}
    assert await artifacts.discard("r1", [sha256(BODY)], 0.0) == []
    assert await artifacts.discard("r1", [sha256(BODY), "a" * 64], FUTURE) == [sha256(BODY)]
    assert await listed(artifacts, "r1") == [sha256(b"more")]
    assert await listed(artifacts, "r2") == [sha256(BODY)]


async def test_a_write_that_was_cut_short_grows_old_as_well(tmp_path: Path) -> None:
    artifacts = FileArtifacts(str(tmp_path))
    await artifacts.put("r1", BODY)
    cut = tmp_path / "runs" / "r1" / f".{'a' * 64}.7.0"
    cut.write_bytes(b"half")
    os.utime(cut, (1e9, 1e9))
    assert await artifacts.old("r1", 1e9 + 1) == {cut.name: 4}
    assert await artifacts.discard("r1", [cut.name], 1e9 + 1) == [cut.name]
    assert not cut.exists()


async def test_what_is_put_again_is_young_again(tmp_path: Path) -> None:
    artifacts = FileArtifacts(str(tmp_path))
    digest = await artifacts.put("r1", BODY)
    os.utime(tmp_path / "runs" / "r1" / digest, (1e9, 1e9))
    assert await artifacts.old("r1", 1e9 + 1) == {digest: len(BODY)}
    await artifacts.put("r1", BODY)
    assert await artifacts.old("r1", 1e9 + 1) == {}
    assert await artifacts.discard("r1", [digest], 1e9 + 1) == []


@pytest.mark.parametrize("run", ["", ".", "..", "a/b", "../r1"])
async def test_nothing_leaves_its_prefix(tmp_path: Path, run: str) -> None:
    artifacts = FileArtifacts(str(tmp_path / "store"))
    with pytest.raises(ValueError, match="no run id"):
        await artifacts.put(run, BODY)
    with pytest.raises(ValueError, match="no run id"):
        await artifacts.delete_run(run)
    with pytest.raises(ValueError, match="no SHA-256"):
        await artifacts.get("r1", "../../secret")


async def test_a_place_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file")
    with pytest.raises(StoreError, match=f"artifact store {tmp_path}/store"):
        await FileArtifacts(str(tmp_path / "store")).put("r1", BODY)
    with pytest.raises(ConfigurationError, match="EVALFLEET_ARTIFACTS=nosuch://x can't be used"):
        FileArtifacts("nosuch://x")
