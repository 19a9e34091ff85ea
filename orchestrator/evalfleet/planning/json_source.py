"""JSON with a place for every key and value, and what the usual reader lets pass refused at its place."""

from __future__ import annotations

import json
import math
import re
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from evalfleet.errors import DefinitionError, Problem
from evalfleet.planning.yaml_source import Path, Place, Source, dotted

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_WORDS = frozenset({"true", "false", "null"})


#: A whole number of fewer characters is not too large for a float.
_SURELY_FINITE = 300


def read_json(text: str, file: str) -> Source:
    """Parse one JSON document. Raises DefinitionError: INVALID_JSON, or DUPLICATE_KEY with every place of one.

    Places are looked for when the first is asked for, which is for something wrong: that takes ten times as long.
    """
    reader = _Reader()
    try:
        value = json.loads(
            text,
            object_pairs_hook=reader.object_of,
            parse_int=reader.whole,
            parse_float=reader.number,
            parse_constant=reader.number,
        )
    except json.JSONDecodeError as error:
        raise _invalid(f"not valid JSON: {error.msg}", file, error.lineno, error.colno) from error
    except RecursionError as error:
        raise _invalid("not readable JSON: nested too deeply", file) from error
    except ValueError as error:
        limit = sys.get_int_max_str_digits()
        raise _invalid(f"not readable JSON: a whole number of more than {limit} digits", file) from error
    if reader.suspects and (problems := _scanned(text, file).problems):
        raise DefinitionError(problems[0].code, problems)
    return Source(file, value, FoundPlaces(lambda: _scanned(text, file).places))


class _Reader:
    """Reads as usual, and suspects what has to be refused at its place."""

    def __init__(self) -> None:
        self.suspects = False

    def object_of(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            self.suspects = True
        return found

    def whole(self, digits: str) -> int:
        if len(digits) > _SURELY_FINITE:
            self.suspects = True
        return int(digits)

    def number(self, text: str) -> float:
        value = float(text)
        if not math.isfinite(value):
            self.suspects = True
        return value


class FoundPlaces(Mapping[Path, Place]):
    """The places of a document, found when the first is asked for."""

    def __init__(self, find: Callable[[], Mapping[Path, Place]]) -> None:
        self._find = find

    @cached_property
    def _found(self) -> Mapping[Path, Place]:
        return self._find()

    def __getitem__(self, path: Path) -> Place:
        return self._found[path]

    def __iter__(self) -> Iterator[Path]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def _scanned(text: str, file: str) -> _Scan:
    scan = _Scan(text, file)
    scan.read()
    return scan


@dataclass(slots=True)
class _Open:
    """A container being read: `step` leads to the value that comes next, `keys` are an object's, with their lines."""

    path: Path
    step: str | int
    key_place: tuple[int, int] | None = None
    keys: dict[str, int] = field(default_factory=dict[str, int])


class _Scan:
    """One pass over text that is known to be JSON."""

    def __init__(self, text: str, file: str) -> None:
        self.places: dict[Path, Place] = {}
        self.problems: list[Problem] = []
        self._text = text
        self._file = file
        self._lines = [0, *(match.end() for match in re.finditer("\n", text))]
        self._open: list[_Open] = []

    def read(self) -> None:
        awaits_key = False
        for token, place in self._tokens():
            if token in ("}", "]"):
                self._open.pop()
                awaits_key = False
            elif token == ",":
                inner = self._open[-1]
                awaits_key = not isinstance(inner.step, int)
                if isinstance(inner.step, int):
                    inner.step += 1
            elif token == ":":
                awaits_key = False
            elif awaits_key:
                self._key(json.loads(token), place)
            else:
                path = self._value(token, place)
                if token in ("{", "["):
                    self._open.append(_Open(path, "" if token == "{" else 0))
                    awaits_key = token == "{"

    def _tokens(self) -> Iterator[tuple[str, tuple[int, int]]]:
        for match in _TOKEN.finditer(self._text):
            line = bisect_right(self._lines, match.start())
            yield match.group(), (line, match.start() - self._lines[line - 1] + 1)

    def _key(self, key: str, place: tuple[int, int]) -> None:
        inner = self._open[-1]
        if key in inner.keys:
            message = f"the key {key!r} stands twice, on lines {inner.keys[key]} and {place[0]}"
            self._refuse("DUPLICATE_KEY", message, (*inner.path, key), place)
        inner.keys.setdefault(key, place[0])
        inner.step, inner.key_place = key, place

    def _value(self, token: str, place: tuple[int, int]) -> Path:
        inner = self._open[-1] if self._open else None
        path = () if inner is None else (*inner.path, inner.step)
        key_place = place if inner is None or inner.key_place is None else inner.key_place
        self.places[path] = Place(*place, *key_place)
        if token[0] not in '"{[' and token not in _WORDS and not math.isfinite(float(token)):
            self._refuse("INVALID_JSON", f"{token[:40]} is no finite number", path, place)
        return path

    def _refuse(self, code: str, message: str, path: Path, place: tuple[int, int]) -> None:
        self.problems.append(Problem(code, message, self._file, *place, field=dotted(path) or None))


def _invalid(message: str, file: str, line: int | None = None, column: int | None = None) -> DefinitionError:
    return DefinitionError("INVALID_JSON", [Problem("INVALID_JSON", message, file, line, column)])
