"""One container from its start to its removal, as the door that commands and files go through."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from evalfleet.errors import AttemptFailure, FailureKind, InfrastructureError
from evalfleet.model.definition import SandboxSpec
from evalfleet.sandbox_ports import CommandResult
from evalfleet_sandboxes.blocking import pause
from evalfleet_sandboxes.container_copies import EngineCopies
from evalfleet_sandboxes.container_engine import SHORT, Dialect, Engine
from evalfleet_sandboxes.container_limits import WITHOUT_GROUPS, by_groups, unenforced
from evalfleet_sandboxes.inside import KEEPER, MARK, Facts, Inner, parse_facts

#: Ours inside of every container.
STATE = "/run/evalfleet"
#: Where commands start when the image does not say.
WORKDIR = "/workspace"
#: How many more processes a container may have while we look what became of one that used up its own.
_ROOM = 64
#: What an engine's `run` ends with when the image has not got the first process.
_NO_SHELL = 127
#: What the engine does itself where an image lacks it.
_TAR = "tar"
_LOG_LINES = "20"
#: How often an engine is asked whether memory was the cause, and seconds between.
_OOM_LOOKS, _OOM_SECONDS = 12, 0.25
_LOG_TAIL = 1000
_OUTPUT_LIMIT = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxPlan:
    """What a container is made of: a local image, its workdir and user as they turn out, labels and limits."""

    name: str
    image: str
    workdir: str
    user: str | None
    spec: SandboxSpec
    labels: tuple[str, ...] = ()
    #: What relays run in, beside the container; None for the container itself.
    relay_image: str | None = None

    def apart(self, dialect: Dialect) -> bool:
        """Whether the workdir is no part of the container's own storage."""
        return self.workdir == WORKDIR and dialect.folder is not None

    def arguments(self, dialect: Dialect, *, quota: bool) -> Iterator[str]:
        """How the engine is told to run it. The first process is root without capabilities and does nothing."""
        yield from ("run", "--detach", "--name", self.name, "--hostname", "sandbox", "--workdir", "/")
        for label in self.labels:
            yield from ("--label", label)
        yield from ("--pull", "never", "--user", "0:0", "--env", f"{MARK}={KEEPER}")
        yield from ("--cap-drop", "ALL", "--security-opt", "no-new-privileges")
        if self.spec.network != "open":  # single hosts are let through by the gateway alone
            yield from ("--network", "none")
        limits = self.spec.resources
        yield from ("--pids-limit", str(-1 if limits.pids is None else limits.pids))
        if limits.memory is not None:
            yield from ("--memory", str(limits.memory), "--memory-swap", str(limits.memory))
        if limits.cpus is not None:
            yield from ("--cpus", f"{limits.cpus:g}")
        if quota:
            yield from ("--storage-opt", f"size={limits.disk}")
        if self.apart(dialect):
            yield from (dialect.folder or "", WORKDIR)
        first, *rest = Inner(state=STATE, workdir=self.workdir).keep(open_to_all=self.workdir == WORKDIR)
        yield from ("--entrypoint", first, self.image, *rest, self.name)  # by the name it is known where it is seen


class Box:
    """A running container; see `Door`. What it raises says `closed` or why it is lost, always the same once it is."""

    def __init__(self, engine: Engine, plan: BoxPlan) -> None:
        self._engine = engine
        self._plan = plan
        self._over: AttemptFailure | None = None
        self.inner = Inner(state=STATE, workdir=plan.workdir)
        self.pid = 0
        #: How files get in and out where its image has no tar.
        self.copying: EngineCopies | None = None
        self.limits_disk = False
        self.warnings: tuple[str, ...] = ()

    async def start(self) -> Facts:
        """Start it and learn what its image offers. Raises AttemptFailure SANDBOX_FAILED or SANDBOX_IMAGE_UNFIT."""
        name = self._plan.name
        limited = self._plan.spec.resources.disk is not None and not self._plan.apart(self._engine.dialect)
        result = await self._run(quota=limited and self._engine.has_quotas)
        self.limits_disk = limited and self._engine.has_quotas
        if not result.ok:
            if result.exit_code == _NO_SHELL:
                raise _failure("SANDBOX_IMAGE_UNFIT", f"{self._plan.image}: {self._engine.said(result)}")
            raise _failure("SANDBOX_FAILED", self._engine.said(result))
        said = result.stderr.decode("utf-8", "replace").splitlines()
        if by_groups(self._plan.spec.resources) and not await self._engine.limits():
            said.append(WITHOUT_GROUPS)
        self.warnings = tuple(unenforced(self._plan.spec.resources, said))
        asked = await self.exec(self.inner.facts(), limit=1 << 16, timeout=SHORT)
        facts = parse_facts(asked.stdout)
        found = await self._engine.containers((name,))
        if facts is None and found and found[0].state.running:
            raise _failure("SANDBOX_FAILED", self._engine.said(asked))
        if facts is None or not found:
            raise _failure("SANDBOX_IMAGE_UNFIT", f"{self._plan.image}: {await self._ended()}")
        if unfit := "; ".join(self._unfit(facts)):
            raise _failure("SANDBOX_IMAGE_UNFIT", f"{self._plan.image}: {unfit}")
        self.pid = found[0].state.pid
        if _TAR in facts.missing:
            self.copying = EngineCopies(self._engine, self._plan.name, facts.owner)
        return facts

    async def _run(self, *, quota: bool) -> CommandResult:
        """Run the container. An engine whose storage has no quotas refuses one, and is asked for none again."""
        arguments = self._plan.arguments(self._engine.dialect, quota=quota)
        result = await self._engine.call(*arguments, group=self._plan.name, timeout=4 * SHORT)
        if result.ok or not quota:
            return result
        await self._engine.remove(self._plan.name)
        without = await self._run(quota=False)
        self._engine.has_quotas = not without.ok
        return without

    async def exec(
        self, argv: tuple[str, ...], *, stdin: bytes = b"", user: str | None = None, limit: int, timeout: float | None
    ) -> CommandResult:
        return await self._exec(argv, stdin=stdin, user=user, limit=limit, timeout=timeout)

    async def exec_to(self, argv: tuple[str, ...], file: Path, *, timeout: float) -> CommandResult:
        return await self._exec(argv, timeout=timeout, into=file)

    async def require_alive(self) -> None:
        self.require_open()
        found = await self._engine.containers((self._plan.name,))
        self.require_open()
        if not found:
            self._over = _failure("SANDBOX_LOST", "its container is gone")
        elif not found[0].state.running:
            state = found[0].state
            code = "SANDBOX_OOM" if await self._ended_for_memory() else "SANDBOX_LOST"
            self.require_open()
            self._over = _failure(code, f"its container ended with exit code {state.exit_code}")
        self.require_open()

    async def retire(self, why: str) -> AttemptFailure:
        if self._over is None:
            code = "SANDBOX_LOST"
            with contextlib.suppress(AttemptFailure):  # it is removed when it is closed
                if await self._ended_for_memory():
                    code = "SANDBOX_OOM"
                await self._engine.remove(self._plan.name)
            self._over = self._over or _failure(code, why)
        return self._over

    @asynccontextmanager
    async def room(self) -> AsyncGenerator[None]:
        limit = self._plan.spec.resources.pids
        if limit is None:
            yield
            return
        await self._engine.call("update", "--pids-limit", str(limit + _ROOM), self._plan.name)
        try:
            yield
        finally:
            await self._engine.call("update", "--pids-limit", str(limit), self._plan.name)

    async def remove(self) -> None:
        """End every process and remove it. May be called twice. Raises AttemptFailure SANDBOX_CLEANUP_FAILED."""
        self._shut()
        await self._engine.remove(self._plan.name)
        await self._end_the_rest()

    async def stop(self) -> None:
        """End every process and leave the files. Raises AttemptFailure SANDBOX_CLEANUP_FAILED."""
        self._shut()
        result = await self._engine.call("kill", self._plan.name)
        if any(found.state.running for found in await self._engine.containers((self._plan.name,))):
            raise _failure("SANDBOX_CLEANUP_FAILED", self._engine.said(result))
        await self._end_the_rest()

    def _shut(self) -> None:
        if self._over is None or self._over.code != "SANDBOX_CLOSED":
            self._over = _failure("SANDBOX_CLOSED", f"sandbox {self._plan.name} is closed")

    async def _end_the_rest(self) -> None:
        try:
            await self._engine.end(self._plan.name)
        except InfrastructureError as error:
            raise _failure("SANDBOX_CLEANUP_FAILED", str(error)) from error

    def seen_here(self) -> Path | None:
        """Where this machine shows its first process; None when it is elsewhere, or ended. Blocking."""
        process = Path("/proc", str(self.pid))
        try:
            return process if self._plan.name.encode() in (process / "cmdline").read_bytes() else None
        except OSError:
            return None

    def require_open(self) -> None:
        """Raises the failure that it is over with, if it is."""
        if self._over is not None:
            raise self._over

    async def _exec(
        self,
        argv: tuple[str, ...],
        *,
        stdin: bytes = b"",
        user: str | None = None,
        limit: int = _OUTPUT_LIMIT,
        timeout: float | None,
        into: Path | None = None,
    ) -> CommandResult:
        self.require_open()
        who = user or self._plan.user
        asked = ("exec", "--interactive", "--workdir", "/", *(("--user", who) if who else ()), self._plan.name, *argv)
        result = await self._engine.call(
            *asked, group=self._plan.name, stdin=stdin, timeout=timeout, limit=limit, into=into
        )
        self.require_open()
        return result

    async def _ended_for_memory(self) -> bool:
        """By the engine's account, which comes to it a moment after the kernel's kill."""
        looks = 1 if self._plan.spec.resources.memory is None else _OOM_LOOKS
        for look in range(looks):
            if look:
                await pause(_OOM_SECONDS)
            if any(found.state.oom_killed for found in await self._engine.containers((self._plan.name,))):
                return True
        return False

    async def _ended(self) -> str:
        """Why a container ended at its start: its exit code and the end of its log."""
        found = await self._engine.containers((self._plan.name,))
        code = found[0].state.exit_code if found else "unknown"
        log = await self._engine.call("logs", "--tail", _LOG_LINES, self._plan.name)
        tail = (log.stdout + log.stderr)[-_LOG_TAIL:].decode("utf-8", "replace").strip()
        return f"its container ended at the start with exit code {code}\n{tail}".rstrip()

    def _unfit(self, facts: Facts) -> Iterator[str]:
        if not facts.prepared:
            yield f"{STATE} could not be made in it"
        if missing := [tool for tool in facts.missing if tool != _TAR]:
            yield f"it lacks {', '.join(missing)}, which a sandbox needs; install them in the image"
        if facts.locked:
            user = self._plan.user or "root"
            yield f"the user {user!r} can't write to the workdir {self._plan.workdir}; give it to that user"


def _failure(code: str, message: str) -> AttemptFailure:
    return AttemptFailure(FailureKind.SANDBOX, code, message)
