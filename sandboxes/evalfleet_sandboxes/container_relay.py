"""How the inner end of a relay is started for a container: in it, or in one beside it that shares its network."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from evalfleet.errors import AttemptFailure
from evalfleet.sandbox_ports import CommandResult
from evalfleet_sandboxes.blocking import in_thread
from evalfleet_sandboxes.container_box import BoxPlan
from evalfleet_sandboxes.container_engine import SHORT, Engine
from evalfleet_sandboxes.inside import KEEPER, MARK
from evalfleet_sandboxes.relay import SocketPipe, Start, no_python, short_folder
from evalfleet_sandboxes.relay_session import CutError, Pipe

#: Who owns nothing in most images, so that no command of another user can end it.
_NOBODY = "65534:65534"
#: What a client ends with when the program is not there, or can't be run.
_NO_PROGRAM = (126, 127)
_GOODBYE_SECONDS = 3.0


def relay_in(engine: Engine, plan: BoxPlan) -> Start:
    """Starts relays of the container of a plan."""
    numbers = itertools.count(1)

    @asynccontextmanager
    async def start(argv: tuple[str, ...]) -> AsyncGenerator[Pipe]:
        beside = None if plan.relay_image is None else f"{plan.name}-relay-{next(numbers)}"
        told = _inside(plan.name, argv) if beside is None else _beside(plan, beside, argv)
        folder = await in_thread(short_folder)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
                listener.bind(str(folder / "s"))
                listener.listen(1)
                listener.setblocking(False)
                client = engine.attach(folder / "s", *told, group=plan.name)
                running = asyncio.create_task(client, name=f"relay of {plan.name}")
                async with _held(engine, running, listener) as pipe:
                    yield pipe
        finally:
            await in_thread(shutil.rmtree, folder, True)
            if beside is not None:
                with contextlib.suppress(AttemptFailure):  # it removes itself; this is for one that could not
                    await asyncio.shield(engine.remove(beside))

    return start


@asynccontextmanager
async def _held(
    engine: Engine, running: asyncio.Task[CommandResult], listener: socket.socket
) -> AsyncGenerator[SocketPipe]:
    """The client's stdin and stdout. What it said at its end is what a cut is told with."""
    writer: asyncio.StreamWriter | None = None
    try:
        accepting = asyncio.ensure_future(asyncio.get_running_loop().sock_accept(listener))
        await asyncio.wait((accepting, running), timeout=SHORT, return_when=asyncio.FIRST_COMPLETED)
        if not accepting.done():
            accepting.cancel()
            raise CutError("its client did not start")
        reader, writer = await asyncio.open_connection(sock=accepting.result()[0])
        yield SocketPipe(reader, writer)
    except CutError as cut:
        await asyncio.wait((running,), timeout=_GOODBYE_SECONDS)
        if not running.done():
            raise
        ended = running.result()
        if ended.exit_code in _NO_PROGRAM:
            raise no_python(engine.said(ended)) from cut
        raise CutError(engine.said(ended)) from cut
    finally:
        if writer is not None:
            writer.transport.abort()  # which is the end of its stdin
        await asyncio.shield(_ended(running))


async def _ended(running: asyncio.Task[CommandResult]) -> None:
    await asyncio.wait((running,), timeout=_GOODBYE_SECONDS)
    running.cancel()
    await asyncio.wait((running,))
    if not running.cancelled():
        running.exception()


def _inside(name: str, argv: tuple[str, ...]) -> tuple[str, ...]:
    who = ("--user", _NOBODY, "--workdir", "/", "--env", f"{MARK}={KEEPER}")
    return ("exec", "--interactive", *who, name, *argv)


def _beside(plan: BoxPlan, name: str, argv: tuple[str, ...]) -> tuple[str, ...]:
    rights = ("--user", _NOBODY, "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--read-only")
    place = ("--name", name, "--network", f"container:{plan.name}", "--workdir", "/", "--pids-limit", "16")
    first, *rest = argv
    return ("run", "--rm", "--interactive", *rights, *place, "--entrypoint", first, plan.relay_image or "", *rest)
