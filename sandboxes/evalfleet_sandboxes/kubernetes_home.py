"""A running Pod, moved into: where its commands and files are, and that its image can be a sandbox at all."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.model.definition import SandboxSpec
from evalfleet_sandboxes.inside import Facts, Inner, parse_facts, script
from evalfleet_sandboxes.kept_environment import written
from evalfleet_sandboxes.kubernetes_api import Cluster
from evalfleet_sandboxes.kubernetes_door import ROOM, PodDoor
from evalfleet_sandboxes.kubernetes_making import PodMaker
from evalfleet_sandboxes.kubernetes_relay import relay_of
from evalfleet_sandboxes.kubernetes_watch import PodWatch
from evalfleet_sandboxes.relay import Relays
from evalfleet_sandboxes.remote_commands import RemoteCommands
from evalfleet_sandboxes.remote_files import RemoteFiles

_STATE, _WORKDIR = f"{ROOM}/state", f"{ROOM}/work"
#: Says whether only the loopback has routes, and goes on with its arguments. Where none are shown, nobody knows.
_ROUTES = r"""
how=closed
for table in /proc/net/route /proc/net/ipv6_route; do
  [ -r "$table" ] || { [ "$table" = /proc/net/ipv6_route ] || how=open; continue; }
  while read -r line; do
    case $line in Iface*|*"	lo"|lo"	"*|*" lo") ;; *) how=open ;; esac
  done <"$table"
done
echo $how
exec "$@"
"""
_LOCALE = {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}
_ANSWER_BYTES = 1 << 16
_SCRIPT_SECONDS = 60.0
#: How long the processes of a Pod are killed from inside before the Pod is just deleted.
_KILL_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """A Pod that commands can run in. `bash` is the path of one, if there is any; `routes` that some lead out of it.

    `shown` is what a person's shell may find of the environment, as `kept_environment` writes it.
    """

    name: str
    door: PodDoor
    workdir: str
    bash: str | None
    routes: bool
    shown: str
    commands: RemoteCommands
    files: RemoteFiles
    relays: Relays


class Homes:
    """Makes Pods, moves in and out. `scratch` is a directory of this machine for files on their way."""

    def __init__(self, cluster: Cluster, watch: PodWatch, maker: PodMaker, scratch: Path) -> None:
        self._cluster = cluster
        self._watch = watch
        self._maker = maker
        self._scratch = scratch
        self._workdirs: dict[str, str] = {}

    async def move_in(self, spec: SandboxSpec, owner: str, relay: str | None) -> Home:
        """Move into a Pod of its own; one with a container of the image `relay` beside it can be listened in.

        Raises AttemptFailure of kind sandbox; then there is no Pod.
        """
        lease = self._maker.lease(owner)
        name = lease.name
        await self._maker.make(lease, spec, Inner(state=_STATE, workdir=_WORKDIR).keep(open_to_all=False), relay)
        door = PodDoor(self._cluster, name, lambda: self._watch.now(name), lambda: self._maker.remove(name))
        try:
            inner = Inner(state=_STATE, workdir=await self._workdir(door, spec.image or ""))
            facts, routes = await self._facts(door, inner, spec)
        except BaseException:
            await asyncio.shield(self._give_up(name))
            raise
        place = _of_place(facts, spec.env)
        commands = RemoteCommands(door, inner, {**place, **spec.env})
        files = RemoteFiles(door, inner.workdir, self._scratch)
        return Home(
            name=name,
            door=door,
            workdir=inner.workdir,
            bash=facts.bash,
            routes=routes,
            shown=written(spec, place),
            commands=commands,
            files=files,
            relays=Relays(relay_of(self._cluster, name)),
        )

    async def keep(self, home: Home, why: AttemptFailure) -> None:
        """Kill every process, and let the Pod stay as it is. Raises AttemptFailure."""
        await home.relays.close()
        await home.door.kill_all()
        home.door.shut(why)
        await self._maker.keep(home.name, home.workdir, home.shown)
        await home.commands.end_all()

    async def move_out(self, home: Home, why: AttemptFailure) -> None:
        """Kill every process, remove the Pod. Raises AttemptFailure SANDBOX_CLEANUP_FAILED; may be called again."""
        await home.relays.close()
        with contextlib.suppress(TimeoutError):  # what this misses ends with the Pod, a while later
            async with asyncio.timeout(_KILL_SECONDS):
                await home.door.kill_all()
        home.door.shut(why)
        await self._maker.remove(home.name)
        await home.commands.end_all()

    async def _workdir(self, door: PodDoor, image: str) -> str:
        """Where the image wants its commands to start, asked once; a place of ours when it says nothing."""
        if image not in self._workdirs:
            asked = await door.exec(script("readlink -f ."), limit=_ANSWER_BYTES, timeout=_SCRIPT_SECONDS)
            own = asked.stdout.decode("utf-8", "surrogateescape").removesuffix("\n")
            self._workdirs[image] = _WORKDIR if own in ("", "/") else own
        return self._workdirs[image]

    async def _facts(self, door: PodDoor, inner: Inner, spec: SandboxSpec) -> tuple[Facts, bool]:
        """What the image has, and whether a route leads out of the Pod."""
        asked = await door.exec(script(_ROUTES, *inner.facts()), limit=_ANSWER_BYTES, timeout=_SCRIPT_SECONDS)
        routes, _, rest = asked.stdout.partition(b"\n")
        facts = parse_facts(rest)
        if facts is None:
            said = asked.stderr[-1000:].decode("utf-8", "replace").strip()
            raise _failure("SANDBOX_IMAGE_UNFIT", f"{spec.image}: it does not say what it has: {said}")
        if unfit := "; ".join(_unfit(facts, inner.workdir)):
            raise _failure("SANDBOX_IMAGE_UNFIT", f"{spec.image}: {unfit}")
        return facts, routes != b"closed"

    async def _give_up(self, name: str) -> None:
        with contextlib.suppress(AttemptFailure):  # how it came to this says more; its label and its deadline remain
            await self._maker.remove(name)


def _unfit(facts: Facts, workdir: str) -> Iterator[str]:
    if not facts.prepared:
        yield f"{_STATE} could not be made in it"
    if facts.missing:
        yield f"it lacks {', '.join(facts.missing)}, which a sandbox needs; install them in the image"
    if facts.locked:
        yield f"its commands can't write to its workdir {workdir}; set sandbox.user to the number of the folder's owner"


def _of_place(facts: Facts, own: Mapping[str, str]) -> dict[str, str]:
    """What every command finds below the spec's own environment."""
    return {"HOME": facts.home, **({} if {"LANG", "LC_ALL"} & set(own) else _LOCALE)}


def _failure(code: str, message: str) -> AttemptFailure:
    return AttemptFailure(FailureKind.SANDBOX, code, message)
