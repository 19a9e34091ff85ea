"""What a turn of a program was, by its transcript's last word and by how its process ended. PURE.

| Last word | Process | Turn |
|---|---|---|
| completed | exit 0 | completed; truncated when its model's last answer was cut |
| completed | any other exit, or ended by us after the grace | the same, with a warning in the log |
| completed, without a text or an operation | any | fails: `EMPTY_RESPONSE` (provider) |
| a limit of its own | any | failed |
| no answer of its model | any | fails: `AGENT_WITHOUT_MODEL` (provider) |
| broken | any | fails: `AGENT_EXITED` (agent) |
| none | exit 0, with a text | completed, its usage unknown, its events and status partly covered |
| none | exit 0, without a text | fails: `EMPTY_RESPONSE` (provider) |
| none | exit 126 or 127, nothing was written | fails: `AGENT_MISSING` (adapter), rejected |
| none | any other | fails: `AGENT_EXITED` (agent), with what stderr says last, else stdout |
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from evalfleet.errors import Acceptance, FailureKind, SendFailure
from evalfleet.model.coverage import Channel, CoverageEntry, partial, unavailable
from evalfleet.model.events import ErrorReported, Event, Message, Role
from evalfleet.model.turn import Turn, TurnStatus
from evalfleet_adapters.converters.agent_report import AgentReport, LastWord

#: Characters of an output that stand in a message.
_SHOWN = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a process ended: by an exit code, by a signal, or by us after the grace; and what it wrote beside JSON."""

    exit_code: int | None
    signal: int | None = None
    overdue: bool = False
    stderr: str = ""
    noise: str = ""

    @property
    def said(self) -> str:
        """The end of what it wrote for people."""
        text = self.stderr.strip() or self.noise.strip()
        return text if len(text) <= _SHOWN else "…" + text[-_SHOWN:]

    def __str__(self) -> str:
        if self.overdue:
            return "was ended by us"
        return f"ended by signal {self.signal}" if self.exit_code is None else f"exit {self.exit_code}"


@dataclass(frozen=True, slots=True)
class Judged:
    """A turn, or the failure that there is none, and what is to be logged of it."""

    turn: Turn | SendFailure
    warning: str | None = None


def judge_ending(report: AgentReport, ended: Ended) -> Judged:
    """See the table above."""
    if report.ended is LastWord.COMPLETED:
        return _completed(report, ended)
    if report.ended is LastWord.LIMITED:
        told = ErrorReported(report.error or "it stopped at a limit of its own")
        return Judged(_turn(report, TurnStatus.FAILED, extra=(told,)))
    if report.ended is LastWord.NO_MODEL:
        return _failure(report, FailureKind.PROVIDER, "AGENT_WITHOUT_MODEL", report.error or "no answer of its model")
    if report.ended is LastWord.BROKEN:
        return _failure(report, FailureKind.AGENT, "AGENT_EXITED", report.error or str(ended))
    return _unsaid(report, ended)


def failed_turn(report: AgentReport) -> Turn:
    """What came back of a turn that failed."""
    return _turn(report, TurnStatus.FAILED)


def _completed(report: AgentReport, ended: Ended) -> Judged:
    if report.is_empty:
        return _failure(report, FailureKind.PROVIDER, "EMPTY_RESPONSE", "it ended without a text or an operation")
    warning = None
    if ended.overdue or ended.exit_code != 0:
        warning = f"the transcript says that the turn was completed, but the program {ended}: {ended.said}".rstrip(": ")
    return Judged(_turn(report, TurnStatus.TRUNCATED if report.truncated else TurnStatus.COMPLETED), warning)


def _unsaid(report: AgentReport, ended: Ended) -> Judged:
    """The transcript stops before its last word."""
    spoke = any(isinstance(event, Message) and event.role is Role.ASSISTANT for event in report.events)
    if ended.exit_code == 0 and spoke:
        why = "the transcript has no last event"
        doubts = {Channel.EVENTS: partial(why), Channel.STATUS: partial(why), Channel.USAGE: unavailable(why)}
        return Judged(replace(_turn(report, TurnStatus.COMPLETED, doubts), usage=None), why)
    if ended.exit_code == 0:
        return _failure(report, FailureKind.PROVIDER, "EMPTY_RESPONSE", f"it wrote no answer: {ended.said}")
    if ended.exit_code in (126, 127) and not report.events:
        message = f"the program can't be started ({ended}): {ended.said}"
        return _failure(report, FailureKind.ADAPTER, "AGENT_MISSING", message, Acceptance.REJECTED)
    said = ended.said or report.error or "it said nothing"
    return _failure(report, FailureKind.AGENT, "AGENT_EXITED", f"{ended} before its last event: {said}")


def _turn(
    report: AgentReport,
    status: TurnStatus,
    doubts: dict[Channel, CoverageEntry] | None = None,
    extra: tuple[Event, ...] = (),
) -> Turn:
    found = dict(doubts or {})
    if report.unknown:
        found.setdefault(Channel.EVENTS, partial(f"unknown events: {', '.join(report.unknown[:5])}"))
    if report.usage is None:
        found.setdefault(Channel.USAGE, unavailable("not reported"))
    return Turn(status=status, events=(*report.events, *extra), usage=report.usage, coverage=found)


def _failure(
    report: AgentReport, kind: FailureKind, code: str, message: str, acceptance: Acceptance = Acceptance.UNKNOWN
) -> Judged:
    return Judged(SendFailure(message, kind=kind, code=code, acceptance=acceptance, partial=failed_turn(report)))
