"""What people changed of a run after it was planned: all of it kept, and the last word on each field found."""

from __future__ import annotations

from evalfleet.store.lifecycle import edited, note_edits
from tests.integration.store.samples import started
from tests.integration.store.sql import rows


async def test_the_last_word_on_each_field_holds_and_none_is_forgotten(database: str) -> None:
    _, recorder = await started(database)
    await recorder.close()
    assert await edited(database, "r1") == {}
    await note_edits(
        database, "r1", {"budget.usd": ("1", "20"), "limits.concurrency": (None, "8")}, who="ann", why="more"
    )
    await note_edits(database, "r1", {"budget.usd": ("20", "5")}, who="bob", why="less")
    assert await edited(database, "r1") == {"budget.usd": "5", "limits.concurrency": "8"}
    assert await edited(database, "another") == {}
    kept = await rows(database, "SELECT field, before, after, author FROM edits ORDER BY edit_key")
    assert kept == [
        ("budget.usd", "1", "20", "ann"), ("limits.concurrency", None, "8", "ann"), ("budget.usd", "20", "5", "bob"),
    ]  # fmt: skip
