"""Patterns on relative paths: `*` and `?` within a name, `[…]`, and `**` for any number of names. Pure."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from evalfleet.errors import AuthoringError

_LIMIT = 4096
_WILD = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class PathPattern:
    """One pattern, matched name by name: each step is a name's regex, None stands for `**`."""

    text: str
    steps: tuple[re.Pattern[str] | None, ...]

    def matches(self, path: str) -> bool:
        at = self._skip({0})
        for name in path.split("/"):
            at = self._skip({step for index in at if (step := self._take(index, name)) is not None})
        return len(self.steps) in at

    def _take(self, index: int, name: str) -> int | None:
        """The step after one that takes `name`; None when it does not."""
        if index == len(self.steps):
            return None
        step = self.steps[index]
        if step is None:
            return index
        return index + 1 if step.match(name) else None

    def _skip(self, at: set[int]) -> set[int]:
        """`at` with what follows each `**` in it, which may stand for no name."""
        reached = set(at)
        for index in sorted(at):
            following = index
            while following < len(self.steps) and self.steps[following] is None:
                following += 1
                reached.add(following)
        return reached


def path_pattern(text: str, place: str) -> PathPattern:
    """The pattern of a text. Raises AuthoringError, naming `place`, when it is none."""
    names = text.split("/") if type(text) is str else []
    if not names or len(text) > _LIMIT or "\0" in text or any(name in ("", ".", "..") for name in names):
        raise AuthoringError(f"{place}: {text!r:.80} is no path below the workdir, nor a pattern of one")
    return PathPattern(text, tuple(None if name == "**" else re.compile(fnmatch.translate(name)) for name in names))


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """Which paths are left out: by plain names anywhere, by patterns of names, and by patterns of whole paths."""

    names: frozenset[str]
    wild: tuple[re.Pattern[str], ...]
    paths: tuple[PathPattern, ...]

    def leave_out(self, path: str, name: str) -> bool:
        """Whether the path, whose last name is `name`, is left out with all below it. No parent of it may be."""
        if name in self.names or name.lower() == ".git":  # git itself refuses it in any case
            return True
        return any(wild.match(name) for wild in self.wild) or any(pattern.matches(path) for pattern in self.paths)


def ignore_rules(defaults: Sequence[str], ignore: Iterable[str], include: Iterable[str]) -> IgnoreRules:
    """The rules of `defaults` and `ignore` without those named in `include`. Raises AuthoringError for a wrong one."""
    given = dict.fromkeys(text.removesuffix("/") for text in [*defaults, *ignore])
    for text in include:
        if (name := text.removesuffix("/")) not in given or name == ".git":
            known = ", ".join(name for name in given if name != ".git")
            raise AuthoringError(f"include: {text!r:.80} is none of the names that are left out: {known}")
        del given[name]
    names: list[str] = []
    wild: list[re.Pattern[str]] = []
    paths: list[PathPattern] = []
    for text in given:
        pattern = path_pattern(text.removeprefix("/"), "ignore")
        if "/" in text:
            paths.append(pattern)
        elif _WILD.isdisjoint(text):
            names.append(text)
        else:
            wild.append(re.compile(fnmatch.translate(text)))
    return IgnoreRules(frozenset(names), tuple(wild), tuple(paths))
