"""YAML text to nodes that keep what the usual loaders throw away: places, plainness and written tags.

The parser is imported when a document is read: authors import this package in every worker and read no YAML there.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

from evalfleet.errors import DefinitionError, Problem

MAX_DEPTH = 100

_NODES = frozenset({"ScalarEvent", "AliasEvent", "SequenceStartEvent", "MappingStartEvent"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Any node; `tag` is the one the author wrote, in full, or None. Line and column count from 1."""

    line: int
    column: int
    tag: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar(Node):
    """`plain` means written without quotes and not as a block."""

    text: str
    plain: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequence(Node):
    items: list[Node] = field(default_factory=list[Node])


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping(Node):
    items: list[tuple[Node, Node]] = field(default_factory=list[tuple[Node, Node]])


def compose(text: str, file: str) -> Node | None:
    """The root node of the one document in `text`, None when it is empty. Raises DefinitionError."""
    from ruamel.yaml.error import MarkedYAMLError, YAMLError
    from ruamel.yaml.reader import ReaderError

    try:
        return _Composer(file, _events(text)).document()
    except MarkedYAMLError as error:
        mark = cast(Any, error.problem_mark or error.context_mark)  # pyright: ignore[reportUnknownMemberType]
        line, column = (mark.line + 1, mark.column + 1) if mark else (None, None)
        raise _invalid(str(cast(Any, error).problem or cast(Any, error).context), file, line, column) from error
    except ReaderError as error:
        offset = int(cast(Any, error).position)
        message = f"the character U+{ord(text[offset]):04X} is not allowed"
        raise _invalid(message, file, *place_after(text[:offset])) from error
    except YAMLError as error:
        raise _invalid(str(error).splitlines()[0], file) from error
    except (RecursionError, ValueError, OverflowError) as error:
        raise _invalid("nested too deeply, or a broken escape", file) from error


def place_after(text: str) -> tuple[int, int]:
    """Line and column, from 1, of the character that follows `text`."""
    return text.count("\n") + 1, len(text) - text.rfind("\n")


def _events(text: str) -> Iterator[Any]:
    from ruamel.yaml import YAML

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ruamel warns about legal documents too
        yield from cast("Iterator[Any]", YAML(typ="safe", pure=True).parse(text))  # pyright: ignore[reportUnknownMemberType]


def _invalid(message: str, file: str, line: int | None = None, column: int | None = None) -> DefinitionError:
    problem = Problem("INVALID_YAML", f"not valid YAML: {message}", file, line, column)
    return DefinitionError("INVALID_YAML", [problem])


class _Composer:
    """Builds nodes from parse events; an alias is the node of its anchor."""

    def __init__(self, file: str, events: Iterator[Any]) -> None:
        self._file = file
        self._events = events
        self._anchors: dict[str, Node] = {}

    def document(self) -> Node | None:
        root: Node | None = None
        documents = 0
        for event in self._events:
            kind = type(event).__name__
            if kind == "DocumentStartEvent":
                documents += 1
                if documents > 1:
                    raise self._refused("a second document; one file holds one document", event)
            elif kind in _NODES:
                root = self._node(event, 0)
        return root

    def _node(self, event: Any, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise self._refused(f"nested more than {MAX_DEPTH} levels deep", event)
        anchor = None if event.anchor is None else str(event.anchor)
        if type(event).__name__ == "AliasEvent":
            if anchor not in self._anchors:
                raise self._refused(f"the alias *{anchor} has no anchor before it", event)
            return self._anchors[anchor]
        node = self._begin(event)
        if anchor is not None:
            self._anchors[anchor] = node
        if isinstance(node, Sequence):
            node.items.extend(self._node(item, depth + 1) for item in self._until_end())
        elif isinstance(node, Mapping):
            for key in self._until_end():
                node.items.append((self._node(key, depth + 1), self._node(next(self._events), depth + 1)))
        return node

    def _begin(self, event: Any) -> Node:
        line, column = event.start_mark.line + 1, event.start_mark.column + 1
        tag = None if event.ctag is None else str(event.ctag)
        kind = type(event).__name__
        if kind == "SequenceStartEvent":
            return Sequence(line=line, column=column, tag=tag)
        if kind == "MappingStartEvent":
            return Mapping(line=line, column=column, tag=tag)
        return Scalar(line=line, column=column, tag=tag, text=str(event.value), plain=event.style in (None, ""))

    def _until_end(self) -> Iterator[Any]:
        for event in self._events:
            if type(event).__name__ not in _NODES:
                return
            yield event

    def _refused(self, message: str, event: Any) -> DefinitionError:
        return _invalid(message, self._file, event.start_mark.line + 1, event.start_mark.column + 1)
