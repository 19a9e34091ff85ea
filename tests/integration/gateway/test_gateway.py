"""The gateway on real sockets: what an attempt's token opens, and what nothing opens."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

from evalfleet.gateway.app import route_of
from evalfleet.gateway.listener import AttemptGateway, GatewayRoom
from evalfleet.randomness import SystemRandom
from evalfleet.sandbox_ports import App, Inlet


class Host:
    """A network that can be listened in: this machine's own."""

    async def listen(self) -> Inlet:
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        return Inlet(descriptor=listener.detach(), port=port)


async def _echo(request: Request) -> PlainTextResponse:
    return PlainTextResponse(f"{request.path_params['word']} {(await request.body()).decode()}")


async def _drip(_: Request) -> StreamingResponse:
    async def pieces() -> AsyncGenerator[bytes]:
        for number in range(5):
            yield b"%d" % number
            await asyncio.sleep(0.01)

    return StreamingResponse(pieces())


async def _seen(request: Request) -> PlainTextResponse:
    """What an application sees of its place."""
    scope = request.scope
    return PlainTextResponse(f"{scope['root_path']} {scope['path']} {scope['raw_path'].decode()}")


ROUTES: dict[str, App] = {
    "/say": Starlette(routes=[Route("/{word}", _echo, methods=["POST"])]),
    "/drip": Starlette(routes=[Route("/", _drip)]),
    "/deep": Starlette(routes=[Route("/{rest:path}", _seen)]),
    "/deep/er": Starlette(routes=[Route("/{rest:path}", _seen)]),
}


@pytest.mark.parametrize(
    ("path", "prefix"),
    [
        ("/mcp", "/mcp"),
        ("/mcp/", "/mcp"),
        ("/mcp/x/y", "/mcp"),
        ("/mcpx", None),
        ("/model/one/v1/chat", "/model/one"),
        ("/model/on", None),
        ("/model", None),
        ("/model/one/../two/v1", None),
        ("/mcp/./x", None),
        ("/mcp/..", None),
        ("/mcp/...", "/mcp"),
        ("/v1", "/v1"),
        ("/v1/traces/x", "/v1/traces"),
        ("/", None),
        ("", None),
    ],
)
def test_the_longest_prefix_answers(path: str, prefix: str | None) -> None:
    assert route_of(("/v1", "/mcp", "/model/one", "/model/two", "/v1/traces"), path) == prefix


@asynccontextmanager
async def opened(allow: tuple[str, ...] = ()) -> AsyncGenerator[AttemptGateway]:
    gateway = await GatewayRoom(SystemRandom()).open(Host(), allow, ROUTES)
    try:
        yield gateway
    finally:
        await gateway.close()
        await gateway.close()


async def test_its_routes_answer_below_its_token() -> None:
    async with opened() as gateway, httpx.AsyncClient() as client:
        url = gateway.environment["EVALFLEET_GATEWAY"]
        assert (await client.get(f"{url}/")).json() == {"gateway": "evalfleet"}
        assert (await client.get(url)).json() == {"gateway": "evalfleet"}
        assert (await client.post(f"{url}/say/hello", content="there")).text == "hello there"
        assert (await client.get(f"{url}/drip/")).text == "01234"
        for nothing in ("/nothing", "/say", "/say/hello", "/sayhello"):
            assert (await client.get(url + nothing)).status_code in {404, 405}, nothing


@pytest.mark.parametrize(
    ("path", "seen"),
    [
        ("/deep/a", "/deep /deep/a /deep/a"),
        ("/deep/er/a", "/deep/er /deep/er/a /deep/er/a"),
        ("/deep/a%2Fb%20c", "/deep /deep/a/b c /deep/a%2Fb%20c"),
    ],
)
async def test_an_application_sees_its_prefix_and_never_the_token(path: str, seen: str) -> None:
    async with opened() as gateway, httpx.AsyncClient() as client:
        assert (await client.get(gateway.environment["EVALFLEET_GATEWAY"] + path)).text == seen


async def test_routes_come_and_go_while_the_gateway_is_open() -> None:
    routes: dict[str, App] = {}
    gateway = await GatewayRoom(SystemRandom()).open(Host(), (), routes)
    try:
        async with httpx.AsyncClient() as client:
            url = gateway.environment["EVALFLEET_GATEWAY"] + "/deep/a"
            assert (await client.get(url)).status_code == 404
            routes["/deep"] = ROUTES["/deep"]
            assert (await client.get(url)).status_code == 200
            del routes["/deep"]
            assert (await client.get(url)).status_code == 404
    finally:
        await gateway.close()


@pytest.mark.parametrize("path", ["", "/", "/say/hello", "/wrong/say/hello", "//", "/%2e%2e/", "/é/"])
async def test_without_its_token_nothing_is_there(path: str) -> None:
    async with opened() as gateway, httpx.AsyncClient() as client:
        place = gateway.environment["EVALFLEET_GATEWAY"].rpartition("/")[0]
        answer = await client.get(place + path)
        assert (answer.status_code, answer.text) == (404, "not found\n")


async def test_the_token_of_another_attempt_opens_nothing() -> None:
    async with opened() as mine, opened() as other, httpx.AsyncClient() as client:
        place = mine.environment["EVALFLEET_GATEWAY"].rpartition("/")[0]
        token = other.environment["EVALFLEET_GATEWAY"].rpartition("/")[2]
        assert (await client.get(f"{place}/{token}/")).status_code == 404


async def test_a_closed_gateway_answers_nobody() -> None:
    async with opened(allow=("localhost",)) as gateway, httpx.AsyncClient() as client:
        await gateway.close()
        with pytest.raises(httpx.ConnectError):
            await client.get(gateway.environment["EVALFLEET_GATEWAY"])


async def test_a_host_that_is_none_is_refused_before_anything_listens() -> None:
    with pytest.raises(ValueError, match="'http://x' names no host"):
        await GatewayRoom(SystemRandom()).open(Host(), ("http://x",), {})


async def test_what_was_opened_is_closed_when_the_rest_can_not_be() -> None:
    listening: list[socket.socket] = []

    class Once(Host):
        async def listen(self) -> Inlet:
            if listening:
                raise OSError("the sandbox is gone")
            inlet = await super().listen()
            listening.append(socket.socket(fileno=os.dup(inlet.descriptor)))
            return inlet

    with pytest.raises(OSError, match="the sandbox is gone"):
        await GatewayRoom(SystemRandom()).open(Once(), ("example.org",), {})
    [mine] = listening
    with mine:
        address = mine.getsockname()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(*address)


@asynccontextmanager
async def service() -> AsyncGenerator[int]:
    """A server of this machine that greets, says back what it hears, and waits for the end."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello ")
        writer.write(await reader.read())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def through(gateway: AttemptGateway, target: str, token: str | None = None) -> tuple[int, bytes]:
    """The status of a CONNECT and, if it is through, what the other end says to `ping`."""
    proxy = httpx.URL(gateway.environment["HTTPS_PROXY"])
    secret = base64.b64encode(f"evalfleet:{proxy.password if token is None else token}".encode()).decode()
    reader, writer = await asyncio.open_connection(proxy.host, proxy.port)
    writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nProxy-Authorization: Basic {secret}\r\n\r\n".encode())
    status = int((await reader.readuntil(b"\r\n\r\n")).split()[1])
    if status == 200:
        writer.write(b"ping")
        writer.write_eof()
    said = await reader.read()
    writer.close()
    return status, said


async def test_a_tunnel_leads_to_the_allowed_host_and_port_only() -> None:
    async with service() as port, service() as other, opened(allow=(f"127.0.0.1:{port}",)) as gateway:
        assert await through(gateway, f"127.0.0.1:{port}") == (200, b"hello ping")
        assert (await through(gateway, f"127.0.0.1:{other}"))[0] == 403
        assert (await through(gateway, f"localhost:{port}"))[0] == 403
        assert (await through(gateway, "example.org:443"))[0] == 403
        assert (await through(gateway, "nonsense"))[0] == 403
        assert gateway.refused == [f"127.0.0.1:{other}", f"localhost:{port}", "example.org:443", "nonsense"]


async def test_no_name_leads_to_this_machine() -> None:
    async with service() as port, opened(allow=(f"localhost:{port}",)) as gateway:
        assert (await through(gateway, f"localhost:{port}"))[0] == 403


async def test_a_tunnel_asks_for_the_token() -> None:
    async with service() as port, opened(allow=(f"127.0.0.1:{port}",)) as gateway:
        assert (await through(gateway, f"127.0.0.1:{port}", token="guess"))[0] == 407


async def test_a_client_that_talks_nonsense_is_cut_off() -> None:
    async with opened(allow=("example.org",)) as gateway:
        proxy = httpx.URL(gateway.environment["HTTPS_PROXY"])
        reader, writer = await asyncio.open_connection(proxy.host, proxy.port)
        writer.write(b"\0\1\2 nonsense\r\n\r\n")
        assert await reader.read() == b""
        writer.close()


async def test_closing_cuts_open_tunnels() -> None:
    async with service() as port, opened(allow=(f"127.0.0.1:{port}",)) as gateway:
        waiting = asyncio.ensure_future(_silent(gateway, f"127.0.0.1:{port}"))
        await asyncio.sleep(0.2)
        await gateway.close()
        assert await asyncio.wait_for(waiting, 5.0) == b"hello "


async def _silent(gateway: AttemptGateway, target: str) -> bytes:
    """What a client that never ends its side hears until it is cut off."""
    proxy = httpx.URL(gateway.environment["HTTPS_PROXY"])
    secret = base64.b64encode(f"evalfleet:{proxy.password}".encode()).decode()
    reader, writer = await asyncio.open_connection(proxy.host, proxy.port)
    writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic {secret}\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    said = await reader.read()
    writer.close()
    return said
