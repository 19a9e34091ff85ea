"""The state of a case store as a value, and the one canonical form by which states are compared. PURE.

A state holds records by collection and primary key. Each record is kept as its exact canonical JSON text: that is what
stores write, and what a snapshot's id is the digest of. The *canonical* form of a record leaves out the fields that are
declared volatile and sorts the lists that are declared unordered; equality, `digest` and the diff use nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, cast

from evalfleet.model.canonical import canonical_bytes, digest, parse_exact

#: The collection of what the harness keeps about an attempt: the clock, id counters, the responder's cursor.
HARNESS = "harness"

#: How deep a record may nest, and how many characters its canonical text may have.
DEPTH_LIMIT, SIZE_LIMIT = 32, 1_000_000

Record: TypeAlias = Mapping[str, Any]


class InvalidRecord(ValueError):
    """A record that the store can't hold; the message says where and why, and is fit for an agent to read."""


@dataclass(frozen=True, slots=True)
class Collection:
    """Records of one kind. `key` names the field with the primary key, a text.

    `unordered` are dotted paths of lists whose order means nothing, `ignored` of volatile fields that no comparison
    sees; paths go through lists (`lines.tags`).
    """

    name: str
    key: str = "id"
    unordered: frozenset[str] = frozenset()
    ignored: frozenset[str] = frozenset()

    def key_of(self, record: Record) -> str:
        """The primary key of a record. Raises InvalidRecord without a printable one."""
        key = record.get(self.key)
        if not isinstance(key, str) or not key or not key.isprintable():
            raise InvalidRecord(f"{self.name}: a record needs its key {self.key!r}, a printable text, not {key!r:.60}")
        return key

    def canonical(self, record: Record) -> dict[str, Any]:
        """The record without volatile fields and with unordered lists sorted."""
        return cast("dict[str, Any]", self._canonical(dict(record), ""))

    def _canonical(self, value: Any, path: str) -> Any:
        if isinstance(value, dict):
            inner = cast("dict[str, Any]", value)
            below = {name: f"{path}.{name}" if path else name for name in inner}
            return {name: self._canonical(inner[name], at) for name, at in below.items() if at not in self.ignored}
        if isinstance(value, list):
            items = [self._canonical(item, path) for item in cast("list[Any]", value)]
            return sorted(items, key=canonical_bytes) if path in self.unordered else items
        return value


class RowKey(NamedTuple):
    """Where a record stands."""

    collection: str
    key: str


@dataclass(frozen=True)
class CaseState:
    """All records of a case store at one moment. `rows` holds their exact canonical JSON.

    Without slots: its digests are computed once.
    """

    schema: Mapping[str, Collection]
    rows: Mapping[RowKey, str] = field(default_factory=dict[RowKey, str])

    @cached_property
    def snapshot_id(self) -> str:
        """The digest of the exact content, volatile fields included."""
        return digest([[row.collection, row.key, self.rows[row]] for row in sorted(self.rows)])

    @cached_property
    def digest(self) -> str:
        """The digest of the canonical content: equal exactly when the diff of two states is empty."""
        return digest([[row.collection, row.key, self.canonical(row)] for row in sorted(self.rows)])

    def record(self, collection: str, key: str) -> dict[str, Any] | None:
        """A copy of a record, None without one."""
        text = self.rows.get(RowKey(collection, key))
        return None if text is None else parse_exact(text)

    def records(self, collection: str) -> list[dict[str, Any]]:
        """Copies of a collection's records by key."""
        return [parse_exact(self.rows[row]) for row in sorted(self.rows) if row.collection == collection]

    def canonical(self, row: RowKey) -> dict[str, Any]:
        """The canonical form of the record at `row`."""
        return self.schema[row.collection].canonical(parse_exact(self.rows[row]))

    def changed(self, writes: Iterable[tuple[RowKey, str | None]]) -> CaseState:
        """The state after `writes`, each a row with its new text, None to remove it."""
        rows = dict(self.rows)
        for row, text in writes:
            if text is None:
                rows.pop(row, None)
            else:
                rows[row] = text
        return CaseState(self.schema, MappingProxyType(rows))

    def document(self) -> dict[str, list[dict[str, Any]]]:
        """The state as JSON: each collection's records by key."""
        return {name: self.records(name) for name in sorted(self.schema)}


def schema_of(collections: Iterable[Collection]) -> Mapping[str, Collection]:
    """Collections by name, with the harness's own. Raises ValueError for a name that is none, or is given twice."""
    schema = {HARNESS: Collection(HARNESS)}
    for collection in collections:
        if not collection.name.isidentifier():
            raise ValueError(f"a collection is named by a word, not {collection.name!r}")
        if collection.name in schema:
            raise ValueError(f"the collection {collection.name!r} is declared twice, or is the harness's own")
        schema[collection.name] = collection
    return MappingProxyType(schema)


def read_state(schema: Mapping[str, Collection], document: Mapping[str, Any]) -> CaseState:
    """The state that a document `{collection: [record, …]}` describes. Raises InvalidRecord saying what is wrong."""
    rows: dict[RowKey, str] = {}
    for name, records in document.items():
        for row, text in _rows(schema, name, records):
            if row in rows:
                raise InvalidRecord(f"{name}: two records have the key {row.key!r}")
            rows[row] = text
    return CaseState(schema, MappingProxyType(rows))


def _rows(schema: Mapping[str, Collection], name: str, records: Any) -> Iterator[tuple[RowKey, str]]:
    if name not in schema:
        raise _unknown(schema, name)
    if not isinstance(records, list):
        raise InvalidRecord(f"{name}: is a list of records, not {type(records).__name__}")
    for record in cast("list[Any]", records):
        yield encoded(schema, name, record)


def encoded(schema: Mapping[str, Collection], name: str, record: Any) -> tuple[RowKey, str]:
    """Where a record belongs, and its exact text. Raises InvalidRecord."""
    if name not in schema:
        raise _unknown(schema, name)
    if not isinstance(record, Mapping):
        raise InvalidRecord(f"{name}: a record is an object, not {type(record).__name__}")
    checked = cast("Record", record)
    row = RowKey(name, schema[name].key_of(checked))
    if _deeper(checked, DEPTH_LIMIT):
        raise InvalidRecord(f"{name}/{row.key}: nests deeper than {DEPTH_LIMIT} levels")
    try:
        text = canonical_bytes(dict(checked)).decode("ascii")
    except (TypeError, ValueError) as error:
        raise InvalidRecord(f"{name}/{row.key}: is not JSON: {error}") from error
    if len(text) > SIZE_LIMIT:
        raise InvalidRecord(f"{name}/{row.key}: is larger than {SIZE_LIMIT} characters")
    return row, text


def _unknown(schema: Mapping[str, Collection], name: str) -> InvalidRecord:
    known = ", ".join(sorted(schema.keys() - {HARNESS}))
    return InvalidRecord(f"there is no collection {name!r}; there are {known}")


def _deeper(value: Any, limit: int) -> bool:
    """Whether a value nests deeper than `limit`, told without recursion."""
    level: list[Any] = [value]
    for _ in range(limit):
        level = [inner for item in level for inner in _inside(item)]
        if not level:
            return False
    return True


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return cast("Mapping[Any, Any]", value).values()
    return cast("list[Any]", value) if isinstance(value, (list, tuple)) else ()
