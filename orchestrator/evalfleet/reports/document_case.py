"""One case of a report document: its turns with what was sent, seen and checked, and what became of it. PURE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from evalfleet.model.report import AttemptDetail, CaseView
from evalfleet.model.turn import InputResponse, TurnInput, TurnRecord
from evalfleet.model.verdict import CaseStatus
from evalfleet.reports import report_codes
from evalfleet.reports.document_criteria import OF_CASE, Evaluated, criteria_by_step, first_error, list_status
from evalfleet.reports.evidence_value import plain
from evalfleet.reports.visible import visible
from evalfleet.suites.matrix import case_id, step_of, thread_id, turn_id
from evalfleet.suites.observation import observe

_STATES = {CaseStatus.ERRORED: "error", CaseStatus.NOT_NEEDED: "skipped"}
_BEFORE_CLEANUP = {"errored": "error", "interrupted": "error", "superseded": "passed"}

#: Of a case that waits or runs nothing is told yet: what an earlier attempt left does not count.
_UNDECIDED = frozenset({CaseStatus.PENDING, CaseStatus.RUNNING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What a case is one of: the scenario's id in the document, its name, and its declaration when there is one."""

    scenario_id: str
    name: str
    scenario: Mapping[str, Any] | None = None

    def step_id(self, turn: TurnRecord) -> str:
        """The step that a turn is of: the declared one, else the turn's place in its session."""
        steps: Sequence[Mapping[str, Any]] = () if self.scenario is None else self.scenario["steps"]
        return step_of([step["id"] for step in steps], turn.session, turn.index, turn.sequence)


def case_entry(run: str, view: CaseView, detail: AttemptDetail | None, planned: Planned) -> dict[str, Any]:
    """The case as JSON. `run` is the one that is reported; `detail` the attempt that its status comes from."""
    made_by = run if view.carried_from is None or view.attempts else view.carried_from[0]
    identity = case_id(planned.scenario_id, view.variants, view.repetition)
    thread = _thread(made_by, detail, identity)
    known = None if view.status in _UNDECIDED else detail
    code = report_codes.report_code(view.kind, view.code)
    criteria = {} if known is None else criteria_by_step(_evaluated(view, known, planned))
    turns = [] if known is None else _turns(known, planned, thread, criteria)
    state = _state(view, code)
    if state == "passed" and known is not None and len(turns) < _steps(planned):
        state, code = "blocked", report_codes.INCOMPLETE  # it can't have passed: not all of it was played
    entry: dict[str, Any] = {
        "id": identity,
        "scenarioId": planned.scenario_id,
        "name": planned.name,
        "threadId": thread,
        "repetition": view.repetition,
        "variants": dict(view.variants),
        "status": state,
        "turns": turns,
        "assertions": criteria.get(OF_CASE, []),
    }
    if state in ("error", "blocked", "cancelled"):
        entry |= _cause(view, code, entry)
    if (reason := _skip_reason(view, planned)) is not None and state == "skipped":
        entry["skipReason"] = reason
    if known is not None:
        entry |= _facts(view, known)
    return entry


def _thread(run: str, detail: AttemptDetail | None, identity: str) -> str:
    """What adapters were told as the name of the conversation; the case's own where there was none."""
    return f"{run}:{identity}" if detail is None else thread_id(run, detail.begun_by or detail.view.attempt)


def _steps(planned: Planned) -> int:
    """How many turns a declared scenario takes; nobody knows of another."""
    return 0 if planned.scenario is None else len(planned.scenario["steps"])


def case_state(view: CaseView) -> str:
    """The word of the report document for what became of a case."""
    return _state(view, report_codes.report_code(view.kind, view.code))


def instant_utc(at: float) -> str:
    """A moment, given in seconds since the epoch, as ISO 8601 in UTC, to the millisecond."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _state(view: CaseView, code: str | None) -> str:
    if view.status is CaseStatus.ERRORED and report_codes.is_blocking(code):
        return "blocked"
    return _STATES.get(view.status, view.status.value)


def _evaluated(view: CaseView, detail: AttemptDetail, planned: Planned) -> Evaluated:
    return Evaluated(
        rows=detail.assertions,
        calls=detail.judge_calls,
        style=view.style,
        declared=planned.scenario is not None,
        complete=all(turn.failure is None for turn in detail.turns),
    )


def _turns(
    detail: AttemptDetail, planned: Planned, thread: str, criteria: Mapping[str, list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """The turns in the order they were started; one whose session never opened was not sent."""
    unopened = detail.view.code == report_codes.NOT_OPENED
    return [
        _turn(turn, detail, thread, planned.step_id(turn), criteria)
        for turn in sorted(detail.turns, key=lambda turn: turn.sequence)
        if turn.failure is None or not unopened
    ]


def _turn(
    turn: TurnRecord, detail: AttemptDetail, thread: str, step: str, criteria: Mapping[str, list[dict[str, Any]]]
) -> dict[str, Any]:
    results = criteria.get(step, [])
    value: dict[str, Any] = {"stepId": step, "turnId": turn_id(thread, step), "input": input_value(turn.input)}
    if turn.failure is None:
        value["status"] = list_status(results)
        value["observation"] = plain(observe(turn).value)
    else:
        code = report_codes.report_code(detail.view.kind, detail.view.code) or report_codes.TRANSPORT_FAILED
        value["status"] = "cancelled" if code == report_codes.CANCELLED else "error"
        value["errorCode"] = code
    value["assertions"] = results
    value["durationMs"] = round(turn.duration * 1000)
    if turn.session_state is not None:
        value["checkpoint"] = plain(turn.session_state)
    return value


def input_value(given: TurnInput) -> dict[str, Any]:
    """What was sent, as a JSON object: a step's own input, else its text with what came along; no file's content."""
    if given.value is not None:
        return plain(given.value)
    value: dict[str, Any] = {"text": given.text}
    if given.files:
        value["files"] = [
            {"name": file.name, "mediaType": file.media_type, "bytes": len(file.data)} for file in given.files
        ]
    if given.responses:
        value["responses"] = [_response(one) for one in given.responses]
    return value


def _response(given: InputResponse) -> dict[str, str]:
    answer = ("optionId", given.option_id) if given.text is None else ("text", given.text)
    return {"requestId": given.request_id, answer[0]: answer[1] or ""}


def _cause(view: CaseView, code: str | None, entry: Mapping[str, Any]) -> dict[str, Any]:
    """The code of the case; where an assertion is what could not be judged, that one's, and where it stands."""
    if view.code in report_codes.OF_ASSERTIONS:
        lists = [(f"turns.{number}.assertions", turn["assertions"]) for number, turn in enumerate(entry["turns"])]
        for place, results in [*lists, ("assertions", entry["assertions"])]:
            if found := first_error(results, place):
                return {"errorCode": found[0], "errorPointer": found[1]}
    if code is None and entry["status"] == "cancelled":
        code = report_codes.CANCELLED
    return {} if code is None else {"errorCode": code}


def _skip_reason(view: CaseView, planned: Planned) -> str | None:
    """Why a case was left out: by a rule of the experiment, by its scenario, or in the words of its body or agent."""
    if view.status is CaseStatus.NOT_NEEDED:
        return f"not-needed:{view.code}" if view.code else "not-needed"
    declared: str | None = None if planned.scenario is None else planned.scenario.get("skipReason")
    return declared if view.message is None else visible(view.message)


def _facts(view: CaseView, detail: AttemptDetail) -> dict[str, Any]:
    """When the attempt ran, which it was and whose, and how cleaning up after it ended when that failed."""
    facts: dict[str, Any] = {}
    if view.attempts:
        facts |= {"attempt": detail.view.number, "worker": detail.view.worker}
    facts["startedAt"] = instant_utc(detail.view.started_at)
    facts["finishedAt"] = instant_utc(detail.view.started_at + detail.view.duration + detail.waited)
    if (before := detail.outcome_before_cleanup) is not None:
        facts["cleanup"] = {"status": "failed", "code": report_codes.CLEANUP_FAILED}
        facts["outcomeBeforeCleanup"] = _BEFORE_CLEANUP.get(before, before)
    return facts
