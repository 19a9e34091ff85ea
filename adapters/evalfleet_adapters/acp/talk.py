"""JSON-RPC 2.0, a message a line, with a program in a sandbox: its stdin is a named pipe there."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from evalfleet.errors import FailureKind, SendFailure
from evalfleet.sandbox_ports import Command, Execution, Sandbox, Stream
from evalfleet_adapters.cli.places import PATIENCE, unusable
from evalfleet_adapters.converters.json_output import last_document
from evalfleet_adapters.converters.untrusted import mapping

#: Bytes of one message; a program that writes more without a line break is ended.
MESSAGE_LIMIT = 64 << 20
#: Seconds that one look at the output waits.
_LOOK = 5.0
#: Open for reading and writing, so that the program sees no end of its input between two messages; a line says that
#: it is open, since what is written to a pipe that nobody has open is lost.
_START = """\
umask 077; mkdir -p "$1" && own=$(mktemp -d "$1/talk.XXXXXX") && mkfifo "$own/in" && exec 3<>"$own/in" || exit 125
printf '{"jsonrpc": "2.0", "method": "evalfleet/open", "params": {"folder": "%s"}}\\n' "${own##*/}"
shift; exec "$@" <&3"""
_SAY = 'cat 1<>"$1/in"'
#: Characters of stderr that stand in a message.
_SHOWN = 600

_NO_METHOD = -32601


class Talk:
    """A program that is talked to. It is ended by `end`, which may be called twice."""

    def __init__(self, sandbox: Sandbox, folder: str, execution: Execution, log: Callable[[str], None]) -> None:
        self._sandbox = sandbox
        self._folder = folder
        self._execution = execution
        self._log = log
        self._asked = 0
        self._cursor = 0
        self._rest = bytearray()
        self._lines: deque[dict[str, Any]] = deque()
        self._is_noisy = False

    @classmethod
    async def begin(
        cls, sandbox: Sandbox, folder: str, argv: tuple[str, ...], env: Mapping[str, str], log: Callable[[str], None]
    ) -> Talk:
        """Start the program; its pipe is made in a folder of its own below `folder`."""
        command = Command(argv=("sh", "-c", _START, "evalfleet", folder, *argv), env=env)
        talk = cls(sandbox, folder, await sandbox.start(command), log)
        try:
            opened = mapping((await talk.hear()).get("params"))
            talk._folder = f"{folder}/{opened.get('folder')}"
        except BaseException:
            await talk.end()
            raise
        return talk

    async def post(self, method: str, params: Mapping[str, Any]) -> int:
        """Send a request; its number."""
        self._asked += 1
        await self._say({"jsonrpc": "2.0", "id": self._asked, "method": method, "params": params})
        return self._asked

    async def tell(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification."""
        await self._say({"jsonrpc": "2.0", "method": method, "params": params})

    async def answer(self, number: Any, result: Mapping[str, Any]) -> None:
        """Answer a request of the program."""
        await self._say({"jsonrpc": "2.0", "id": number, "result": result})

    async def refuse(self, number: Any, method: str) -> None:
        """Answer a request for what was not offered."""
        error = {"code": _NO_METHOD, "message": f"{method} is not offered here"}
        await self._say({"jsonrpc": "2.0", "id": number, "error": error})

    async def hear(self) -> dict[str, Any]:
        """The next message. Raises SendFailure when the program is over."""
        while not self._lines:
            piece = await self._execution.read(after=self._cursor, wait=_LOOK)
            self._cursor = piece.cursor
            self._take(piece.data)
            if piece.complete and not self._lines:
                raise await self._gone()
        return self._lines.popleft()

    async def end(self) -> None:
        """Kill its whole tree."""
        await self._execution.end()

    def _take(self, data: bytes) -> None:
        self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        if len(self._rest) > MESSAGE_LIMIT:
            raise SendFailure(
                f"the program wrote more than {MESSAGE_LIMIT >> 20} MiB without a line break",
                kind=FailureKind.AGENT,
                code="AGENT_OUTPUT_TOO_LARGE",
            )
        for line in lines:
            document = last_document(bytes(line))
            if document.get("jsonrpc") == "2.0":
                self._lines.append(document)
            elif line.strip() and not self._is_noisy:
                self._is_noisy = True
                self._log(f"acp: lines of its output are no message: {bytes(line[:200]).decode('utf-8', 'replace')}")

    async def _say(self, message: Mapping[str, Any]) -> None:
        if (await self._execution.read(after=self._cursor)).complete:
            raise await self._gone()
        argv = ("sh", "-c", _SAY, "evalfleet", self._folder)
        line = json.dumps(message).encode() + b"\n"
        said = await self._sandbox.run(Command(argv=argv, stdin=line, timeout=PATIENCE))
        if not said.ok:
            error = said.stderr.decode("utf-8", "replace").strip()[-_SHOWN:]
            raise SendFailure(f"the program takes no message: {error}", kind=FailureKind.AGENT, code="AGENT_EXITED")

    async def _gone(self) -> SendFailure:
        """The failure of a program that is over."""
        result = await self._execution.result()
        errors = await self._execution.read(Stream.STDERR, after=max(0, result.stderr_bytes - _SHOWN))
        said = errors.data.decode("utf-8", "replace").strip()
        if result.exit_code in (126, 127):
            return unusable("AGENT_MISSING", f"the program can't be started: {said}")
        how = f"ended by signal {result.signal}" if result.exit_code is None else f"exit {result.exit_code}"
        return SendFailure(
            f"{how} before it answered: {said or 'it said nothing'}", kind=FailureKind.AGENT, code="AGENT_EXITED"
        )
