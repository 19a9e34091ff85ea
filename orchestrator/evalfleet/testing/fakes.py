"""Fakes of the ports for tests without a clock, a network or a process: they do what they are told, at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from evalfleet.errors import SendFailure
from evalfleet.model.coverage import COMPLETE_COVERAGE, Coverage
from evalfleet.model.definition import SandboxSpec
from evalfleet.model.turn import Turn, TurnInput
from evalfleet.ports import AdapterContext
from evalfleet.sandbox_ports import Command, CommandResult, FoundSandbox, OutputPiece, Sandbox, Stream
from evalfleet.testing.adapter_context import FakeSecrets

__all__ = [
    "FakeAdapter",
    "FakeClock",
    "FakeSandbox",
    "FakeSandboxes",
    "FakeSecrets",
    "FakeSession",
    "FixedRandom",
]


class FakeClock:
    """Time that passes only by `advance` and `sleep`. Starts at the given times, in seconds."""

    def __init__(self, wall: float = 1_800_000_000.0, monotonic: float = 1_000.0) -> None:
        self._wall = wall
        self._monotonic = monotonic

    def wall(self) -> float:
        return self._wall

    def monotonic(self) -> float:
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        """Advance by `seconds` and let other tasks run."""
        self.advance(seconds)
        await asyncio.sleep(0)

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass on both clocks."""
        self._wall += seconds
        self._monotonic += seconds

    def set_back(self, seconds: float) -> None:
        """Step the wall clock back, as an administrator would; the monotonic one is not affected."""
        self._wall -= seconds


class FixedRandom:
    """Randomness that is the same each time: the given bits in turn, and the middle of each interval."""

    def __init__(self, bits: Iterable[int] = (0,)) -> None:
        self._bits = list(bits)
        self._next = 0

    def bits(self, count: int) -> int:
        value = self._bits[self._next % len(self._bits)] & ((1 << count) - 1)
        self._next += 1
        return value

    def uniform(self, low: float, high: float) -> float:
        return (low + high) / 2


Answer = Callable[[TurnInput, AdapterContext], Turn | Awaitable[Turn]]


class FakeSession:
    """A conversation line of a `FakeAdapter`; `sent` holds what it got."""

    def __init__(self, adapter: FakeAdapter) -> None:
        self._adapter = adapter
        self.sent: list[TurnInput] = []
        self.closed = False

    async def send(self, turn: TurnInput, ctx: AdapterContext) -> Turn:
        self.sent.append(turn)
        answer = self._adapter.answer(turn, ctx)
        return answer if isinstance(answer, Turn) else await answer

    async def close(self) -> None:
        self.closed = True
        await self._adapter.on_close()


class FakeAdapter:
    """An adapter that answers by a function `(turn, ctx) -> Turn`, sync or async, or with given turns in order."""

    def __init__(self, answer: Answer | Iterable[Turn], *, coverage: Coverage = COMPLETE_COVERAGE) -> None:
        self.coverage = coverage
        self.sandboxed = False
        self.sessions: list[FakeSession] = []
        self.closed = False
        self.answer: Answer = answer if callable(answer) else _in_order(list(answer))
        self.on_close: Callable[[], Awaitable[None]] = _nothing

    async def open(self, ctx: AdapterContext) -> FakeSession:
        session = FakeSession(self)
        self.sessions.append(session)
        return session

    async def close(self) -> None:
        self.closed = True


def _in_order(turns: list[Turn]) -> Answer:
    left = iter(turns)

    def answer(turn: TurnInput, ctx: AdapterContext) -> Turn:
        for given in left:
            return given
        raise SendFailure(f"the fake agent was given {len(turns)} turns and is asked for more")

    return answer


async def _nothing() -> None: ...


@dataclass
class FakeExecution:
    """A detached command that has ended with `outcome`."""

    id: str
    outcome: CommandResult

    async def read(self, stream: Stream = Stream.STDOUT, *, after: int = 0, wait: float = 0.0) -> OutputPiece:
        data = (self.outcome.stdout if stream is Stream.STDOUT else self.outcome.stderr)[after:]
        return OutputPiece(data=data, cursor=after + len(data), complete=True)

    async def result(self) -> CommandResult:
        return self.outcome

    async def end(self) -> None: ...


@dataclass
class FakeSandbox:
    """A sandbox in memory. Commands answer by `on_run`; files live in `files` by their relative path."""

    id: str
    spec: SandboxSpec
    on_run: Callable[[Command], CommandResult]
    workdir: str = "/work"
    tree: Path | None = None
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    ran: list[Command] = field(default_factory=list[Command])
    closed: int = 0
    resets: int = 0
    started: dict[str, FakeExecution] = field(default_factory=dict[str, FakeExecution])

    async def run(self, command: Command) -> CommandResult:
        self.ran.append(command)
        return self.on_run(command)

    async def start(self, command: Command) -> FakeExecution:
        execution = FakeExecution(str(len(self.started) + 1), await self.run(command))
        self.started[execution.id] = execution
        return execution

    async def attach(self, execution: str) -> FakeExecution:
        return self.started[execution]

    async def probe(self) -> None: ...

    async def read(self, path: str) -> bytes:
        """The bytes of a file. Raises FileNotFoundError without one."""
        name = str(PurePosixPath(path))
        if name not in self.files:
            raise FileNotFoundError(f"no file {path}")
        return self.files[name]

    async def write(self, path: str, data: bytes) -> None:
        self.files[str(PurePosixPath(path))] = data

    async def upload(self, source: Path, target: str) -> None:
        for path in [source] if source.is_file() else sorted(item for item in source.rglob("*") if item.is_file()):
            name = PurePosixPath(target) / path.relative_to(source).as_posix()
            self.files[str(name)] = path.read_bytes()

    async def download(self, source: str, target: Path) -> None:
        target.write_bytes(await self.read(source))

    async def export(self, target: Path) -> None:
        for name, data in self.files.items():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes(data)

    async def reset(self) -> None:
        self.resets += 1
        self.files.clear()

    async def close(self) -> None:
        self.closed += 1


def _succeed(command: Command) -> CommandResult:
    return CommandResult(exit_code=0, stdout=" ".join(command.argv).encode(), stderr=b"", duration=0.0)


class FakeSandboxes:
    """A provider of sandboxes in memory; `made` holds them. By default every command echoes its arguments."""

    name = "fake"
    isolates = True
    outlives = False

    def __init__(self, on_run: Callable[[Command], CommandResult] = _succeed) -> None:
        self._on_run = on_run
        self.made: list[FakeSandbox] = []
        self.closed = False

    async def check(self) -> None: ...

    async def create(self, spec: SandboxSpec, owner: str) -> Sandbox:
        sandbox = FakeSandbox(id=f"fake-{owner}", spec=spec, on_run=self._on_run)
        self.made.append(sandbox)
        return sandbox

    async def found(self) -> list[FoundSandbox]:
        return []

    async def reap(self, sandbox: FoundSandbox) -> None: ...

    async def close(self) -> None:
        self.closed = True
