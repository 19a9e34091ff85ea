"""Creating a run: its frozen cases are streamed in by COPY, in one transaction."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Mapping
from typing import Any

import psycopg
from psycopg import sql

from evalfleet.errors import DefinitionError, Problem, StoreError
from evalfleet.model.case import Case
from evalfleet.model.verdict import Settlement, Verdict
from evalfleet.store.binary import HEADER, NULL, TRAILER, big, boolean, double, label, plain, raw
from evalfleet.store.blobs import Packer, to_json
from evalfleet.store.connection import Connection, connect
from evalfleet.store.planned import CreatedRun, NewRun, PlannedDataset, Presettled, Totals
from evalfleet.store.write_sql import BLOCK_BITS

_CASE_FIELDS = (
    "run_key", "ordinal", "repetition", "style", "arm", "external", "content", "fingerprint", "eval_id", "definition",
    "row", "variants", "tags",
)  # fmt: skip
_SETTLEMENT_FIELDS = (
    "run_key", "ordinal", "how", "verdict", "kind", "score_state", "earned", "code", "from_run", "from_attempt",
    "from_grading", "commit_seq",
)  # fmt: skip
_CHUNK = 1 << 18
_CASE_HEAD = struct.Struct(">h" + "ii" * 3)
_SETTLEMENT_HEAD = struct.Struct(">h" + "ii" * 2)
_ARRAY_HEAD = struct.Struct(">iiIii")
_TEXT_OID = 25

_INSERT_RUN = """
INSERT INTO runs (id, kind, name, project, digest, experiment, lock, derived_from, idempotency_sha256)
VALUES (%(id)s, %(kind)s, %(name)s, %(project)s, %(digest)s, %(experiment)s, %(lock)s, %(derived_from)s, %(key)s)
ON CONFLICT (idempotency_sha256) DO NOTHING
RETURNING run_key
"""


async def create_run(store: Connection | str, run: NewRun) -> CreatedRun:
    """Write the run and everything that is planned of it, or find the one that the same request has made.

    `store` is a connection in autocommit mode, or a URL. Raises DefinitionError when an id or a text can't be
    stored, StoreError when the store can't be used or the run's id is taken.
    """
    if isinstance(store, str):
        async with await connect(store, autocommit=True) as connection:
            return await create_run(connection, run)
    try:
        async with store.transaction():
            return await _create(store, run)
    except psycopg.errors.UniqueViolation as error:
        raise StoreError(f"the record store already holds a run {run.id}, or a case of it twice: {error}") from error
    except psycopg.DataError as error:
        problem = Problem("UNSTORABLE", f"the plan holds a text that Postgres can't keep: {error}")
        raise DefinitionError("UNSTORABLE", [problem]) from error
    except psycopg.OperationalError as error:
        raise StoreError(f"the run could not be written: {error}") from error


async def _create(connection: Connection, run: NewRun) -> CreatedRun:
    key = None if run.idempotency_key is None else hashlib.sha256(run.idempotency_key.encode()).digest()
    given: dict[str, Any] = {
        "id": run.id,
        "kind": run.kind.value,
        "name": run.name,
        "project": run.project,
        "digest": run.digest,
        "experiment": json.dumps(dict(run.experiment)),
        "lock": json.dumps(dict(run.lock)),
        "derived_from": run.derived_from,
        "key": key,
    }
    row = await (await connection.execute(_INSERT_RUN, given)).fetchone()
    if row is None:
        same = await connection.execute("SELECT id, run_key FROM runs WHERE idempotency_sha256 = %s", (key,))
        found = await same.fetchone()
        if found is None:
            raise StoreError(f"run {run.id} was made and deleted by the same request")
        return CreatedRun(found[0], found[1], created=False)
    run_key = int(row[0])
    totals = await _write_cases(connection, run_key, run)
    await _write_small(connection, run_key, run, totals)
    blocks = list(totals.blocks.items())
    async with connection.cursor() as cursor:
        await cursor.executemany(
            "INSERT INTO case_blocks (run_key, block, unsettled) VALUES (%s, %s, %s)",
            [(run_key, block, unsettled) for block, unsettled in blocks],
        )
    update = "UPDATE runs SET total = %s, failures = %s WHERE run_key = %s"
    await connection.execute(update, (totals.cases, totals.errored, run_key))
    return CreatedRun(run.id, run_key, created=True)


async def _write_small(connection: Connection, run_key: int, run: NewRun, totals: Totals) -> None:
    async with connection.cursor() as cursor:
        await cursor.executemany(
            "INSERT INTO arms (run_key, arm, name, settings, cases, style, repeated)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s)",
            [
                (run_key, place, name, json.dumps(dict(told)), *totals.of(name))
                for place, (name, told) in enumerate(run.arms.items())
            ],
        )
        await cursor.executemany(
            "INSERT INTO datasets (run_key, position, definition, uri, revision, sha256, rows)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s)",
            [(run_key, place, *_dataset(dataset)) for place, dataset in enumerate(run.datasets)],
        )
        await cursor.executemany(
            "INSERT INTO suites (run_key, position, suite, document, criteria) VALUES (%s, %s, %s, %s, %s)",
            [
                (run_key, place, suite.id, _packed(suite.document), len(suite.document.get("assertions") or ()))
                for place, suite in enumerate(run.suites)
            ],
        )


def _packed(document: Mapping[str, Any]) -> bytes:
    return Packer().pack(to_json(dict(document)))


def _dataset(dataset: PlannedDataset) -> tuple[Any, ...]:
    digest = bytes.fromhex(dataset.sha256)
    return dataset.definition, dataset.uri, dataset.revision, digest, dataset.rows


async def _write_cases(connection: Connection, run_key: int, run: NewRun) -> Totals:
    totals = Totals()
    arms = {name: place for place, name in enumerate(run.arms)}
    decided: list[bytes] = []
    async with connection.cursor() as cursor:
        async with cursor.copy(_copy("cases", _CASE_FIELDS)) as copy:
            held = bytearray(HEADER)
            for case, presettled in run.cases:
                _count(totals, case, presettled, run.id)
                held += _case(run_key, case, arms)
                if presettled is not None:
                    decided.append(_settlement(run_key, case.ordinal, presettled))
                if len(held) > _CHUNK:
                    await copy.write(bytes(held))
                    held.clear()
            await copy.write(bytes(held + TRAILER))
        if decided:
            async with cursor.copy(_copy("settlements", _SETTLEMENT_FIELDS)) as copy:
                await copy.write(b"".join((HEADER, *decided, TRAILER)))
    return totals


def _copy(table: str, fields: Iterable[str]) -> sql.Composed:
    names = sql.SQL(", ").join(map(sql.Identifier, fields))
    return sql.SQL("COPY {} ({}) FROM STDIN (FORMAT BINARY)").format(sql.Identifier(table), names)


def _count(totals: Totals, case: Case, presettled: Presettled | None, run_id: str) -> None:
    if case.ordinal != totals.cases:
        raise ValueError(f"run {run_id}: case {case.ordinal} stands where ordinal {totals.cases} was due")
    totals.cases += 1
    totals.by_arm[case.arm] += 1
    totals.styles.setdefault(case.arm, case.style)
    if case.repetition or case.variants:
        totals.repeated.add(case.arm)
    block = case.ordinal >> BLOCK_BITS
    totals.blocks[block] = totals.blocks.get(block, 0) + (presettled is None)
    totals.errored += presettled is not None and presettled.verdict is Verdict.ERRORED


def _case(run_key: int, case: Case, arms: Mapping[str, int]) -> bytes:
    """One COPY tuple. Raises ValueError when a digest is no SHA-256 in hexadecimal, KeyError for an unknown arm."""
    return b"".join(
        (
            _CASE_HEAD.pack(len(_CASE_FIELDS), 4, run_key, 4, case.ordinal, 4, case.repetition),
            label(case.style),
            struct.pack(">ih", 2, arms[case.arm]),
            boolean(case.external),
            raw(bytes.fromhex(case.content)),
            NULL if case.fingerprint is None else raw(bytes.fromhex(case.fingerprint)),
            plain(case.eval_id),
            plain(case.definition),
            raw(case.row),
            plain(json.dumps(dict(case.variants))) if case.variants else NULL,
            raw(_texts(case.tags)) if case.tags else NULL,
        )
    )


def _texts(values: tuple[str, ...]) -> bytes:
    """A one-dimensional text array in its binary form."""
    return _ARRAY_HEAD.pack(1, 0, _TEXT_OID, len(values), 1) + b"".join(map(plain, values))


def _settlement(run_key: int, ordinal: int, decided: Presettled) -> bytes:
    return b"".join(
        (
            _SETTLEMENT_HEAD.pack(len(_SETTLEMENT_FIELDS), 4, run_key, 4, ordinal),
            label(decided.how),
            label(decided.verdict),
            label(decided.kind),
            label(decided.score_state),
            NULL if decided.earned is None else double(decided.earned),
            plain(decided.code),
            plain(decided.from_run),
            NULL if decided.from_attempt is None else big(decided.from_attempt),
            struct.pack(">ih", 2, decided.from_grading),
            NULL if decided.how is Settlement.CARRIED else big(0),
        )
    )
