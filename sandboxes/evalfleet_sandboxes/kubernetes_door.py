"""The way into a Pod: scripts run through the API server, each started once whatever becomes of the connection."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shlex
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.sandbox_ports import CommandResult
from evalfleet_sandboxes.blocking import in_thread, pause
from evalfleet_sandboxes.inside import KEEPER, MARK
from evalfleet_sandboxes.kubernetes_api import Cluster, Cut, Executed, Refused
from evalfleet_sandboxes.kubernetes_pods import CONTAINER
from evalfleet_sandboxes.kubernetes_status import Stage, Standing

#: Of our volume in each Pod: what commands and files need, and the calls that were started.
ROOM = "/evalfleet"
_CALLS = f"{ROOM}/calls"
#: Seconds before each further try of a call whose connection did not come about or broke before it was started.
_BACKOFF = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
#: How many calls that are over are cleared away by the next one.
_CLEARED = 64

#: Takes a script and its input from stdin, whose end it can't see but by counting, and becomes the script. Making the
#: folder of the call claims it: it runs only here, and not at all once its caller has claimed it.
_BEGIN = r"""
calls=$1 call=$1/$2 whole=$3 length=$4
mkdir -p "$calls" 2>/dev/null && chmod 777 "$calls" 2>/dev/null
head -c "$whole" >"$call.all" || exit 75
[ $(($(wc -c <"$call.all"))) = "$whole" ] || { rm -f "$call.all"; exit 75; }
mkdir "$call" || exit 76
echo begun >&2
script=$(head -c "$length" "$call.all")
tail -c +$((length + 1)) "$call.all" >"$call.input"
exec <"$call.input"
rm -f "$call.all" "$call.input"
eval "$script"
"""
_BEGUN = b"begun\n"
#: The kernel spares the first process and the shell that asks.
_KILL_ALL = "kill -KILL -1"
_CLAIM = r'mkdir -p "$1" 2>/dev/null; mkdir "$1/$2" 2>/dev/null && echo claimed || echo started'


class PodDoor:
    """The `Door` of one Pod. `standing` is how the Pod stands by the last report; `destroy` removes the Pod."""

    def __init__(
        self, cluster: Cluster, name: str, standing: Callable[[], Standing], destroy: Callable[[], Awaitable[None]]
    ) -> None:
        self._cluster = cluster
        self._name = name
        self._standing = standing
        self._destroy = destroy
        self._calls = itertools.count(1)
        self._over: list[str] = []
        self._end: AttemptFailure | None = None

    async def exec(
        self, argv: tuple[str, ...], *, stdin: bytes = b"", user: str | None = None, limit: int, timeout: float | None
    ) -> CommandResult:
        """Run one of our scripts; without an exit code what became of it is not known.

        One with a timeout only looks, or does what may be done twice: after a cut it is asked again.
        """
        await self.require_alive()
        try:
            async with asyncio.timeout(timeout):
                done = await self._started(argv, stdin, once=timeout is None)
        except TimeoutError:
            done = None
        if done is None:
            return CommandResult(exit_code=None, stdout=b"", stderr=b"the connection was lost", duration=0.0)
        said = done.stderr.removeprefix(_BEGUN)
        return CommandResult(exit_code=done.code, stdout=done.stdout, stderr=said, duration=0.0)

    async def exec_to(self, argv: tuple[str, ...], file: Path, *, timeout: float) -> CommandResult:
        """Like `exec`, with its output in a file of this machine."""
        done = await self.exec(argv, limit=0, timeout=timeout)
        await in_thread(file.write_bytes, done.stdout)
        return replace(done, stdout=b"")

    async def require_alive(self) -> None:
        if self._end is not None:
            raise self._end
        if (now := self._standing()).stage is Stage.OVER:
            self._end = now.failure(self._name)
            raise self._end

    async def retire(self, why: str) -> AttemptFailure:
        """Remove the Pod. How it ended says more than what was seen from outside."""
        try:
            await self.require_alive()
        except AttemptFailure as failure:
            return failure
        self._end = AttemptFailure(FailureKind.SANDBOX, "SANDBOX_LOST", f"pod {self._name}: {why}")
        await self._destroy()
        return self._end

    async def kill_all(self) -> None:
        """Kill all processes but the first, as the user of the commands, where that can be done."""
        if self._end is None and self._standing().stage is not Stage.OVER:
            with contextlib.suppress(Refused, Cut):  # it may as well run twice: no need to claim it
                await self._cluster.execute(self._name, CONTAINER, ("sh", "-c", _KILL_ALL))

    def shut(self, why: AttemptFailure) -> None:
        """From now on everything raises this."""
        self._end = why

    @asynccontextmanager
    async def room(self) -> AsyncGenerator[None]:
        """A node's limit of processes can't be raised from here."""
        yield

    async def _started(self, argv: tuple[str, ...], stdin: bytes, *, once: bool) -> Executed | None:
        """Run it to its end; None when it may run but `once` and its connection was lost after it had been started."""
        said: Exception | None = None
        for wait in (0.0, *_BACKOFF):
            if wait:
                await pause(wait)
                await self.require_alive()
            call = str(next(self._calls))
            try:
                done = await self._execute(call, argv, stdin)
            except Refused as error:
                said = error
            except Cut as error:
                said = error
                if once and not await self._claimed(call):
                    return None
            else:
                self._over.append(call)
                return done
        raise await self.retire(f"no command can be run in it: {said}")

    async def _execute(self, call: str, argv: tuple[str, ...], stdin: bytes) -> Executed:
        cleared, self._over = self._over[:_CLEARED], self._over[_CLEARED:]
        clear = f"cd {_CALLS} && rmdir {' '.join(cleared)} 2>/dev/null; cd - >/dev/null\n" if cleared else ""
        script = f"{clear}exec {shlex.join(argv)}".encode("utf-8", "surrogateescape")
        sizes = (str(len(script) + len(stdin)), str(len(script)))
        begin = ("env", f"{MARK}={KEEPER}", "sh", "-c", _BEGIN, "sh", _CALLS, call, *sizes)
        return await self._cluster.execute(self._name, CONTAINER, begin, script + stdin)

    async def _claimed(self, call: str) -> bool:
        """Whether a call was not started, and now never will be."""
        claim = ("env", f"{MARK}={KEEPER}", "sh", "-c", _CLAIM, "sh", _CALLS, call)
        said: Exception | None = None
        for wait in (0.0, *_BACKOFF):
            if wait:
                await pause(wait)
            await self.require_alive()
            try:
                answer = (await self._cluster.execute(self._name, CONTAINER, claim)).stdout.strip()
            except (Refused, Cut) as error:
                said = error
                continue
            if answer in (b"claimed", b"started"):
                return answer == b"claimed"
        raise await self.retire(f"no command can be run in it: {said}")
