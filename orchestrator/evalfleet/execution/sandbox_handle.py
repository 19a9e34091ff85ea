"""`t.sandbox`: commands and files in the attempt's sandbox, for async and for plain test bodies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, ParamSpec, TypedDict, TypeVar, Unpack

from evalfleet.errors import FailureKind
from evalfleet.execution.blame import blame
from evalfleet.execution.change_assertions import ChangeAssertions
from evalfleet.execution.handles import Assertion, SyncAssertion
from evalfleet.execution.kept_workdir import kept_unless_decided, notes_beside
from evalfleet.execution.scoped import Author
from evalfleet.execution.state import AttemptState
from evalfleet.execution.threads import Bridge
from evalfleet.sandbox_ports import Command, CommandResult, Sandbox

P = ParamSpec("P")
R = TypeVar("R")

#: What says something about files the agent should have made, not about the sandbox.
_FILE_ERRORS = (FileNotFoundError, IsADirectoryError, NotADirectoryError)


class RunOptions(TypedDict, total=False):
    """How a command runs: `timeout` in seconds, `cwd` relative to the workdir, `stdin` as bytes.

    `user` is a name or an id in the sandbox, where its backend runs single commands as another; None is its own.
    """

    cwd: str
    env: Mapping[str, str]
    stdin: bytes
    timeout: float | None
    user: str | None


class SandboxOperations:
    """What an author does with the sandbox. One that breaks ends the attempt as errored, of kind sandbox.

    A missing file is the author's to handle: FileNotFoundError and its kin pass through. While a send is under way in
    a workdir that is followed, nothing is written: it would count as the agent's.
    """

    __slots__ = ("_sandbox", "_state")

    def __init__(self, state: AttemptState, sandbox: Sandbox) -> None:
        self._state = state
        self._sandbox = sandbox

    @property
    def workdir(self) -> str:
        """The directory that relative paths start from, as the sandbox sees it."""
        return self._sandbox.workdir

    def run(self, *argv: str, **options: Unpack[RunOptions]) -> Coroutine[Any, Any, CommandResult]:
        """Run a command without a shell; any exit code is a result."""
        return self._promise(self._writing("run", self._sandbox.run, Command(argv=argv, **options)))

    def read(self, path: str) -> Coroutine[Any, Any, bytes]:
        """The bytes of a file. Raises FileNotFoundError when there is none."""
        return self._promise(self._guarded(self._sandbox.read, path))

    def read_text(self, path: str) -> Coroutine[Any, Any, str]:
        """The text of a UTF-8 file; bytes that are not UTF-8 are replaced."""
        return self._promise(self._read_text(path))

    def write(self, path: str, content: str | bytes) -> Coroutine[Any, Any, None]:
        """Write a file, making its directories."""
        data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
        return self._promise(self._writing("write", self._sandbox.write, path, data))

    def upload(self, source: str | Path, target: str) -> Coroutine[Any, Any, None]:
        """Copy a file or directory in; `source` is relative to the eval file. The agent can't have seen it before."""
        place = self._state.job.folder / source
        return self._promise(self._writing("upload", self._sandbox.upload, place, target))

    def download(self, source: str, target: str | Path) -> Coroutine[Any, Any, None]:
        """Copy a file or directory out; `target` is relative to the eval file."""
        return self._promise(self._guarded(self._sandbox.download, source, self._state.job.folder / target))

    def _promise(self, coroutine: Coroutine[Any, Any, R]) -> Coroutine[Any, Any, R]:
        return self._state.promise(coroutine, depth=3)

    async def _read_text(self, path: str) -> str:
        return (await self._guarded(self._sandbox.read, path)).decode("utf-8", "replace")

    async def _writing(self, what: str, action: Callable[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs) -> R:
        if self._state.watch is not None and self._state.watch.busy:
            message = f"t.sandbox.{what}() during a send would count as the agent's change; await the send first"
            raise self._state.refuse(message, "CHANGES_OVERLAP")
        return await self._guarded(action, *args, **kwargs)

    async def _guarded(self, action: Callable[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs) -> R:
        self._state.check_open("using the sandbox")
        try:
            return await action(*args, **kwargs)
        except _FILE_ERRORS:
            raise
        except Exception as error:
            failure = self._state.fail(blame(error, FailureKind.SANDBOX, "SANDBOX_FAILED"), error)
            if failure is error:
                raise
            raise failure from error


class SandboxHandle(SandboxOperations, ChangeAssertions[Assertion]):
    """The sandbox of an `async def` test body."""

    __slots__ = ("author",)

    def __init__(self, author: Author[Assertion], sandbox: Sandbox) -> None:
        super().__init__(author.state, sandbox)
        self.author = author

    def kept_unless_decided(self, beside: Mapping[str, Any]) -> AbstractAsyncContextManager[None]:
        """For kinds of evals whose judging can be repeated on the workdir alone: see `kept_workdir`."""
        return kept_unless_decided(self._state, self._sandbox, beside)

    @property
    def notes_beside(self) -> Mapping[str, Any] | None:
        return notes_beside(self._state)


class SyncSandboxHandle(ChangeAssertions[SyncAssertion]):
    """The sandbox of a plain `def` test body; each call waits in the body's own thread."""

    __slots__ = ("_bridge", "_operations", "author")

    def __init__(self, author: Author[SyncAssertion], sandbox: Sandbox, bridge: Bridge) -> None:
        self.author = author
        self._operations = SandboxOperations(author.state, sandbox)
        self._bridge = bridge

    @property
    def workdir(self) -> str:
        """The directory that relative paths start from, as the sandbox sees it."""
        return self._operations.workdir

    def run(self, *argv: str, **options: Unpack[RunOptions]) -> CommandResult:
        """Run a command without a shell; any exit code is a result."""
        return self._bridge.call(self._operations.run(*argv, **options))

    def read(self, path: str) -> bytes:
        """The bytes of a file. Raises FileNotFoundError when there is none."""
        return self._bridge.call(self._operations.read(path))

    def read_text(self, path: str) -> str:
        """The text of a UTF-8 file; bytes that are not UTF-8 are replaced."""
        return self._bridge.call(self._operations.read_text(path))

    def write(self, path: str, content: str | bytes) -> None:
        """Write a file, making its directories."""
        self._bridge.call(self._operations.write(path, content))

    def upload(self, source: str | Path, target: str) -> None:
        """Copy a file or directory in; `source` is relative to the eval file."""
        self._bridge.call(self._operations.upload(source, target))

    def download(self, source: str, target: str | Path) -> None:
        """Copy a file or directory out; `target` is relative to the eval file."""
        self._bridge.call(self._operations.download(source, target))
