"""Control groups: how much of this machine one sandbox may take, and what the kernel did about it. Linux.

A sandbox gets a folder in each hierarchy that it has a limit in. In version 1 that is below the group of this
process; in version 2 below it or beside it, wherever the controller is handed on and a folder can be made. Blocking;
call it from a thread.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from evalfleet.model.definition import Resources

_PERIOD = 100_000
#: Processes of ours that count: those that hold a command's tree together.
_OURS = 4
#: How often, and how long in between, a folder is tried that a dying process is still in.
_TRIES, _PAUSE_SECONDS = 250, 0.02
_OOM_KILLS = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The folders of one sandbox. `memory` is the file with the kernel's account of memory, if it has a limit."""

    folders: tuple[str, ...] = ()
    memory: Path | None = None

    def oom_kills(self) -> int | None:
        """How many processes of it the kernel has killed for memory; None without a limit of memory."""
        if self.memory is None:
            return None
        with contextlib.suppress(OSError):
            found = _OOM_KILLS.search(self.memory.read_text(encoding="ascii"))
            return None if found is None else int(found[1])
        return None


@dataclass(frozen=True, slots=True)
class Hierarchies:
    """Where folders can be made: for each controller the version and the folders to try, of this process or above."""

    places: Mapping[str, tuple[int, tuple[Path, ...]]]

    def make(self, name: str, limits: Resources) -> tuple[Cgroup, tuple[str, ...]]:
        """The folders `name` with the limits, and the names of those limits that can't be set here."""
        made: dict[str, Path] = {}
        refused: list[str] = []
        for limit, controller in (("memory", "memory"), ("pids", "pids"), ("cpus", "cpu")):
            value = getattr(limits, limit)
            if value is not None:
                folder = self._limit(controller, name, value)
                if folder is None:
                    refused.append(limit)
                else:
                    made[controller] = folder
        memory = made.get("memory")
        if memory is not None:
            memory /= "memory.oom_control" if self.places["memory"][0] == 1 else "memory.events"
        return Cgroup(tuple(dict.fromkeys(map(str, made.values()))), memory), tuple(refused)

    def remove(self, name: str) -> None:
        """Remove the folders `name`, which may be gone. Raises OSError when something still runs in one."""
        for _, parents in self.places.values():
            for parent in parents:
                _remove(parent / name)

    def _limit(self, controller: str, name: str, value: float) -> Path | None:
        version, parents = self.places.get(controller, (0, ()))
        for parent in parents:
            folder = parent / name
            try:
                folder.mkdir(exist_ok=True)
                for file, text in _settings(version, controller, value):
                    if (folder / file).exists() or "sw" not in file:  # kernels without swap have no file for it
                        (folder / file).write_text(text, encoding="ascii")
            except OSError:
                with contextlib.suppress(OSError):
                    folder.rmdir()
                continue
            return folder
        return None


def hierarchies(proc: Path = Path("/proc/self")) -> Hierarchies:
    """What this machine has; nothing where it can't be read."""
    try:
        mounts = list(_mounts((proc / "mountinfo").read_text(encoding="utf-8", errors="replace")))
        own = dict(_own_groups((proc / "cgroup").read_text(encoding="utf-8", errors="replace")))
    except OSError:
        return Hierarchies({})
    places: dict[str, tuple[int, tuple[Path, ...]]] = {}
    for version, point, top, options in sorted(mounts, key=lambda mount: -mount[0]):  # 1 last: it wins
        for controller in ("memory", "pids", "cpu"):
            if version == 1 and controller in options:
                places[controller] = (1, (_below(point, top, own.get(controller, "/")),))
            elif version == 2:
                folder = _below(point, top, own.get("", "/"))
                parents = [folder] if folder == Path(point) else [folder, folder.parent]
                places[controller] = (2, tuple(parent for parent in parents if _hands_on(parent, controller)))
    return Hierarchies(places)


def _settings(version: int, controller: str, value: float) -> Iterator[tuple[str, str]]:
    """What to write where; a limit of memory is one of memory and swap together."""
    if controller == "memory":
        names = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
        yield from zip(names if version == 1 else ("memory.max",), (str(int(value)),) * 2, strict=False)
        if version == 2:
            yield "memory.swap.max", "0"
    elif controller == "pids":
        yield "pids.max", str(int(value) + _OURS)
    else:
        quota = max(1000, round(value * _PERIOD))
        if version == 1:
            yield "cpu.cfs_period_us", str(_PERIOD)
            yield "cpu.cfs_quota_us", str(quota)
        else:
            yield "cpu.max", f"{quota} {_PERIOD}"


def _mounts(mountinfo: str) -> Iterator[tuple[int, str, str, tuple[str, ...]]]:
    """Version, mount point, what of the hierarchy is mounted there, and options of each mount of control groups."""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2) if after.count(" ") >= 2 else ("", "", "")
        if kind in ("cgroup", "cgroup2"):
            top, point = before.split(" ")[3:5]
            yield 1 if kind == "cgroup" else 2, point, top, tuple(options.split(","))


def _own_groups(text: str) -> Iterator[tuple[str, str]]:
    """For each controller, and "" for version 2, the path of the group that the process is in."""
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            yield controller, path


def _below(point: str, top: str, path: str) -> Path:
    """The folder of a group where its hierarchy is mounted from `top` on; the mount point when it lies outside."""
    inside = path == top or path.startswith(top.rstrip("/") + "/")
    return Path(point, os.path.relpath(path, top)) if inside else Path(point)


def _hands_on(folder: Path, controller: str) -> bool:
    try:
        return controller in (folder / "cgroup.subtree_control").read_text(encoding="ascii").split()
    except OSError:
        return False


def _remove(folder: Path) -> None:
    pause = threading.Event()
    for left in reversed(range(_TRIES)):
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            if not left:
                raise
            pause.wait(_PAUSE_SECONDS)
        else:
            return
