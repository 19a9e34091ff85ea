"""Whose a container is: the labels that say so, and whether the process that they name lives."""

from __future__ import annotations

import hashlib
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from evalfleet.sandbox_ports import FoundSandbox, SandboxPlace
from evalfleet_sandboxes.container_engine import InspectedContainer
from evalfleet_sandboxes.process_start import start_of

_PREFIX = "evalfleet."
_STATE, _OWNER, _HOST, _PID, _START, _RUN = (
    f"{_PREFIX}{name}" for name in ("state", "owner", "host", "pid", "start", "run")
)


_WORKDIR, _USER = f"{_PREFIX}workdir", f"{_PREFIX}user"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """This process. Containers of other state folders than `folder`, known by its digest, are none of its business.

    `start` is when the process began, by its kernel's count: another process may get its id.
    """

    folder: Path
    host: str
    pid: int
    start: str
    run: str

    @classmethod
    def of(cls, place: SandboxPlace) -> Owner:
        pid = int(place.labels.get("pid", os.getpid()))
        return cls(
            folder=place.state.absolute(),
            host=place.labels.get("host", socket.gethostname()),
            pid=pid,
            start=start_of(pid) or "",
            run=place.labels.get("run", ""),
        )

    @property
    def state(self) -> str:
        return hashlib.sha256(os.fsencode(self.folder)).hexdigest()[:32]

    @property
    def place_label(self) -> str:
        return f"{_STATE}={self.state}"

    def labels(self, owner: str) -> tuple[str, ...]:
        said = {_STATE: self.state, _OWNER: owner, _HOST: self.host, _PID: self.pid, _START: self.start, _RUN: self.run}
        return tuple(f"{name}={value}" for name, value in said.items())

    def name(self, owner: str, number: int) -> str:
        """A name that no other container of any owner has."""
        known = "\0".join((*self.labels(owner), str(number)))
        return f"evalfleet-{hashlib.sha256(known.encode()).hexdigest()[:24]}"

    def placed(self, container: InspectedContainer) -> bool:
        """Whether the container belongs to our state folder."""
        return container.labels.get(_STATE) == self.state

    def found(self, container: InspectedContainer) -> FoundSandbox:
        labels = container.labels
        pid = labels.get(_PID, "")
        host = labels.get(_HOST, "")
        alive = None
        if host == self.host and pid.isdecimal() and labels.get(_START):
            alive = start_of(int(pid)) == labels[_START]
        identifier = container.name.removeprefix("/")
        return FoundSandbox(
            id=identifier,
            owner=labels.get(_OWNER, ""),
            host=host,
            pid=int(pid) if pid.isdecimal() else 0,
            created_at=container.created_at,
            alive=alive,
            kept=kept_mark(self.folder, identifier).exists(),
        )


def kept_mark(folder: Path, identifier: str) -> Path:
    """The file of a state folder that says of a container that it stays, and has what is known of its environment.

    A container can't be labelled any more.
    """
    return folder / f"{identifier}.kept"


def entry_labels(workdir: str, user: str | None) -> tuple[str, ...]:
    """What who enters a container later has to know."""
    return (f"{_WORKDIR}={workdir}", f"{_USER}={user or ''}")


def entry_options(container: InspectedContainer) -> tuple[str, ...]:
    """How an engine's `exec` enters a container as its commands did."""
    user = container.labels.get(_USER)
    return ("--workdir", container.labels.get(_WORKDIR, "/"), *(("--user", user) if user else ()))
