"""What `await t.send(…)` gives the author: one immutable turn, its values with their coverage, its assertions."""

from __future__ import annotations

from evalfleet.assertions.covered import CoveredStr, CoveredValue, covered
from evalfleet.assertions.event_index import EventIndex, Occurrence
from evalfleet.execution.judge_handle import TurnJudge, check_declared
from evalfleet.execution.ledger import Snapshot
from evalfleet.execution.scoped import Author, H, Scoped
from evalfleet.model.assertion import ScopeKind
from evalfleet.model.coverage import Channel
from evalfleet.model.events import Event
from evalfleet.model.turn import TurnRecord


class TurnHandle(Scoped[H]):
    """One turn. Its assertions look at this turn only, whatever comes later."""

    __slots__ = ("_record",)

    def __init__(self, author: Author[H], record: TurnRecord) -> None:
        super().__init__(author)
        self._record = record

    @property
    def record(self) -> TurnRecord:
        """The turn as it is recorded."""
        return self._record

    @property
    def reply(self) -> CoveredStr:
        """The assistant's texts of this turn, joined by blank lines; empty without any."""
        return read_reply(self._record)

    @property
    def message(self) -> CoveredStr:
        """The same as `reply`."""
        return read_reply(self._record)

    @property
    def data(self) -> CoveredStr | CoveredValue:
        """The structured answer; its `value` is MISSING when there was none."""
        return covered(self._record.data, Channel.DATA, self._record.coverage.data)

    @property
    def status(self) -> CoveredStr:
        """`completed`, `failed`, `waiting` or `truncated`."""
        return CoveredStr(self._record.status.value, Channel.STATUS, self._record.coverage.status)

    @property
    def usage(self) -> CoveredValue:
        """The `Usage` of this turn; its `value` is None when nobody reported it."""
        return CoveredValue(self._record.usage, Channel.USAGE, self._record.coverage.usage)

    @property
    def judge(self) -> TurnJudge[H]:
        """Asks the eval's judge about this turn. Raises AuthoringError when the eval declares none."""
        check_declared(self.author.state)
        return TurnJudge(self.author, self._snapshot(), self._record.input, self._record.reply)

    @property
    def events(self) -> tuple[Event, ...]:
        """The message that was sent, then what the agent did, in order."""
        return self._record.events

    @property
    def tool_calls(self) -> tuple[Occurrence, ...]:
        """The operations of this turn, each paired with its finish, in the order of their starts."""
        return EventIndex((self._record,), self.author.state.turns).operations

    def _snapshot(self) -> Snapshot:
        record = self._record
        label = f"turn/{record.session}/{record.index}"
        return Snapshot(ScopeKind.TURN, label, (record,), False, self.author.state.turns)


def read_reply(record: TurnRecord) -> CoveredStr:
    """The reply of a recorded turn with its coverage."""
    return CoveredStr(record.reply, Channel.MESSAGES, record.coverage.messages)
