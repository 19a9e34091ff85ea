"""What an engine says of limits that it does not enforce, as notices. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from evalfleet.model.definition import Resources

#: What is said of a rootless docker beside version 1 of control groups, which says nothing.
WITHOUT_GROUPS = "limits are ignored, since the engine runs without control groups"
_MARK = "WARNING: "
#: What engines say of a limit that is none, and the words by which they name each.
_REFUSALS = ("ignore", "discarded", "not supported", "does not support", "not enforced")
_WORDS = {"memory": ("memory", "swap"), "cpus": ("cpu",), "pids": ("pids", "pid limit")}


def by_groups(asked: Resources) -> list[str]:
    """The names of what was limited that engines limit by control groups."""
    return [name for name in _WORDS if getattr(asked, name) is not None]


def unenforced(asked: Resources, lines: list[str]) -> Iterator[str]:
    """The notices of what a client printed beside the new container's id: those about a limit begin with its name.

    A refusal that names none is about all that were asked for.
    """
    limits = {name: getattr(asked, name) for name in by_groups(asked)}
    for line in lines:
        said = line.removeprefix(_MARK)
        text = said.lower()
        if any(word in text for word in _REFUSALS):
            named = [name for name, words in _WORDS.items() if any(word in text for word in words)]
            about = [name for name in limits if not named or name in named]
            yield from (f"resources.{name}: {limits[name]} is not enforced: {said}" for name in about)
        elif said != line:
            yield said
