"""The seams around namespaces that commands run in, as Protocols and the values that cross them. Linux only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from evalfleet.sandbox_ports import Command, CommandResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """What is seen at the path `target` of an enclosure: the folder `source`, or memory without one.

    `source` is a path as seen with the template's mounts and those before this one. Memory has permissions, a size in
    bytes unless that is None, and in it those mounts of the template that are `below` the target and stay.
    """

    target: str
    source: str | None = None
    mode: int = 0o755
    size: int | None = None
    below: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Enclosure:
    """Namespaces to be made: those of a template with `mounts` over it, and processes and a `network` of their own.

    `user` are user and group of all in it; None where a command may be any, which takes root. Commands join the control
    groups with the folders `cgroups`. `filtered` refuses the system calls that no test needs and exploits do.
    """

    user: tuple[int, int] | None
    mounts: tuple[Mount, ...] = ()
    network: bool = True
    cgroups: tuple[str, ...] = ()
    filtered: bool = True


class Enclosed(Protocol):
    """Namespaces with a first process in them, which starts commands and holds them together.

    Commands have no capability and no way to one.
    """

    @property
    def ended(self) -> bool:
        """Whether all of its processes are dead."""
        ...

    @property
    def root(self) -> int:
        """A descriptor of its root directory, open until `end`."""
        ...

    @property
    def network(self) -> int:
        """A descriptor of its network namespace, open until `end`."""
        ...

    async def run(self, command: Command, *, base_env: Mapping[str, str], user: tuple[int, int]) -> CommandResult:
        """Run to the command's own exit, as user and group of those numbers; what it left behind goes on until `end`.

        Raises OSError when the program can't be started, InfrastructureError when how it ended can't be known.
        """
        ...

    async def end(self) -> None:
        """Kill all that is in it. Raises InfrastructureError when something won't die. May be called twice."""
        ...


class Warden(Protocol):
    """Makes enclosures after a template, by a process inside that; all of them end with it."""

    async def enclose(self, enclosure: Enclosure) -> Enclosed:
        """Raises InfrastructureError when that can't be done."""
        ...

    async def end(self) -> None:
        """Let it go, after its enclosures have ended. May be called twice."""
        ...


@runtime_checkable
class Enclosing(Protocol):
    """What a `Spawner` also is when it can make namespaces."""

    async def warden(self, template: int) -> Warden:
        """One for the namespaces of the process `template`. Raises InfrastructureError where there are none."""
        ...
