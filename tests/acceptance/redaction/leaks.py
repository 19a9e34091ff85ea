"""Looks for texts in everything that a run leaves behind, compressed or not, in the usual encodings."""

from __future__ import annotations

import base64
import io
import json
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import zstandard
from psycopg import sql

from evalfleet.errors import StoreError
from evalfleet.store.blobs import Unpacker

_COLUMNS = """
SELECT table_name, column_name, data_type FROM information_schema.columns
WHERE table_schema = 'public' ORDER BY table_name, ordinal_position
"""


def forms(secret: str) -> set[str]:
    """The secret as it may stand in a text; of its base64 what does not depend on what is around it."""
    whole = {base64.b64encode(bytes(at) + secret.encode()).decode()[4:-8] for at in range(3)}
    escaped = {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1]}
    return {secret, quote(secret), quote(secret, safe="")} | escaped | {form for form in whole if len(form) > 10}


def stored(url: str) -> Iterator[tuple[str, str]]:
    """Each value of the database with where it stands; bodies as the JSON and the texts that they hold."""
    unpacker = Unpacker()
    with psycopg.connect(url) as connection:
        for table, column, kind in connection.execute(_COLUMNS).fetchall():
            cast = sql.SQL("") if kind == "bytea" else sql.SQL("::text")
            query = sql.SQL("SELECT {column}{cast} FROM {table} WHERE {column} IS NOT NULL").format(
                column=sql.Identifier(column), cast=cast, table=sql.Identifier(table)
            )
            for (value,) in connection.execute(query):
                place = f"{table}.{column}"
                if isinstance(value, bytes):
                    yield from ((place, text) for text in _of_bytes(value, unpacker))
                else:
                    yield place, str(value)


def files(folders: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """Each file's content; what is compressed also as what it holds."""
    unpacker = Unpacker()
    for folder in folders:
        for file in [folder] if folder.is_file() else sorted(folder.rglob("*")):
            if file.is_file() and not file.is_symlink():
                data = file.read_bytes()
                for text in _of_bytes(data, unpacker):
                    yield str(file.relative_to(folder.parent)), text


def _of_bytes(data: bytes, unpacker: Unpacker) -> Iterator[str]:
    yield data.decode("utf-8", "replace")
    try:
        value = unpacker.unpack(data)
    except StoreError:
        value = None
    yield from _texts(value)
    if data[:4] == b"\x28\xb5\x2f\xfd":
        yield zstandard.ZstdDecompressor().decompress(data, max_output_size=1 << 30).decode("utf-8", "replace")
    if data[:4] == b"PK\x03\x04":
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for name in archive.namelist():
                yield archive.read(name).decode("utf-8", "replace")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def found(secrets: dict[str, str], texts: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Which secrets stand where, by their names."""
    looked_for = [(name, form) for name, secret in secrets.items() for form in forms(secret)]
    return {(name, place) for place, text in texts for name, form in looked_for if form in text}
