"""YAML with a place for every key and value, and no guessing: plain scalars stay text until a type asks.

The rule, in place of YAML's implicit types:

- a quoted or block scalar is text;
- a plain scalar is kept as `Plain` text. A typed field reads it as its type (`1e3` in a whole-number field is
  1000, `017` in a text field is `017`); see `planning.typed`;
- where no type is known (flags) `resolve` applies the YAML 1.2 core schema, narrowed to what JSON can hold and
  what nobody mistakes: `true`/`false`, `null`/`~`/nothing, decimal integers without leading zeros, decimal
  floats. So `NO`, `off`, `017`, `1_000`, `0x1F`, `.inf`, `1e400`, `2026-01-02` and `=` are text.
- keys are text, whatever they look like; the same key twice is an error; `<<` merges work.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from evalfleet.errors import DefinitionError, Problem
from evalfleet.planning import yaml_nodes
from evalfleet.planning.yaml_nodes import Node

Path: TypeAlias = tuple[str | int, ...]

#: Aliases may repeat this many values in one document; nested ones could repeat without end.
MAX_REPEATED = 100_000

_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]")
_NOT_FINITE = re.compile(r"[-+]?\.?(?:inf|infinity|nan)", re.IGNORECASE)
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_TEXT_TAG = "tag:yaml.org,2002:str"
_COLLECTION_TAGS = frozenset({None, "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"})


class Plain(str):
    """The text of an unquoted scalar, not yet given a type."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value begins and, in a mapping, where its key does; lines and columns count from 1."""

    line: int
    column: int
    key_line: int
    key_column: int


@dataclass(frozen=True, slots=True)
class Source:
    """One document: `value` of dicts, lists, `str` and `Plain`, and the place of every path in it.

    `overridden` are paths whose value came from `--set`, not from the file.
    """

    file: str
    value: Any
    places: Mapping[Path, Place] = field(default_factory=dict[Path, Place])
    overridden: frozenset[Path] = frozenset()

    def place(self, path: Path) -> Place | None:
        """The place of `path`, or of its nearest parent that stands in the document."""
        for end in range(len(path), -1, -1):
            if (found := self.places.get(path[:end])) is not None:
                return found
        return None

    def problem(self, code: str, message: str, path: Path, *, hint: str | None = None, at_key: bool = False) -> Problem:
        """A Problem at `path`."""
        if any(path[:end] in self.overridden for end in range(1, len(path) + 1)):
            return Problem(code, message, "--set", field=dotted(path), hint=hint)
        line = column = None
        if (place := self.place(path)) is not None:
            line, column = (place.key_line, place.key_column) if at_key else (place.line, place.column)
        return Problem(code, message, self.file, line, column, dotted(path) or None, hint)


def dotted(path: Path) -> str:
    """`arms.small.model`, `evals.select[0]`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def read_yaml(text: str, file: str) -> Source:
    """Parse one YAML document. Raises DefinitionError with every place when it is not one."""
    node = yaml_nodes.compose(text, file)
    if node is None:
        return Source(file, None, {(): Place(1, 1, 1, 1)})
    reader = _Reader(file)
    value = reader.read(node, (), node)
    if reader.problems:
        raise DefinitionError("INVALID_YAML", reader.problems)
    return Source(file, value, reader.places)


def number(text: str) -> int | float | None:
    """The number that a plain text means, or None: `1e3`, `5e-6`, `-7`; never `017`, `1_000` or `.inf`."""
    if _INTEGER.fullmatch(text):
        try:
            return int(text)
        except ValueError:  # longer than Python's limit on decimal digits
            return None
    if _FLOAT.fullmatch(text) and not _LEADING_ZERO.match(text):
        value = float(text)
        return None if math.isinf(value) else value
    return None


def special(text: str) -> float | None:
    """NaN or the infinity that a plain text means where a number is wanted: `.nan`, `-inf`, `1e400`; else None."""
    if _NOT_FINITE.fullmatch(text):
        return float(text.replace(".", ""))
    value = float(text) if _FLOAT.fullmatch(text) else 0.0
    return value if math.isinf(value) else None


def is_null(text: str) -> bool:
    """Whether a plain text means null."""
    return text in _NULLS


def boolean(text: str) -> bool | None:
    """The Boolean that a plain text means, or None."""
    return _BOOLEANS.get(text)


def resolve(value: Any) -> Any:
    """`value` with every plain scalar read by the rule for untyped places."""
    if isinstance(value, Plain):
        if is_null(value):
            return None
        for found in (boolean(value), number(value)):
            if found is not None:
                return found
        return str(value)
    if isinstance(value, dict):
        return {key: resolve(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [resolve(item) for item in cast("list[Any]", value)]
    return value


class _Reader:
    """Turns nodes into values and places, collecting every problem."""

    def __init__(self, file: str) -> None:
        self.places: dict[Path, Place] = {}
        self.problems: list[Problem] = []
        self._file = file
        self._open: set[int] = set()
        self._seen: set[int] = set()
        self._repeated = 0

    def read(self, node: Node, path: Path, key: Node) -> Any:
        self.places[path] = Place(node.line, node.column, key.line, key.column)
        self._repeated += id(node) in self._seen
        self._seen.add(id(node))
        if id(node) in self._open or self._repeated > MAX_REPEATED:
            self._refuse(key, "an alias that contains itself, or aliases that multiply without end", path)
            return None
        if isinstance(node, yaml_nodes.Scalar):
            return self._scalar(node, path)
        if node.tag not in _COLLECTION_TAGS:
            self._refuse(node, f"the tag {node.tag} is not supported", path)
            return None
        self._open.add(id(node))
        try:
            if isinstance(node, yaml_nodes.Sequence):
                return [self.read(item, (*path, index), item) for index, item in enumerate(node.items)]
            return self._mapping(cast("yaml_nodes.Mapping", node), path)
        finally:
            self._open.discard(id(node))

    def _scalar(self, node: yaml_nodes.Scalar, path: Path) -> str:
        if any("\ud800" <= character <= "\udfff" for character in node.text):
            self._refuse(node, "half of a surrogate pair is not text", path)
        if node.tag not in (None, _TEXT_TAG):
            self._refuse(node, f"the tag {node.tag} is not supported", path, hint="quote the value to make it text")
        return Plain(node.text) if node.plain and node.tag is None else node.text

    def _mapping(self, node: yaml_nodes.Mapping, path: Path) -> dict[str, Any]:
        own: dict[str, Any] = {}
        first: dict[str, Node] = {}
        merged: list[yaml_nodes.Mapping] = []
        for key, value in node.items:
            if not isinstance(key, yaml_nodes.Scalar):
                self._refuse(key, "a key must be text", path)
            elif key.plain and key.text == "<<":
                merged.extend(self._merge_sources(value, path))
            elif key.text in first:
                lines = f"lines {first[key.text].line} and {key.line}"
                message = f"the key {key.text!r} stands twice, on {lines}"
                self._refuse(key, message, (*path, key.text), code="DUPLICATE_KEY")
            else:
                first[key.text] = key
                own[key.text] = self.read(value, (*path, key.text), key)
        return {**self._merged(merged, path), **own}

    def _merged(self, sources: list[yaml_nodes.Mapping], path: Path) -> dict[str, Any]:
        """The keys that `<<` brings, earlier sources first; an own key's places stay those of the own key."""
        result: dict[str, Any] = {}
        for source in sources:
            outer, self.places = self.places, {}
            values = self.read(source, path, source)
            for merged_path, place in self.places.items():
                outer.setdefault(merged_path, place)
            self.places = outer
            if isinstance(values, dict):
                result = {**cast("dict[str, Any]", values), **result}
        return result

    def _merge_sources(self, value: Node, path: Path) -> Iterator[yaml_nodes.Mapping]:
        for candidate in value.items if isinstance(value, yaml_nodes.Sequence) else [value]:
            if isinstance(candidate, yaml_nodes.Mapping):
                yield candidate
            else:
                self._refuse(candidate, "`<<` merges mappings only", path)

    def _refuse(
        self, node: Node, message: str, path: Path, *, code: str = "INVALID_YAML", hint: str | None = None
    ) -> None:
        self.problems.append(Problem(code, message, self._file, node.line, node.column, dotted(path) or None, hint))
