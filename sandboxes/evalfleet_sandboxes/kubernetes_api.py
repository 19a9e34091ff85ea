"""Requests to a cluster's API server: objects, watches, and commands in containers. Retried within bounds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import aiohttp
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evalfleet_sandboxes.blocking import pause
from evalfleet_sandboxes.kubernetes_access import Access
from evalfleet_sandboxes.relay_session import CutError

Json = dict[str, Any]
_Connecting = AbstractAsyncContextManager[aiohttp.ClientWebSocketResponse]

#: What a server says itself takes precedence.
_BACKOFF = (0.2, 0.5, 1.0, 2.0, 4.0)
_LONGEST_BACKOFF = 30.0
_TRANSIENT = frozenset({429, 500, 502, 503, 504})
_REQUEST_SECONDS = 60.0
_WATCH_SECONDS = 240
#: Seconds between signs of life on a command's connection: a peer that vanished is noticed.
_HEARTBEAT_SECONDS = 20.0
_FRAME = 1 << 17
#: What is kept of the stderr of a command that something is attached to.
_SAID = 1000
#: Commands that are being started at once: nodes have more trouble with that than with what runs.
_BEGINNING = 8
_STDIN, _STDOUT, _STDERR, _STATUS = range(4)
#: v5 differs in how stdin is closed, which nothing here relies on.
_PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")


class Refused(Exception):
    """The server's last word on a request. `status` is the HTTP status, `reason` the API's own word."""

    def __init__(self, status: int, reason: str, message: str, after: float | None = None) -> None:
        super().__init__(message)
        self.status, self.reason, self.message, self.after = status, reason, message, after


class Unreachable(Exception):
    """No answer from the server, however often asked."""


class Cut(CutError):
    """The connection of a command in a container ended before the command's exit status came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """How a command in a container ended, by the exit status that the server sent."""

    code: int
    stdout: bytes
    stderr: bytes


class _Cause(BaseModel):
    reason: str = ""
    message: str = ""


class _Details(BaseModel):
    causes: tuple[_Cause, ...] = ()
    retryAfterSeconds: float | None = None


class _Status(BaseModel):
    """The API's answer when it has no object to give."""

    model_config = ConfigDict(extra="ignore")

    status: str = ""
    reason: str = ""
    message: str = ""
    details: _Details | None = Field(default=None)


class Cluster:
    """One namespace of a cluster, through its API server. `backoff` is in seconds, before each further try."""

    def __init__(self, access: Access, namespace: str, backoff: tuple[float, ...] = _BACKOFF) -> None:
        self._access = access
        self._backoff = backoff
        self._beginning = asyncio.Semaphore(_BEGINNING)
        self.namespace = namespace

    @property
    def server(self) -> str:
        return self._access.server

    def path(self, kind: str, name: str = "", *, group: str = "") -> str:
        """Where objects of a kind are: `group` is `networking.k8s.io/v1`, or empty for the core's."""
        root = f"/apis/{group}" if group else "/api/v1"
        return f"{root}/namespaces/{self.namespace}/{kind}" + (f"/{name}" if name else "")

    async def call(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, body: Json | None = None
    ) -> Json:
        """One request to its end. Raises Refused, or Unreachable; both after what may pass was tried again."""
        renewed = False
        for wait in (*self._backoff, None):
            try:
                return await self._request(method, path, query, body)
            except Refused as error:
                if error.status == 401 and not renewed:
                    renewed = True
                    await self._access.renew()
                    continue
                if error.status not in _TRANSIENT or wait is None:
                    raise
                await pause(min(error.after or wait, _LONGEST_BACKOFF))
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                if wait is None:
                    raise Unreachable(f"{self.server}: {type(error).__name__}: {error}") from error
                await pause(wait)
        raise Unreachable(f"{self.server} asked again for credentials that it had just been given")

    async def watch(self, path: str, query: Mapping[str, str]) -> AsyncGenerator[Json]:
        """The events of one watch as they come, until the server ends it. Raises Refused, or what breaks it."""
        parameters = {**query, "watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(_WATCH_SECONDS)}
        timeout = aiohttp.ClientTimeout(total=None, sock_read=_WATCH_SECONDS + 30)
        async with self._access.session.get(
            self.server + path, params=parameters, timeout=timeout, **await self._how()
        ) as response:
            if response.status != 200:
                raise await _refusal(response)
            async for line in response.content:
                yield cast(Json, json.loads(line))

    async def execute(self, pod: str, container: str, argv: Sequence[str], stdin: bytes = b"") -> Executed:
        """Run a command in a container; it can't tell where its input ends. It begins with its first output.

        Raises Refused when it was not started, Cut when how it ended, or whether it started, can't be known.
        """
        streams = ("stdout", "stderr", *("stdin" for _ in stdin[:1]))
        async with self._exec(pod, container, argv, streams) as (socket, begun):
            return await _converse(socket, stdin, begun)

    @asynccontextmanager
    async def attach(self, pod: str, container: str, argv: Sequence[str]) -> AsyncGenerator[Attached]:
        """A command in a container with its stdin and stdout; it may live on for a while after the block.

        Raises Refused when it was not started, Cut when that can't be known or the connection ends.
        """
        async with self._exec(pod, container, argv, ("stdin", "stdout", "stderr")) as (socket, begun):
            yield Attached(socket, begun)

    @asynccontextmanager
    async def _exec(
        self, pod: str, container: str, argv: Sequence[str], streams: Sequence[str]
    ) -> AsyncGenerator[tuple[aiohttp.ClientWebSocketResponse, Callable[[], None]]]:
        url = self.server.replace("http", "ws", 1) + self.path("pods", pod) + "/exec"
        how: Json = {**await self._how(), "protocols": _PROTOCOLS, "heartbeat": _HEARTBEAT_SECONDS, "max_msg_size": 0}
        asked = (("container", container), *((stream, "1") for stream in streams))
        how["params"] = [*asked, *(("command", part) for part in argv)]
        try:
            async with (
                _place(self._beginning) as begun,
                cast(_Connecting, self._access.session.ws_connect(url, **how)) as socket,
            ):
                yield socket, begun
        except aiohttp.WSServerHandshakeError as error:
            if error.status == 401:
                await self._access.renew()
            if error.status in (401, *_TRANSIENT):
                raise Cut(f"{error.status} {error.message}") from error
            raise Refused(error.status, "", f"{error.status} {error.message}") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Cut(f"{type(error).__name__}: {error}") from error

    async def _request(self, method: str, path: str, query: Mapping[str, str] | None, body: Json | None) -> Json:
        timeout = aiohttp.ClientTimeout(total=_REQUEST_SECONDS)
        how = await self._how()
        if method == "PATCH":
            how["headers"]["Content-Type"] = "application/merge-patch+json"
        async with self._access.session.request(
            method, self.server + path, params=query, json=body, timeout=timeout, **how
        ) as response:
            if response.status >= 300:
                raise await _refusal(response)
            return cast(Json, await response.json())

    async def _how(self) -> dict[str, Any]:
        """Who asks, and through what."""
        access = self._access
        return {"headers": await access.headers(), "proxy": access.proxy, "server_hostname": access.server_hostname}


class Attached:
    """The stdin and stdout of a running command. Both raise Cut once the command or the connection has ended."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, begun: Callable[[], None]) -> None:
        self._socket = socket
        self._begun = begun
        self._said = b""

    async def send(self, data: bytes) -> None:
        """Returns when there is room for more."""
        try:
            for start in range(0, len(data), _FRAME):
                await self._socket.send_bytes(bytes((_STDIN,)) + data[start : start + _FRAME])
        except (aiohttp.ClientError, OSError) as error:
            raise Cut(f"{type(error).__name__}: {error}") from error

    async def receive(self) -> bytes:
        """Some of its stdout, never nothing."""
        async for message in self._socket:
            if message.type is not aiohttp.WSMsgType.BINARY or len(message.data) < 2:
                continue
            self._begun()
            channel, data = message.data[0], message.data[1:]
            if channel == _STDOUT:
                return data
            if channel == _STDERR:
                self._said = (self._said + data)[-_SAID:]
            elif channel == _STATUS:
                raise Cut(
                    f"it ended with exit code {_exit_code(data)}: {self._said.decode('utf-8', 'replace').strip()}"
                )
        raise Cut("the connection ended")


@asynccontextmanager
async def _place(places: asyncio.Semaphore) -> AsyncGenerator[Callable[[], None]]:
    """A place, until the function that it gives is called, or the end."""
    await places.acquire()
    with ExitStack() as held:
        held.callback(places.release)
        yield held.close


async def _converse(socket: aiohttp.ClientWebSocketResponse, stdin: bytes, begun: Callable[[], None]) -> Executed:
    async def send() -> None:
        for start in range(0, len(stdin), _FRAME):
            await socket.send_bytes(bytes((_STDIN,)) + stdin[start : start + _FRAME])

    sending = asyncio.create_task(send())
    out, err = bytearray(), bytearray()
    try:
        async for message in socket:
            if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                continue
            channel, data = message.data[0], message.data[1:]
            if data:
                begun()
            if channel == _STDOUT:
                out += data
            elif channel == _STDERR:
                err += data
            elif channel == _STATUS:
                return Executed(code=_exit_code(data), stdout=bytes(out), stderr=bytes(err))
    finally:
        sending.cancel()
        await asyncio.wait((sending,))
        if not sending.cancelled():
            sending.exception()  # a peer that stopped reading: how the conversation ended says more
    raise Cut("the connection ended before the exit status came")


def _exit_code(data: bytes) -> int:
    try:
        status = _Status.model_validate_json(data)
    except ValidationError as error:
        raise Cut(f"the exit status can't be read: {data[:200]!r}") from error
    if status.status == "Success":
        return 0
    for cause in () if status.details is None else status.details.causes:
        if cause.reason == "ExitCode" and cause.message.isdecimal():
            return int(cause.message)
    raise Refused(500, status.reason, status.message)


async def _refusal(response: aiohttp.ClientResponse) -> Refused:
    text = await response.read()
    try:
        status = _Status.model_validate_json(text)
    except ValidationError:
        status = _Status(message=text[:200].decode("utf-8", "replace") or str(response.reason))
    after = status.details.retryAfterSeconds if status.details is not None else None
    header = response.headers.get("Retry-After", "")
    return Refused(
        response.status, status.reason, status.message, after or (float(header) if header.isdecimal() else None)
    )
