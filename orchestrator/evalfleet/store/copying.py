"""Giving the runs that carry results of another run their own copies of that evidence, so that it can be deleted."""

from __future__ import annotations

from evalfleet.ports import ArtifactStore
from evalfleet.store.blobs import REFERENCE, referenced
from evalfleet.store.connection import Connection
from evalfleet.store.judged_sql import JUDGED
from evalfleet.store.rows import ASSERTION_FIELDS, JUDGE_CALL_FIELDS, PAGE_FIELDS, TOOL_CALL_FIELDS
from evalfleet.store.spans import SPAN_FIELDS

#: Copied attempts have ids below this one, which no coordinator grants: they hold the evidence of a carried case,
#: and neither their cost nor their number is this run's.
FIRST_OWN_ATTEMPT = 0

_CARRIED = """
SELECT c.run_key, c.id, array_agg(s.ordinal ORDER BY s.ordinal)
FROM settlements s JOIN runs c ON c.run_key = s.run_key
WHERE s.from_run = %(run)s AND s.from_attempt IS NOT NULL AND c.id <> %(run)s AND c.deleted_at IS NULL
GROUP BY 1, 2
"""

_PAIRS = """
FROM settlements s JOIN runs o ON o.id = s.from_run
JOIN {table} t ON t.run_key = o.run_key AND t.attempt = s.from_attempt
WHERE s.run_key = %(run_key)s AND s.from_run = %(run)s AND s.ordinal = ANY(%(ordinals)s)
"""

#: All gradings of an attempt come along: the carried verdict is by one of them.
_CHILDREN = {
    "assertions": (*ASSERTION_FIELDS, "grading"),
    "tool_calls": TOOL_CALL_FIELDS,
    "event_pages": PAGE_FIELDS,
    "judge_calls": (*JUDGE_CALL_FIELDS, "grading"),
    "span_batches": SPAN_FIELDS,
    "judgements": ("grading", "source", "basis", "reason", *JUDGED, "record"),
}

_ATTEMPTS = """
INSERT INTO attempts (attempt, run_key, ordinal, number, arm, settles, {columns})
SELECT -1 - s.ordinal, s.run_key, s.ordinal, 1, c.arm, false, {selected} {pairs}
"""

_TURN = """
UPDATE settlements SET from_run = %(into)s, from_attempt = -1 - ordinal
WHERE run_key = %(run_key)s AND from_run = %(run)s AND ordinal = ANY(%(ordinals)s)
"""

_REFERENCES = {
    "attempts": f"SELECT record FROM attempts WHERE run_key = %s AND get_byte(record, 0) = {REFERENCE[0]}",
    "event_pages": f"SELECT body FROM event_pages WHERE run_key = %s AND get_byte(body, 0) = {REFERENCE[0]}",
}


async def copy_evidence(connection: Connection, run: str, artifacts: ArtifactStore) -> None:
    """Copy what other runs carry from `run` into them, in one transaction per run, objects first."""
    cursor = await connection.execute(_CARRIED, {"run": run})
    for run_key, identifier, ordinals in await cursor.fetchall():
        given = {"run_key": run_key, "run": run, "into": identifier, "ordinals": ordinals}
        async with connection.transaction():
            for statement in await _statements(connection):
                await connection.execute(statement, given)
            await _copy_objects(connection, run_key, (run, identifier), artifacts)
            await connection.execute(_TURN, given)


async def _statements(connection: Connection) -> list[bytes]:
    own = {"attempt", "run_key", "ordinal", "number", "arm", "settles"}
    cursor = await connection.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = 'attempts'::regclass AND attnum > 0 AND NOT attisdropped"
    )
    columns = [str(name) for (name,) in await cursor.fetchall() if name not in own]
    joined = _PAIRS.format(table="attempts").replace(
        "WHERE", "JOIN cases c ON c.run_key = s.run_key AND c.ordinal = s.ordinal WHERE"
    )
    statements = [
        _ATTEMPTS.format(columns=", ".join(columns), selected=", ".join(f"t.{name}" for name in columns), pairs=joined)
    ]
    for table, fields in _CHILDREN.items():
        rest = [name for name in fields if name not in own]
        statements.append(
            f"INSERT INTO {table} (attempt, run_key, {', '.join(rest)}) "
            f"SELECT -1 - s.ordinal, s.run_key, {', '.join(f't.{name}' for name in rest)} {_PAIRS.format(table=table)}"
        )
    return [statement.encode() for statement in statements]


async def _copy_objects(connection: Connection, run_key: int, runs: tuple[str, str], artifacts: ArtifactStore) -> None:
    source, target = runs
    held = {digest async for digest in artifacts.list_run(target)}
    for statement in _REFERENCES.values():
        for (body,) in await (await connection.execute(statement.encode(), (run_key,))).fetchall():
            digest = referenced(body)
            if digest is not None and digest not in held:
                held.add(await artifacts.put(target, await artifacts.get(source, digest)))
