"""Tracebacks as text: the author's and the agent's frames with their source lines, without ours or any value."""

from __future__ import annotations

import linecache
import sys
import traceback
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from types import FrameType, TracebackType

import evalfleet.errors
from evalfleet.errors import describe

_OWN = str(Path(evalfleet.errors.__file__).parent / "_").removesuffix("_")
_HEAD, _TAIL, _CHAIN = 8, 16, 8


Place = tuple[str, int]


def caller(depth: int) -> Place:
    """The file and line of the code `depth` calls outside of whoever calls this. `inspect.stack` would read files."""
    frame = sys._getframe(depth + 1)  # pyright: ignore[reportPrivateUsage]
    return frame.f_code.co_filename, frame.f_lineno


@lru_cache(maxsize=4096)
def place_text(place: Place, project: Path) -> str:
    """A place as `file:line`, relative to the project."""
    return f"{short_path(place[0], project)}:{place[1]}"


def is_own(filename: str) -> bool:
    """Whether a frame's file belongs to evalfleet."""
    return filename.startswith(_OWN)


def innermost(error: BaseException) -> tuple[FrameType, int] | None:
    """The frame and line where `error` arose, None when it was never raised."""
    last: tuple[FrameType, int] | None = None
    for place in traceback.walk_tb(error.__traceback__):
        last = place
    return last


def short_path(filename: str, project: Path | None) -> str:
    """`filename` relative to the project, so that no home directory is recorded."""
    path = Path(filename)
    if project is not None and path.is_relative_to(project):
        return path.relative_to(project).as_posix()
    return Path(*path.parts[-2:]).as_posix()


def traceback_text(error: BaseException, project: Path | None) -> str:
    """The chain of `error`, cause first, each with its frames and its own text."""
    parts: list[str] = []
    for link in _chain(error):
        frames = "\n".join(_frame_lines(link.__traceback__, project))
        parts.append(f"{frames}\n{type(link).__name__}: {describe(link)}".lstrip("\n"))
    return "\n\n".join(reversed(parts))


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen and len(seen) < _CHAIN:
        seen.add(id(link))
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def _frame_lines(trace: TracebackType | None, project: Path | None) -> list[str]:
    places = [(frame.f_code.co_filename, line, frame.f_code.co_name) for frame, line in traceback.walk_tb(trace)]
    foreign = [place for place in places if not is_own(place[0])]
    lines = [_line(place, project) for place in foreign or places]
    if len(lines) <= _HEAD + _TAIL:
        return lines
    return [*lines[:_HEAD], f"  … {len(lines) - _HEAD - _TAIL} frames …", *lines[-_TAIL:]]


def _line(place: tuple[str, int, str], project: Path | None) -> str:
    filename, number, function = place
    source = linecache.getline(filename, number).strip()
    return f"  {short_path(filename, project)}:{number} in {function}" + (f"\n    {source}" if source else "")
