"""What an agent may try to get out of its sandbox, or to harm what is around it; for any provider that isolates.

Each try is an async function of a `Scene`: two sandboxes of a provider, and things of this machine that no sandbox
may find.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from evalfleet.errors import AttemptFailure
from evalfleet.gateway.listener import AttemptGateway, GatewayRoom
from evalfleet.model.definition import Resources, SandboxSpec
from evalfleet.randomness import SystemRandom
from evalfleet.sandbox_ports import (
    Command,
    CommandResult,
    Listening,
    Reachable,
    Sandbox,
    SandboxProvider,
    Unenforced,
)
from evalfleet.testing.sandbox_subject import alive, forever

MEBIBYTE = 1 << 20
GONE = {"SANDBOX_LOST", "SANDBOX_OOM"}


@dataclass(slots=True)
class Scene:
    """A provider with an attempt's sandbox and its neighbour's, and what of this machine bears `token`."""

    provider: SandboxProvider
    spec: SandboxSpec
    folder: Path
    mine: Sandbox
    neighbour: Sandbox
    token: str = field(default_factory=lambda: secrets.token_hex(16))
    _made: int = 0

    async def sh(self, script: str, *arguments: str, timeout: float = 60.0, on: Sandbox | None = None) -> CommandResult:
        argv = ("bash", "-c", script, "bash", *arguments)
        return await (on or self.mine).run(Command(argv=argv, timeout=timeout))

    async def limited(self, resources: Resources) -> Sandbox:
        """A sandbox with limits; skips where the backend says that it enforces none of them here."""
        self._made += 1
        sandbox = await self.provider.create(replace(self.spec, resources=resources), f"limited-{self._made}")
        if isinstance(sandbox, Unenforced) and any("resources." in notice for notice in sandbox.notices):
            pytest.skip(f"not enforced here: {sandbox.notices}")
        return sandbox

    async def neighbour_is_well(self) -> None:
        result = await self.sh("echo well; cat kept", on=self.neighbour)
        assert result.text == f"well\n{self.token}"


@asynccontextmanager
async def scene(provider: SandboxProvider, spec: SandboxSpec, folder: Path) -> AsyncGenerator[Scene]:
    """Two sandboxes; the neighbour has a file with the token in it."""
    mine, neighbour = await provider.create(spec, "mine"), await provider.create(spec, "neighbour")
    made = Scene(provider, spec, folder, mine, neighbour)
    await neighbour.write("kept", made.token.encode())
    yield made


# --- what can be found ----------------------------------------------------------------------------------------


async def a_file_of_the_host_is_not_there(on: Scene) -> None:
    canary = on.folder / f"canary-{on.token}"
    canary.write_text(on.token)
    canary.chmod(0o644)
    for path in (str(canary), f"/proc/1/root{canary}", f"/proc/self/root{canary}", f"/host{canary}"):
        assert not (await on.sh('cat "$1"', path)).ok, path
    found = await on.sh('find / -name "canary-$1" -not -path "/proc/*" 2>/dev/null', on.token)
    assert found.stdout == b""


async def secrets_of_the_host_can_not_be_read(on: Scene) -> None:
    host = b"nothing to see"
    with contextlib.suppress(OSError):
        host = await asyncio.to_thread(Path("/etc/shadow").read_bytes)
    assert host not in (await on.sh("cat /etc/shadow /proc/1/r??t/etc/shadow 2>/dev/null")).stdout
    assert (await on.sh("ls -A /root /home/* 2>/dev/null | head -c 1000")).text.count(".ssh") == 0


async def the_neighbours_files_are_not_there(on: Scene) -> None:
    tree = on.neighbour.tree
    if tree is not None:
        assert not (await on.sh('cat "$1/kept"', str(tree))).ok
    places = "/tmp /var /home /root /sandbox /workspace /work /run /opt /srv /mnt"
    found = await on.sh(f'grep -rl "$1" {places} 2>/dev/null', on.token)
    assert found.stdout == b""


async def processes_of_the_host_are_not_there(on: Scene) -> None:
    outside = await asyncio.create_subprocess_exec("sleep", "600", env={"TOKEN": on.token})
    try:
        seen = await on.sh("cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'")
        assert on.token not in seen.text and "pytest" not in seen.text
        assert not (await on.sh('kill -0 "$1"', str(outside.pid))).ok
    finally:
        outside.kill()
        await outside.wait()


async def sockets_of_the_host_are_not_there(on: Scene) -> None:
    path = on.folder / "s"
    with (
        contextlib.closing(socket.socket(socket.AF_UNIX)) as named,
        contextlib.closing(socket.socket(socket.AF_UNIX)) as abstract,
    ):
        named.bind(str(path))
        named.listen()
        abstract.bind(f"\0evalfleet-{on.token}")
        abstract.listen()
        assert not (await on.sh('test -e "$1"', str(path))).ok
        assert on.token not in (await on.sh("cat /proc/net/unix")).text


# --- what can be reached --------------------------------------------------------------------------------------


async def no_port_of_the_host_can_be_reached(on: Scene) -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:
        port = server.getsockname()[1]
        for address in ("127.0.0.1", "localhost", *_own_addresses(), "169.254.169.254"):
            tried = await on.sh('timeout 5 bash -c "exec 3<>/dev/tcp/$1/$2"', address, str(port))
            assert not tried.ok, address


async def no_route_leads_out(on: Scene) -> None:
    routes = (await on.sh("cat /proc/net/route")).text.splitlines()
    assert [line for line in routes[1:] if not line.startswith("lo")] == []


async def only_its_own_gateway_answers(on: Scene) -> None:
    async with _reachable(on, "reachable") as (mine, gateway), _reachable(on, "another") as (_, other):
        url, foreign = gateway.environment["EVALFLEET_GATEWAY"], other.environment["EVALFLEET_GATEWAY"]
        assert '{"gateway":"evalfleet"}' in (await _get(on, mine, url)).text
        place = url.rpartition("/")[0]
        for token in (foreign.rpartition("/")[2], "guess", ""):
            assert "404" in (await _get(on, mine, f"{place}/{token}")).text.splitlines()[0], token
        assert not (await _get(on, mine, foreign)).ok or place == foreign.rpartition("/")[0]
        assert not (await _get(on, on.mine, url)).ok
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            answer = await _get(on, mine, f"http://127.0.0.1:{port}/")
            assert not answer.ok, (url, port, answer)
        await gateway.close()
        assert not (await _get(on, mine, url)).ok


async def a_tunnel_leads_to_the_allowed_host_only(on: Scene) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as other:
        allowed, closed = (f"127.0.0.1:{each.getsockname()[1]}" for each in (server, other))
        async with _reachable(on, "reachable", allowed) as (mine, gateway):
            answers = asyncio.ensure_future(asyncio.to_thread(_say_hello, server))
            proxy = gateway.environment["HTTPS_PROXY"]
            through = (await _connect(on, mine, proxy, allowed)).text
            assert through.startswith("HTTP/1.1 200") and through.endswith("hello")
            await answers
            assert "403" in (await _connect(on, mine, proxy, closed)).text.splitlines()[0]
            assert not (await on.sh('exec 3<>"/dev/tcp/$1/$2"', *allowed.split(":"), on=mine)).ok


@asynccontextmanager
async def _reachable(on: Scene, owner: str, *allow: str) -> AsyncGenerator[tuple[Sandbox, AttemptGateway]]:
    """A further sandbox with a gateway of its own, which its setup finds."""
    if not isinstance(on.provider, Reachable):
        pytest.skip("this backend's network can't be listened in from here")
    gateways: list[AttemptGateway] = []

    async def opening(sandbox: Listening) -> Mapping[str, str]:
        gateways.append(await GatewayRoom(SystemRandom()).open(sandbox, allow, {}))
        return gateways[0].environment

    spec = replace(on.spec, network=allow or "none", setup=('test -n "$EVALFLEET_GATEWAY"',))
    sandbox = await on.provider.create_reachable(spec, owner, opening)
    try:
        yield sandbox, gateways[0]
    finally:
        await gateways[0].close()


def _say_hello(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        connection.sendall(b"hello")


async def _connect(on: Scene, sandbox: Sandbox, proxy: str, target: str) -> CommandResult:
    """The answer to a CONNECT, and what the other end says then, by the shell alone."""
    user, _, place = proxy.removeprefix("http://").partition("@")
    script = (
        'exec 3<>"/dev/tcp/$1/$2" && secret=$(printf %s "$3" | base64 -w 0) && printf '
        "'CONNECT %s HTTP/1.1\\r\\nHost: %s\\r\\nProxy-Authorization: Basic %s\\r\\n\\r\\n' "
        '"$4" "$4" "$secret" >&3 && timeout 10 cat <&3'
    )
    return await on.sh(script, *place.split(":"), user, target, on=sandbox)


async def _get(on: Scene, sandbox: Sandbox, url: str) -> CommandResult:
    """The answer to a plain request, by the shell alone."""
    host, _, path = url.removeprefix("http://").partition("/")
    script = 'exec 3<>"/dev/tcp/$1/$2" && printf "GET /%s HTTP/1.0\\r\\n\\r\\n" "$3" >&3 && timeout 10 cat <&3'
    return await on.sh(script, *host.split(":"), path, on=sandbox)


def _own_addresses() -> set[str]:
    with contextlib.suppress(OSError):
        return {str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    return set()


# --- what can be changed --------------------------------------------------------------------------------------


async def privileges_can_not_be_had(on: Scene) -> None:
    assert (await on.sh("grep -E '^Cap(Prm|Eff|Bnd)' /proc/self/status | awk '{print $2}' | sort -u")).text.split() == [
        "0" * 16
    ]
    assert (await on.sh("awk '/^NoNewPrivs/ {print $2}' /proc/self/status")).text == "1\n"
    for tried in ("mount -t tmpfs none /mnt", "mknod /tmp/disk b 8 0", "chroot / true", "unshare --mount true"):
        assert not (await on.sh(tried)).ok, tried
    assert (await on.sh("find /dev -type b 2>/dev/null")).stdout == b""


# --- what can be harmed ---------------------------------------------------------------------------------------


async def a_fork_bomb_is_contained(on: Scene) -> None:
    sandbox = await on.limited(Resources(pids=64))
    seconds = forever()
    bomb = asyncio.ensure_future(
        on.sh('b() { sleep "$1" & b "$1" & b "$1"; }; b "$1"', seconds, timeout=4.0, on=sandbox)
    )
    await on.neighbour_is_well()
    with contextlib.suppress(AttemptFailure):  # its own sandbox may be lost to it
        await bomb
    assert alive(seconds) <= 64
    await on.neighbour_is_well()
    await sandbox.close()
    assert alive(seconds) == 0


async def a_memory_bomb_is_contained(on: Scene) -> None:
    sandbox = await on.limited(Resources(memory=96 * MEBIBYTE))
    try:
        result = await on.sh("head -c 400000000 /dev/zero | tail | wc -c", on=sandbox)
        assert result.oom_kills, result
    except AttemptFailure as failure:
        assert failure.code == "SANDBOX_OOM"
    await on.neighbour_is_well()


async def a_full_disk_is_its_own(on: Scene) -> None:
    sandbox = await on.limited(Resources(disk=24 * MEBIBYTE))
    result = await on.sh("head -c 100000000 /dev/zero > big", on=sandbox)
    assert not result.ok and b"No space left" in result.stderr
    assert (await on.sh("rm big && echo room", on=sandbox)).text == "room\n"
    await on.neighbour_is_well()


async def an_agent_that_kills_everything_has_no_result(on: Scene) -> None:
    for script in ("kill -9 1; echo on", "kill -9 -1; echo on"):
        with contextlib.suppress(AttemptFailure):
            assert (await on.sh(script)).exit_code in (0, None, 1, 137)
    try:
        await on.mine.probe()
        assert (await on.sh("echo lives")).text == "lives\n"
    except AttemptFailure as failure:
        assert failure.code in GONE
    await on.neighbour_is_well()


async def an_agent_that_deletes_its_workdir_is_seen(on: Scene) -> None:
    await on.sh('cd /; rm -rf "$1"; mv "$1" "$1-moved"', on.mine.workdir)
    try:
        await on.mine.probe()
        await on.mine.write("again", b"here")
    except AttemptFailure as failure:
        assert failure.code in GONE
    await on.neighbour_is_well()


async def a_daemon_that_holds_the_pipes_ends_with_its_sandbox(on: Scene) -> None:
    seconds = forever()
    result = await on.sh('(setsid sleep "$1" &) ; echo done', seconds, timeout=30.0)
    assert (result.text, result.timed_out) == ("done\n", False)
    await on.mine.close()
    assert alive(seconds) == 0
    await on.neighbour_is_well()


TRIES: dict[str, Callable[[Scene], Awaitable[None]]] = {
    each.__name__: each
    for each in (
        a_file_of_the_host_is_not_there,
        secrets_of_the_host_can_not_be_read,
        the_neighbours_files_are_not_there,
        processes_of_the_host_are_not_there,
        sockets_of_the_host_are_not_there,
        no_port_of_the_host_can_be_reached,
        no_route_leads_out,
        only_its_own_gateway_answers,
        a_tunnel_leads_to_the_allowed_host_only,
        privileges_can_not_be_had,
        a_fork_bomb_is_contained,
        a_memory_bomb_is_contained,
        a_full_disk_is_its_own,
        an_agent_that_kills_everything_has_no_result,
        an_agent_that_deletes_its_workdir_is_seen,
        a_daemon_that_holds_the_pipes_ends_with_its_sandbox,
    )
}
