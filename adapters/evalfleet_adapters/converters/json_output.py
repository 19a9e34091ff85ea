"""The JSON that a program wrote to its output: a document a line, or one array of them, and whatever stands between."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from evalfleet_adapters.converters.untrusted import recordable, sequence


@dataclass(frozen=True, slots=True)
class JsonOutput:
    """The objects in their order; `noise` are the lines that are none, the last one perhaps cut short."""

    documents: tuple[dict[str, Any], ...]
    noise: tuple[str, ...]


def read_output(data: bytes) -> JsonOutput:
    """Read what was written, whole or cut anywhere. Nothing is made of a document that is not complete."""
    text = data.decode("utf-8", "replace")
    documents: list[dict[str, Any]] = []
    noise: list[str] = []
    position = 0
    while position < len(text):
        newline = text.find("\n", position)
        end = len(text) if newline < 0 else newline
        line = text[position:end].strip()
        found = _objects(line)
        if found is None and line in ("[", "{"):
            # one document over many lines: what is inside of it is no document of its own, also when it is cut
            start = text.index(line, position)
            found, stop = _spread(text, start)
            end = len(text) if found is None else stop
            line = text[start:end]
        if found is not None:
            documents += found
        elif line:
            noise.append(line)
        position = end + 1
    return JsonOutput(tuple(documents), tuple(noise))


def last_document(line: bytes) -> dict[str, Any]:
    """The last object of one line; empty for a line without one."""
    found = _objects(line.decode("utf-8", "replace").strip())
    return found[-1] if found else {}


def _objects(line: str) -> list[dict[str, Any]] | None:
    if line[:1] not in ("{", "["):
        return None
    try:
        return _as_objects(json.loads(line, parse_constant=_refuse))
    except (ValueError, RecursionError):
        return None


def _spread(text: str, start: int) -> tuple[list[dict[str, Any]] | None, int]:
    try:
        value, end = json.JSONDecoder(parse_constant=_refuse).raw_decode(text, start)
    except (ValueError, RecursionError):
        return None, start
    return _as_objects(value), end


def _as_objects(value: Any) -> list[dict[str, Any]] | None:
    """The objects of a value that is one, or an array of nothing else, and that a record can hold."""
    items: list[Any] = [value] if isinstance(value, dict) else sequence(value)
    if not items or not all(isinstance(item, dict) for item in items) or not recordable(value):
        return None
    return items


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
