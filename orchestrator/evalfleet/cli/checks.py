"""What `orchestrate doctor` looks at: each check says what it found and, when that is no good, what to do."""

from __future__ import annotations

import importlib.util
import os
import resource
import shutil
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from evalfleet import processes
from evalfleet.api.backends import backend_faults
from evalfleet.api.default_backend import ISOLATING, NOT_ISOLATING, chosen
from evalfleet.errors import ConfigurationError, EvalfleetError, describe
from evalfleet.plugins import adapter_factories
from evalfleet.settings import SANDBOX_BACKEND, Settings
from evalfleet.store.connection import connect, place
from evalfleet.store.opening import open_store

OLDEST, NEWEST = (3, 11), (3, 13)
LEAST_DISK, GOOD_DISK = 1 << 30, 5 << 30
GOOD_DESCRIPTORS = 4096
_PROGRAM_SECONDS = 10.0


class Health(StrEnum):
    """`warning` costs speed or a feature; with `bad` runs fail."""

    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Check:
    """One finding. `advice` is set unless the health is good."""

    name: str
    health: Health
    found: str
    advice: str | None = None


async def checks(settings: Settings) -> AsyncIterator[Check]:
    """Every check in turn, the quick ones first. Starts the embedded record store unless another is configured."""
    yield check_python(sys.version_info[:2])
    yield check_state_directory(settings.state_dir)
    yield check_disk(settings.state_dir, shutil.disk_usage(_existing(settings.state_dir)).free)
    yield check_descriptors(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    yield check_bytecode("ray")
    yield await check_git()
    yield await check_user_namespaces()
    yield check_plugins("adapters", adapter_factories())
    faults = await backend_faults(settings.state_dir)
    for name, fault in faults.items():
        yield check_backend(name, fault)
    yield check_default_backend(settings, faults)
    yield await check_record_store(settings)


def check_python(version: tuple[int, ...]) -> Check:
    found = ".".join(str(part) for part in version)
    if OLDEST <= version[:2] <= NEWEST:
        return Check("python", Health.GOOD, found)
    return Check("python", Health.BAD, found, "use Python 3.11, 3.12 or 3.13")


def check_state_directory(directory: Path) -> Check:
    existing = _existing(directory)
    if os.access(existing, os.W_OK | os.X_OK):
        return Check("state directory", Health.GOOD, str(directory))
    advice = "set EVALFLEET_HOME to a writable directory"
    return Check("state directory", Health.BAD, f"{existing} is not writable", advice)


def check_disk(directory: Path, free: int) -> Check:
    found = f"{free / (1 << 30):.1f} GiB free at {directory}"
    if free >= GOOD_DISK:
        return Check("disk", Health.GOOD, found)
    health = Health.WARNING if free >= LEAST_DISK else Health.BAD
    return Check("disk", health, found, "make room, or set EVALFLEET_HOME to a larger disk")


def check_descriptors(limit: int) -> Check:
    if limit == resource.RLIM_INFINITY or limit >= GOOD_DESCRIPTORS:
        return Check("open files", Health.GOOD, f"limit {'none' if limit == resource.RLIM_INFINITY else limit}")
    return Check("open files", Health.WARNING, f"limit {limit}", f"ulimit -n {GOOD_DESCRIPTORS}")


def check_bytecode(package: str) -> Check:
    """Without cached bytecode every process of a package's own compiles it again: seconds at each start."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return Check(package, Health.BAD, "not installed", f"pip install {package}, or run with --inline")
    if Path(importlib.util.cache_from_source(spec.origin)).is_file():
        return Check(package, Health.GOOD, "installed and compiled")
    advice = f"{sys.executable} -m compileall -q {Path(spec.origin).parent}"
    return Check(package, Health.WARNING, "installed without bytecode, so it starts two to three times slower", advice)


async def check_git() -> Check:
    advice = "install git: an eval that follows the changes in its sandbox needs it"
    try:
        done = await processes.run(("git", "--version"), timeout=_PROGRAM_SECONDS)
    except OSError:
        return Check("git", Health.WARNING, "not installed", advice)
    if done.ok:
        return Check("git", Health.GOOD, done.text.strip().removeprefix("git version "))
    return Check("git", Health.WARNING, f"git --version ended with {done.exit_code}", advice)


async def check_user_namespaces() -> Check:
    advice = "allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces)"
    try:
        done = await processes.run(("unshare", "--user", "true"), timeout=_PROGRAM_SECONDS)
    except OSError:
        return Check("user namespaces", Health.WARNING, "there is no program `unshare` to try them with", advice)
    if done.ok:
        return Check("user namespaces", Health.GOOD, "allowed")
    return Check("user namespaces", Health.WARNING, "refused: no sandbox can use them", advice)


def check_plugins(what: str, factories: Mapping[str, Any]) -> Check:
    """Whether each installed one can be imported."""
    broken: list[str] = []
    for name in factories:
        try:
            factories[name]
        except ConfigurationError as error:
            broken.append(str(error))
    if broken:
        return Check(what, Health.WARNING, "; ".join(broken), "install what is missing, or remove the package")
    return Check(what, Health.GOOD, ", ".join(factories) or "none")


def check_backend(name: str, fault: str | None) -> Check:
    """Whether sandboxes of this backend can be made here, by what keeps them from it."""
    if fault is None:
        return Check(f"sandbox {name}", Health.GOOD, "works here")
    return Check(f"sandbox {name}", Health.WARNING, fault, f"until then no experiment can say `backend: {name}` here")


def check_default_backend(settings: Settings, faults: Mapping[str, str | None]) -> Check:
    """What sandboxes get that name no backend, and whether that isolates anything. `faults` is of each backend."""
    name = "default sandbox backend"
    if settings.sandbox_backend is None and settings.ray_address is not None:
        found = f"none: runs go to {settings.ray_address}, and what works on its workers can't be told from here"
        return Check(name, Health.WARNING, found, f"name sandbox.backend in experiments, or set {SANDBOX_BACKEND}")
    try:
        default = chosen(faults, settings.sandbox_backend)
    except ConfigurationError as error:
        return Check(name, Health.BAD, str(error), f"correct {SANDBOX_BACKEND}, or unset it")
    found = f"{default.name or 'none'}: {default.why}"
    if default.name is not None and faults.get(default.name) is not None:
        return Check(name, Health.WARNING, f"{found}, but that does not work here", "mend it, or set another")
    if default.name not in (None, NOT_ISOLATING):
        return Check(name, Health.GOOD, found)
    return Check(name, Health.WARNING, found, f"make {ISOLATING} work here, or name another backend in experiments")


async def check_record_store(settings: Settings) -> Check:
    """Whether it can be used, and what a commit survives there."""
    embedded = f"embedded, in {settings.state_dir / 'postgres'}"
    where = embedded if settings.database_url is None else place(settings.database_url)
    try:
        async with open_store(settings) as url, await connect(url, autocommit=True) as connection:
            shown = [await (await connection.execute(f"SHOW {name}")).fetchone() for name in _SHOWN]
    except EvalfleetError as error:
        return Check("record store", Health.BAD, f"{where}: {describe(error)}", "see `orchestrate db --help`")
    version, fsync, commit, standbys = (str(row[0]) if row else "" for row in shown)
    found = f"{where}, Postgres {version}"
    if "off" in (fsync, commit):
        return Check(
            "record store", Health.WARNING, f"{found}: a crash may lose commits", "set fsync and synchronous_commit on"
        )
    survives = "failover, by a synchronous standby" if standbys else "a restart of the server"
    return Check("record store", Health.GOOD, f"{found}; commits survive {survives}")


_SHOWN = ("server_version", "fsync", "synchronous_commit", "synchronous_standby_names")


def _existing(path: Path) -> Path:
    """The nearest folder at or above `path` that exists."""
    return next(folder for folder in (path, *path.parents) if folder.exists())
