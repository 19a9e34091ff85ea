"""`t`: what a test body gets. `T` and `ScoreT` for `async def` bodies, `SyncT` for plain ones."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

from evalfleet.execution.conversation import Conversation, SessionHandle, SyncSessionHandle
from evalfleet.execution.handles import Assertion, SyncAssertion
from evalfleet.execution.judge_handle import RootJudge, check_declared
from evalfleet.execution.ledger import GROUPS, Entry, Ledger, Snapshot
from evalfleet.execution.recorded_line import ContinuedLine, RecordedLine
from evalfleet.execution.sandbox_handle import SandboxHandle, SyncSandboxHandle
from evalfleet.execution.scoped import Author, H
from evalfleet.execution.sessions import SessionLine
from evalfleet.execution.signals import BodySkipped
from evalfleet.execution.state import AttemptState
from evalfleet.execution.threads import Bridge
from evalfleet.execution.turn_check import InvalidTurn, detached
from evalfleet.execution.unrecorded import NotRecorded
from evalfleet.model.assertion import ScopeKind
from evalfleet.model.canonical import canonical_bytes
from evalfleet.model.tool import Tool
from evalfleet.model.turn import TurnRecord
from evalfleet.sandbox_ports import Sandbox

_GROUP_DEPTH = 16

#: Bytes of canonical JSON that an attempt may attach.
ATTACHMENTS_LIMIT = 8_000_000


@dataclass(frozen=True, slots=True)
class Fixture:
    """The fixture folder an eval came from: what its PROMPT.md says."""

    prompt: str


class Root(Conversation[H]):
    """What `t` has beside a conversation. As a conversation it is the attempt's first session; its assertions,
    `events` and `usage` look at all sessions started so far.
    """

    __slots__ = ()

    @property
    def model(self) -> str | None:
        """The model the arm names."""
        return self.author.state.job.arm.model

    @property
    def flags(self) -> Mapping[str, Any]:
        """The arm's flags."""
        return self.author.state.job.arm.flags

    @property
    def arm(self) -> str:
        """The arm's name."""
        return self.author.state.job.arm.name

    @property
    def variants(self) -> Mapping[str, str]:
        """The variant chosen for each step that has some."""
        return self.author.state.job.case.variants

    @property
    def repetition(self) -> int:
        """Which repetition this is, from 0."""
        return self.author.state.job.case.repetition

    @property
    def seed(self) -> int:
        """A number that is the same for every attempt of this case and repetition."""
        return self.author.state.job.seed

    @property
    def time_left(self) -> float | None:
        """Seconds until the attempt's deadline; None without one."""
        return self.author.state.remaining()

    @property
    def fixture(self) -> Fixture:
        """The fixture of this eval. Raises AuthoringError when it came from no fixture folder."""
        state = self.author.state
        if state.job.definition.fixture is None:
            raise state.refuse("t.fixture: this eval has no folder with a PROMPT.md beside its eval.py", "NO_FIXTURE")
        return _read_fixture(state.job.definition.fixture)

    @property
    def state(self) -> Mapping[str, Mapping[str, Any]]:
        """Copies of the records of the attempt's case store, by collection and key, as the last call left them.

        Raises AuthoringError before a Task pack is opened. A replay of a body that looks at them keeps what stood.
        """
        state = self.author.state
        if state.job.recorded is not None:
            raise NotRecorded
        if state.records is None:
            raise state.refuse("t.state: no Task pack has been opened: async with pack.open(t, row)", "NO_STATE")
        return state.records()

    @property
    def judge(self) -> RootJudge[H]:
        """Asks the eval's judge about any texts. Raises AuthoringError when the eval declares none."""
        check_declared(self.author.state)
        return RootJudge(self.author)

    def skip(self, reason: str) -> NoReturn:
        """End the test body here; the case counts as skipped, for `reason`, unless a gate has failed."""
        state = self.author.state
        state.check_open("skip()")
        if not isinstance(reason, str) or not reason.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise state.refuse("skip() needs a reason", "SKIP_WITHOUT_REASON")
        state.skip_reason = reason
        raise state.latch(BodySkipped())

    @contextmanager
    def group(self, title: str) -> Generator[None]:
        """Show the assertions registered inside the `with` block under `title`."""
        titles = GROUPS.get()
        if not isinstance(title, str) or not title.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise self.author.state.refuse("group() needs a title", "INVALID_GROUP")
        if len(titles) >= _GROUP_DEPTH:
            raise self.author.state.refuse(f"groups nest deeper than {_GROUP_DEPTH} levels", "INVALID_GROUP")
        token = GROUPS.set((*titles, title))
        try:
            yield
        finally:
            GROUPS.reset(token)

    def use_tools(self, tools: Sequence[Tool]) -> None:
        """Give tools to the agent from its next send on, beside the arm's own; replaces those given before."""
        state = self.author.state
        state.check_open("use_tools()")
        given = tuple(tools)
        if not all(isinstance(each, Tool) for each in given):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise state.refuse("use_tools() takes tools: put @tool on the function", "INVALID_TOOLS")
        if len({each.name for each in given}) != len(given):
            raise state.refuse("use_tools() got two tools of one name", "INVALID_TOOLS")
        state.tools = given

    def attach(self, name: str, value: Any) -> None:
        """Keep a small JSON document with the attempt's evidence; the same name again replaces it.

        Raises AuthoringError for what is no JSON, or when all of them together are larger than 8 MB.
        """
        state = self.author.state
        state.check_open("attach()")
        if not isinstance(name, str) or not name.isidentifier():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise state.refuse("attach() names the document by a word", "INVALID_ATTACHMENT")
        try:
            kept = {**state.attachments, name: detached(value)}
        except InvalidTurn as error:
            raise state.refuse(f"attach({name!r}): {error}", "INVALID_ATTACHMENT") from None
        if len(canonical_bytes(kept)) > ATTACHMENTS_LIMIT:
            raise state.refuse(f"attach({name!r}): more than {ATTACHMENTS_LIMIT} bytes in all", "INVALID_ATTACHMENT")
        state.attachments = kept

    def recorded(self, name: str) -> Any:
        """In a replay, the document that the recorded attempt attached under `name`; None where an agent works.

        A replay of an attempt that attached none ends here; what stood is kept.
        """
        recorded = self.author.state.job.recorded
        if recorded is None:
            return None
        if name not in recorded.attachments:
            raise NotRecorded
        return recorded.attachments[name]

    def log(self, message: object) -> None:
        """Keep a line with the attempt's diagnostics; never evidence."""
        self.author.state.note(f"{message}")

    def diagnostic(self, code: str, message: str, *, level: str = "warning", data: Any = None) -> None:
        """Keep a coded diagnostic; never changes the verdict."""
        self.author.state.note(f"{level} {code}: {message}" + ("" if data is None else f" {data!r}"))

    def _turns(self) -> Sequence[TurnRecord]:
        return tuple(self.author.state.turns)

    def _snapshot(self) -> Snapshot:
        state = self.author.state
        return Snapshot(ScopeKind.ATTEMPT, "t", tuple(state.turns), any(line.in_flight for line in state.lines))

    def _new_line(self) -> SessionLine:
        state = self.author.state
        state.check_open("new_session()")
        return open_line(state)

    def _sandbox(self) -> Sandbox:
        state = self.author.state
        if state.sandbox is None:
            raise state.refuse(f"t.sandbox: neither the eval nor arm {self.arm!r} names a sandbox", "NO_SANDBOX")
        return state.sandbox


class T(Root[Assertion], SessionHandle):
    """The context of an `async def` test body."""

    __slots__ = ()

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(Author(ledger, Assertion), open_line(ledger.state))

    @property
    def sandbox(self) -> SandboxHandle:
        """The attempt's sandbox. Raises AuthoringError when there is none."""
        return SandboxHandle(self.author, self._sandbox())

    def new_session(self) -> SessionHandle:
        """A fresh conversation line, which shares nothing with the others; opened by its first send."""
        return SessionHandle(self.author, self._new_line())


class ScoreT(T):
    """The context of an `async def` body of a score-style eval: handles take `.score(points)`."""

    __slots__ = ()


class SyncT(Root[SyncAssertion], SyncSessionHandle):
    """The context of a plain `def` test body, pass-style or score-style."""

    __slots__ = ()

    def __init__(self, ledger: Ledger, bridge: Bridge) -> None:
        def handle(ledger: Ledger, entry: Entry) -> SyncAssertion:
            return SyncAssertion(ledger, entry, bridge)

        SyncSessionHandle.__init__(self, Author(ledger, handle), open_line(ledger.state), bridge)

    @property
    def sandbox(self) -> SyncSandboxHandle:
        """The attempt's sandbox. Raises AuthoringError when there is none."""
        return SyncSandboxHandle(self.author, self._sandbox(), self.bridge)

    def new_session(self) -> SyncSessionHandle:
        """A fresh conversation line, which shares nothing with the others; opened by its first send."""
        return SyncSessionHandle(self.author, self._new_line(), self.bridge)


def open_line(state: AttemptState) -> SessionLine:
    """A new conversation line of the attempt; nothing is opened before its first send."""
    number, job = len(state.lines), state.job
    line: SessionLine
    if job.recorded is not None:
        line = RecordedLine(state, number, job.recorded)
    elif job.begun and number == 0:
        line = ContinuedLine(state, number, job.begun)
    else:
        line = SessionLine(state, number)
    state.lines.append(line)
    return line


@lru_cache(maxsize=256)
def _read_fixture(folder: Path) -> Fixture:
    return Fixture(prompt=(folder / "PROMPT.md").read_text("utf-8"))
