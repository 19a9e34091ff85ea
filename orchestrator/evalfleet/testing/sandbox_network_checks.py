"""What any sandbox has to do with the network: `none` is none, or a notice says that it isn't.

They need bash, nc or python3 in the sandbox, to connect with.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, closing
from pathlib import Path

from evalfleet.model.definition import SandboxSpec
from evalfleet.sandbox_ports import Command, CommandResult, Inlet, Listening, Reachable, Sandbox
from evalfleet.testing.runner import pytest
from evalfleet.testing.sandbox_subject import Subject, notices

_TOLD = b"from the outside\n"
#: Prints what is told at an address, by whatever the sandbox has.
_CONNECT = """
if command -v bash; then exec bash -c 'exec 3<>"/dev/tcp/$0/$1" && cat <&3' "$1" "$2"
elif command -v nc; then exec nc -w 5 "$1" "$2" </dev/null
elif command -v python3; then exec python3 -c '
import socket, sys
print(socket.create_connection(sys.argv[1:], 5).makefile().read(), end="")' "$1" "$2"
fi; echo "neither bash nor nc nor python3 to connect with" >&2; exit 99
"""


async def without_a_network_no_route_leads_out(on: Subject) -> None:
    if _unenforced(on):
        return
    assert await _routes(on.sandbox) == []


async def without_a_network_the_host_is_out_of_reach(on: Subject) -> None:
    if _unenforced(on):
        return
    async with _listener() as (port, told):
        for address in ("127.0.0.1", *_addresses()):
            result = await _connect(on.sandbox, address, port)
            assert _TOLD not in result.stdout
            assert result.exit_code not in (0, 99), result.stderr.decode("utf-8", "replace")
        assert told == []


async def the_loopback_of_a_sandbox_works(on: Subject) -> None:
    result = await _connect(on.sandbox, "127.0.0.1", 1)
    assert not result.ok
    assert b"refused" in result.stderr, result.stderr.decode("utf-8", "replace")


async def a_listener_in_the_sandbox_is_heard_there_only(on: Subject) -> None:
    if not isinstance(on.provider, Reachable):
        pytest.skip(f"the backend {on.provider.name} has no listeners in its sandboxes")
    inlets: list[Inlet] = []

    async def opening(sandbox: Listening) -> Mapping[str, str]:
        inlets.append(await sandbox.listen())
        return {"PORT": str(inlets[0].port)}

    spec = SandboxSpec(image=on.image, setup=('test -n "$PORT"',))
    mine, other = await on.provider.create_reachable(spec, "reachable", opening), await on.create("other")
    (inlet,) = inlets
    with closing(socket.socket(fileno=inlet.descriptor)) as listener:
        listener.setblocking(False)
        answering = asyncio.ensure_future(_answer_once(listener))
        if not _unenforced(on):
            assert not (await _connect(other, "127.0.0.1", inlet.port)).ok
        result = await _connect(mine, "127.0.0.1", inlet.port)
        await answering
    assert result.stdout.endswith(_TOLD)


async def an_open_network_is_open(on: Subject) -> None:
    sandbox = await on.create("open", SandboxSpec(network="open"))
    assert notices(sandbox, "network") == []
    if Path("/proc/net/route").exists() and len(Path("/proc/net/route").read_text().splitlines()) > 1:
        assert await _routes(sandbox) != []


def _unenforced(on: Subject) -> bool:
    """Whether the sandbox says that it has a network all the same, as only one that isolates nothing may."""
    unenforced = bool(notices(on.sandbox, "network"))
    assert not (unenforced and on.provider.isolates), "a backend that isolates has to keep the network out"
    return unenforced


async def _routes(sandbox: Sandbox) -> list[str]:
    """The routes of the sandbox but those to itself."""
    script = "tail -n +2 /proc/net/route; test ! -e /proc/net/ipv6_route || grep -v ' lo$' /proc/net/ipv6_route; :"
    result = await sandbox.run(Command(argv=("sh", "-c", script)))
    assert result.ok and result.stderr == b""
    return result.text.splitlines()


async def _connect(sandbox: Sandbox, host: str, port: int) -> CommandResult:
    return await sandbox.run(Command(argv=("sh", "-c", _CONNECT, "sh", host, str(port)), timeout=10.0))


def _addresses() -> list[str]:
    """Where this host is reached from outside of it, if it is at all."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing; the kernel says from where it would
        except OSError:
            return []
        return [probe.getsockname()[0]]


@asynccontextmanager
async def _listener() -> AsyncGenerator[tuple[int, list[str]]]:
    """A server on every address of this host: its port, and who was told something there."""
    told: list[str] = []

    async def tell(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        told.append(str(writer.get_extra_info("peername")))
        writer.write(_TOLD)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(tell, "0.0.0.0", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], told


async def _answer_once(listener: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    connection, _ = await loop.sock_accept(listener)
    with connection:
        await loop.sock_sendall(connection, _TOLD)
