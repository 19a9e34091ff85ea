"""`references_any_path`: does a JSON value mention one of these paths, by whole components."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from evalfleet.assertions.equality import Place, pointer
from evalfleet.assertions.match import Evaluation, Match, decided
from evalfleet.errors import AuthoringError

_COMPONENT = re.compile(r"[\w\-+@%~]")


@dataclass(frozen=True, slots=True)
class ReferencesAnyPath(Match):
    paths: tuple[str, ...]

    def describe(self) -> Any:
        return {"match": "references_any_path", "paths": list(self.paths)}

    def judge(self, value: Any) -> Evaluation:
        for place, text in _texts(value):
            plain = normalised(text)
            for path in self.paths:
                if mentions(plain, path):
                    return decided(True, expected=self.paths, actual={"path": path, "at": pointer(place)})
        return decided(False, expected=self.paths, actual=value)


def references_any_path(paths: Iterable[str]) -> Match:
    """Matches a JSON value in which some text mentions one of `paths` by whole components.

    `agents` is not mentioned by `agents-old`; `/` and `\\` are the same and `./` is ignored.
    """
    given = (paths,) if isinstance(paths, str) else tuple(paths)
    if not given:
        raise AuthoringError("references_any_path needs at least one path")
    cleaned: list[str] = []
    for path in given:
        plain = normalised(path).rstrip("/") if isinstance(path, str) else ""  # pyright: ignore[reportUnnecessaryIsInstance]
        if not plain or plain == ".":
            raise AuthoringError(f"references_any_path: {path!r} is not a path")
        if plain in cleaned:
            raise AuthoringError(f"references_any_path names {plain!r} twice")
        cleaned.append(plain)
    return ReferencesAnyPath(tuple(cleaned))


def normalised(text: str) -> str:
    """`text` with `/` as the only separator and without `./` segments."""
    slashed = text.replace("\\", "/")
    while "/./" in slashed:
        slashed = slashed.replace("/./", "/")
    return slashed[2:] if slashed.startswith("./") else slashed


def mentions(text: str, path: str) -> bool:
    """Whether normalised `text` holds normalised `path` with component boundaries on both sides."""
    start = text.find(path)
    while start >= 0:
        if _starts(text, start) and _ends(text, start + len(path)):
            return True
        start = text.find(path, start + 1)
    return False


def _starts(text: str, start: int) -> bool:
    if start == 0:
        return True
    before = text[start - 1]
    if before == ".":
        return False
    return not _COMPONENT.match(before)


def _ends(text: str, end: int) -> bool:
    if end == len(text):
        return True
    after = text[end]
    if after == ".":  # a full stop after the path ends it, an extension does not
        return end + 1 == len(text) or not (_COMPONENT.match(text[end + 1]) or text[end + 1] == ".")
    return not _COMPONENT.match(after)


def _texts(value: Any) -> Iterator[tuple[Place, str]]:
    """Every text inside a JSON value with its place, in document order; ends on cycles."""
    stack: list[tuple[Place, Any]] = [(None, value)]
    seen: set[int] = set()
    while stack:
        place, item = stack.pop()
        if isinstance(item, str):
            yield place, item
        elif isinstance(item, (Mapping, list, tuple)) and id(cast("object", item)) not in seen:
            seen.add(id(cast("object", item)))
            if isinstance(item, Mapping):
                pairs = list(cast("Mapping[Any, Any]", item).items())
            else:
                pairs = list(enumerate(cast("list[Any]", item)))
            stack.extend(((place, key), child) for key, child in reversed(pairs))
