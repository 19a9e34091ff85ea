"""The seams around processes and sandboxes, as Protocols and the values that cross them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from evalfleet.model.definition import SandboxSpec
from evalfleet.model.sandbox import SandboxEntry, SandboxState


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command to run: `argv` without a shell. Relative `cwd` starts at the workdir.

    `user` is a name or an id in the sandbox; None is the sandbox's own. `timeout` is in seconds. At most
    `output_limit` bytes of stdout and of stderr each are kept (the head and the tail), the rest is counted in the
    result.
    """

    argv: tuple[str, ...]
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    stdin: bytes | None = None
    timeout: float | None = None
    output_limit: int = 1 << 20
    user: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """How a command ended. Any exit code is a normal result; a timeout keeps the partial output.

    `exit_code` is None when a signal or the timeout ended it; `duration` is in seconds; `stdout_bytes` and
    `stderr_bytes` count everything written, also what was not kept. `oom_kills` is how many processes of the sandbox
    the kernel killed meanwhile for memory, by its own account; None where the backend can't see that.
    """

    exit_code: int | None
    stdout: bytes
    stderr: bytes
    duration: float
    timed_out: bool = False
    signal: int | None = None
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    oom_kills: int | None = None

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    @property
    def text(self) -> str:
        """Stdout as text; bytes that are not UTF-8 are replaced for reading, never in `stdout`."""
        return self.stdout.decode("utf-8", "replace")


class Spawner(Protocol):
    """The only way to start a process. The child dies with this process; its whole tree dies on timeout."""

    async def run(self, command: Command, *, base_env: Mapping[str, str], group: str | None = None) -> CommandResult:
        """Run to the end: the exit of the command itself, whatever it left in the background.

        What it left goes on until `end(group)`; without a group it ends with the call. Raises OSError when the
        program can't be started, InfrastructureError when how it ended can't be known.
        """
        ...

    async def end(self, group: str) -> None:
        """Kill all that still runs of a group's commands. Raises InfrastructureError when something won't die."""
        ...


class Stream(StrEnum):
    """The two outputs of a command."""

    STDOUT = "stdout"
    STDERR = "stderr"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputPiece:
    """A piece of a detached command's output. `cursor` is where the next one starts, in bytes from the beginning.

    `complete` says that the command has ended and nothing follows.
    """

    data: bytes
    cursor: int
    complete: bool


class Execution(Protocol):
    """A detached command. It ends by itself, by its timeout, by `end`, or with its sandbox.

    Its output is kept whole in the sandbox, so that any number of readers see the same bytes, now or after the
    connection to the sandbox was lost. Raises AttemptFailure as the sandbox does.
    """

    @property
    def id(self) -> str: ...

    async def read(self, stream: Stream = Stream.STDOUT, *, after: int = 0, wait: float = 0.0) -> OutputPiece:
        """What the stream has from byte `after` on, at most 1 MiB; waits up to `wait` seconds for the first byte."""
        ...

    async def result(self) -> CommandResult:
        """Wait for the end; the outputs within the command's `output_limit`."""
        ...

    async def end(self) -> None:
        """Kill its whole tree, proven dead. May be called twice."""
        ...


class Sandbox(Protocol):
    """An isolated place with files and commands, leased to one attempt. Paths are relative to `workdir`.

    A program that can't be started ends with exit code 127 (not found) or 126. File operations raise
    FileNotFoundError, IsADirectoryError, and PermissionError for a path or link that leads out of `workdir`.
    Everything raises AttemptFailure of kind sandbox: SANDBOX_CLOSED after `close`, SANDBOX_LOST when it is gone.
    """

    @property
    def id(self) -> str: ...

    @property
    def workdir(self) -> str:
        """The absolute path of the workdir, as commands see it."""
        ...

    @property
    def tree(self) -> Path | None:
        """The workdir as this process can read it; None when only the sandbox itself can."""
        ...

    async def run(self, command: Command) -> CommandResult:
        """Run to the command's own exit; what it left in the background lives on until `close`."""
        ...

    async def start(self, command: Command) -> Execution:
        """Start a command and don't wait for it."""
        ...

    async def attach(self, execution: str) -> Execution:
        """A command that was started before, by its id. Raises KeyError when there was none."""
        ...

    async def probe(self) -> None:
        """Raises SANDBOX_LOST unless the sandbox lives and its workdir is there. Cheap; called about once a second."""
        ...

    async def read(self, path: str) -> bytes: ...

    async def write(self, path: str, data: bytes) -> None:
        """Replace a file's content, making missing parents."""
        ...

    async def upload(self, source: Path, target: str) -> None:
        """Copy a file, or a directory's content; `target` is the copy's own name."""
        ...

    async def download(self, source: str, target: Path) -> None:
        """Copy a file, or a directory's content; `target` is the copy's own name."""
        ...

    async def export(self, target: Path) -> None:
        """Copy the whole workdir into the empty directory `target`: links as links, modes kept, pipes left out."""
        ...

    async def reset(self) -> None:
        """Bring it back to what `create` returned: its files, its setup, no process. Proven, else SANDBOX_UNCLEAN."""
        ...

    async def close(self) -> None:
        """End every process and remove everything. May be called twice."""
        ...


@runtime_checkable
class Unenforced(Protocol):
    """What a sandbox also is when its backend can't enforce all of the spec: each notice belongs in the record."""

    @property
    def notices(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Inlet:
    """Where a sandbox reaches us: what its commands say to `port` of its 127.0.0.1 comes in at `descriptor`.

    That is a listening stream socket, which its receiver owns: of the sandbox's network, or the end of a relay.
    """

    descriptor: int
    port: int


@runtime_checkable
class Listening(Protocol):
    """What a sandbox also is when something outside can listen in its network: see the gateway."""

    async def listen(self) -> Inlet:
        """Listen on 127.0.0.1 of the sandbox's network, on a free port.

        May be called of a sandbox that was made with an `opening`: see `Reachable.create_reachable`. Raises
        AttemptFailure SANDBOX_UNREACHABLE where that network can't be entered from here, nor a relay be had.
        """
        ...


#: Opens a way out of a sandbox, and says what its commands find in their environment of it.
Opening = Callable[[Listening], Awaitable[Mapping[str, str]]]


@runtime_checkable
class Reachable(Protocol):
    """What a provider also is when its sandboxes are `Listening`: its setup finds the gateway open."""

    async def create_reachable(self, spec: SandboxSpec, owner: str, opening: Opening) -> Sandbox:
        """A fresh sandbox, as of `create`. `opening` is called before its setup, and again with each reset.

        What that returns stands in the environment of every command, over the spec's. Raises what both raise.
        """
        ...


#: An ASGI application; its types are written out so that who mounts one needs no web library.
App = Callable[
    [
        MutableMapping[str, Any],
        Callable[[], Awaitable[MutableMapping[str, Any]]],
        Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ],
    Awaitable[None],
]

#: What the gateway of one attempt answers: an application by its path prefix, such as `/mcp` or `/model/<arm>`.
Routes = Mapping[str, App]


class OpenGateway(Protocol):
    """What one attempt's sandbox can reach of us. `environment` is how commands in it find that."""

    @property
    def environment(self) -> Mapping[str, str]: ...

    @property
    def refused(self) -> Sequence[str]:
        """The hosts that were asked for and are not allowed, as `host:port`."""
        ...

    async def close(self) -> None:
        """Answer nothing more. May be called twice."""
        ...


class Gateway(Protocol):
    """Opens a way out of closed sandboxes, one an attempt."""

    async def open(self, sandbox: Listening, allow: Sequence[str], routes: Routes) -> OpenGateway:
        """Listen in the sandbox's network, for this attempt only; `allow` are the hosts that it may reach.

        `routes` are looked up anew for each request, so that one may be mounted or taken away meanwhile.
        Raises ValueError for an allowed host that is none, AttemptFailure SANDBOX_UNREACHABLE.
        """
        ...


@runtime_checkable
class Keepable(Protocol):
    """What a sandbox also is when it can stay for a person to look at after its attempt has ended."""

    async def keep(self) -> None:
        """End every process where that can be done, and leave the rest in place, `kept`. Instead of `close`."""
        ...


@runtime_checkable
class BringsImages(Protocol):
    """What a provider also is when sandboxes start from images that have to be fetched or built first."""

    async def bring(self, spec: SandboxSpec) -> None:
        """Have the image of later sandboxes ready; returns at once when it is. What went wrong `create` tells."""
        ...


@runtime_checkable
class Enterable(Protocol):
    """What a provider also is when a person can open a shell in a sandbox of it, also in a kept one."""

    async def enter_argv(self, sandbox: FoundSandbox) -> tuple[str, ...]:
        """The command that opens a shell on the caller's terminal. Raises ConfigurationError saying why it can't."""
        ...


class SandboxLedger(Protocol):
    """The record of sandboxes that stay when their maker dies. Raises StoreError when it can't be written."""

    async def announce(self, entry: SandboxEntry) -> None:
        """Write down that one is about to be made."""
        ...

    async def made(self, entry: SandboxEntry, id: str) -> None: ...

    async def kept(self, entry: SandboxEntry, id: str, ttl: float) -> None:
        """It stays for so many seconds; also of one that was never announced."""
        ...

    async def ended(self, backend: str, owner: str, state: SandboxState) -> None:
        """There is none any more: `gone` or `lost`."""
        ...

    async def close(self) -> None: ...


class SandboxProvider(Protocol):
    """Creates sandboxes of one backend. `isolates` says that an agent in one can't harm what is around it.

    `outlives` says that its sandboxes don't die with this process: each is announced in the record store before it
    is made, and reaped by its owner's label when that is dead.
    """

    @property
    def name(self) -> str: ...

    @property
    def isolates(self) -> bool: ...

    @property
    def outlives(self) -> bool: ...

    async def check(self) -> None:
        """Whether the backend works here. Raises ConfigurationError saying what is missing and what to do."""
        ...

    async def create(self, spec: SandboxSpec, owner: str) -> Sandbox:
        """A fresh sandbox. Raises AttemptFailure of kind sandbox when it can't be made."""
        ...

    async def found(self) -> list[FoundSandbox]:
        """The sandboxes of this backend that exist now, of any process that used this state folder or its labels."""
        ...

    async def reap(self, sandbox: FoundSandbox) -> None:
        """Remove one, whoever made it. May be called twice."""
        ...

    async def close(self) -> None:
        """Close all sandboxes that this provider made."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSandbox:
    """A sandbox as its backend reports it: who made it, and whether that process is known to be dead.

    `owner` is what `create` was given; `alive` is None when it can't be told from here (another host).
    """

    id: str
    owner: str
    host: str
    pid: int
    created_at: float
    alive: bool | None
    kept: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPlace:
    """What a backend is built with: where it keeps directories, how it starts processes, whose sandboxes these are.

    `environment` has the variables that engines' own clients read (PATH, HOME, DOCKER_HOST, KUBECONFIG …); nothing of
    it reaches a sandbox. `labels` mark every sandbox that outlives this process (`run`, `host`, `pid`).
    """

    state: Path
    spawner: Spawner
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    labels: Mapping[str, str] = field(default_factory=dict[str, str])


@runtime_checkable
class SandboxFactory(Protocol):
    """What the entry point `evalfleet.sandboxes` names."""

    @property
    def name(self) -> str: ...

    def build(self, place: SandboxPlace) -> SandboxProvider:
        """A provider that keeps its directories under `place.state`."""
        ...
