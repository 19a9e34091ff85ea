"""What is recorded of sandboxes: the default backend, how long an attempt had one, those that outlive their maker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

#: Where a run's lock keeps its default backend.
DEFAULT_BACKEND = "default_backend"


class KeepSandbox(StrEnum):
    """Whose sandbox stays for a person to look at: nobody's, that of failed and errored attempts, everybody's."""

    NONE = "none"
    FAILED = "failed"
    ALL = "all"


class SandboxState(StrEnum):
    """How far a sandbox has come. `lost` is one that went away by itself, `kept` one that was left on purpose."""

    ANNOUNCED = "announced"
    MADE = "made"
    GONE = "gone"
    KEPT = "kept"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultBackend:
    """The backend of a run's sandboxes for which nobody names one, and why it is that one.

    `name` is None where it can't be told. `tried` says that it was just seen to work on this machine, `recorded` that
    it is the one of a run that was planned before, maybe elsewhere.
    """

    name: str | None
    why: str
    tried: bool = False
    recorded: bool = False

    def as_json(self) -> dict[str, str | None]:
        """What a run keeps of it."""
        return {"name": self.name, "why": self.why}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> DefaultBackend:
        """What a run kept."""
        return cls(name=value["name"], why=value["why"], recorded=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxUse:
    """What an attempt took of its backend: how many sandboxes were started for it, and seconds of each part.

    `using` is from the moment one was ready until its closing began. `kept` is its id when it was left in place.
    """

    backend: str
    starts: int
    making: float
    using: float = 0.0
    closing: float = 0.0
    kept: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxEntry:
    """A sandbox as it is announced: for which attempt it is made, by which backend, under which owner's label.

    `case` is the case's ordinal, `template` the digest of what it is made from, as hexadecimal. In `ttl` seconds
    whoever it is for has ended, whatever became of him.
    """

    backend: str
    owner: str
    run: str
    attempt: int
    case: int
    eval_id: str
    template: str
    ttl: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxRow:
    """A sandbox as the record store has it. `id` is its backend's, None before it was made; times since the epoch.

    `host` and `pid` are of the process that announced it. `expired` says that its time is over, `ownerless` that its
    run has ended or is not in this store any more.
    """

    backend: str
    owner: str
    id: str | None
    run: str
    attempt: int
    case: int
    eval_id: str
    host: str
    pid: int
    state: SandboxState
    created_at: float
    expires_at: float
    expired: bool
    ownerless: bool


class Standing(StrEnum):
    """Whether somebody still has a use for a sandbox, as far as that can be known from here."""

    IN_USE = "in use"
    KEPT = "kept"
    ORPHAN = "orphan"
    UNVERIFIED = "unverified"


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxView:
    """One sandbox as listed: its backend and id there, whose it is, and how it stands and why.

    `alive` says whether the process that made it lives, None when that can't be told from here. What the record
    store does not know is None; `created_at` is in seconds since the epoch.
    """

    backend: str
    id: str
    owner: str
    host: str
    pid: int
    created_at: float
    alive: bool | None
    standing: Standing
    why: str
    run: str | None = None
    case: int | None = None
    eval_id: str | None = None
