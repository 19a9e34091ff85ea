"""The report document of one arm of a run, in pieces: of its cases one at a time is held. PURE."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from evalfleet.model.canonical import digest
from evalfleet.model.report import AttemptDetail, CaseView, RunInfo
from evalfleet.model.verdict import RunStatus
from evalfleet.reports.document_case import Planned, case_entry, instant_utc
from evalfleet.reports.document_criteria import criterion_id, criterion_label
from evalfleet.reports.document_models import CASE_STATES
from evalfleet.reports.json_report import run_value
from evalfleet.reports.json_text import to_json

SCHEMA_VERSION = 1

#: The name, kind and label of each criterion that an eval registered.
_Registered = tuple[tuple[str, str, str | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """What of a run is reported beside its cases: one arm.

    `suites` are the suites that the run was planned from, by id, `results` what this arm came to in each of them.
    """

    run: RunInfo
    arm: str
    suites: Mapping[str, Mapping[str, Any]]
    results: Mapping[str, Sequence[Mapping[str, Any]]]


async def render_document(
    reported: Reported, records: AsyncIterator[tuple[CaseView, AttemptDetail | None]]
) -> AsyncIterator[str]:
    """The document in pieces, valid by its schema whatever the run's state. `records` are the cases of the arm."""
    writer = _Writer(reported)
    yield f'{to_json(writer.head())[:-1]}, "cases": ['
    separator = ""
    async for view, detail in records:
        yield f"{separator}{to_json(writer.case(view, detail))}"
        separator = ", "
    yield f"], {to_json(writer.tail())[1:]}"


async def render_documents(
    run: RunInfo, arms: Iterable[str], document: Callable[[str], AsyncIterator[str]]
) -> AsyncIterator[str]:
    """The documents of several arms in pieces, by name, beside the run as listed."""
    yield f'{{"run": {to_json(run_value(run))}, "arms": {{'
    separator = ""
    for arm in arms:
        yield f"{separator}{to_json(arm)}: "
        async for piece in document(arm):
            yield piece
        separator = ", "
    yield "}}"


def document_fingerprint(suite: Mapping[str, Any], case_ids: Iterable[str], target: Mapping[str, Any]) -> str:
    """What a report is compatible with: the definitions, the ordered cases and the target.

    What bodies registered when they ran is no definition, and stays out of it.
    """
    hashed = sha256()
    for identity in case_ids:
        hashed.update(f"{identity}\n".encode("ascii"))
    return _fingerprint(suite, hashed.hexdigest(), target)


def _fingerprint(suite: Mapping[str, Any], cases: str, target: Mapping[str, Any]) -> str:
    if suite.get("generated"):
        scenarios: Sequence[Mapping[str, Any]] = suite["scenarios"]
        definitions: list[dict[str, Any]] = [{**each, "assertions": []} for each in scenarios]
        suite = {**suite, "scenarios": definitions}
    return digest({"suite": digest(suite), "cases": cases, "target": dict(target)})


class _Writer:
    """Gathers, case by case, what stands after the cases: counts, ids and what bodies registered."""

    def __init__(self, reported: Reported) -> None:
        self._reported = reported
        self._parts: Mapping[str, Any] = reported.run.lock.get("parts", {})
        self._evals: Mapping[str, Mapping[str, str]] = self._parts.get("evals", {})
        self._declared = {
            f"{suite}/{scenario['id']}": scenario
            for suite, document in reported.suites.items()
            for scenario in document["scenarios"]
        }
        self._suite = self._only_suite()
        self._counts = dict.fromkeys(CASE_STATES, 0)
        self._ids = sha256()
        self._registered: dict[str, _Registered] = {}
        self._shared: dict[_Registered, _Registered] = {}

    def _only_suite(self) -> str | None:
        """The suite whose scenarios all evals of the run are, if it is one."""
        suites = list(self._reported.suites)
        if len(suites) != 1 or not self._evals or not self._evals.keys() <= self._declared.keys():
            return None
        return suites[0]

    @property
    def _target(self) -> dict[str, str]:
        arm = self._reported.arm
        settings: Any = self._reported.run.experiment.get("arms", {}).get(arm, {})
        target: Mapping[str, Any] = settings.get("target") or {}
        named = target.get("id")
        return {"id": named or arm, "fingerprint": digest(dict(self._parts.get("arms", {}).get(arm, {})))}

    def head(self) -> dict[str, Any]:
        run = self._reported.run
        head: dict[str, Any] = {"schemaVersion": SCHEMA_VERSION, "runId": run.id}
        if run.derived_from is not None:
            head["resumedFrom"] = run.derived_from
        head |= {
            "target": self._target,
            "startedAt": instant_utc(run.created_at if run.started_at is None else run.started_at),
        }
        ended = run.status not in (RunStatus.QUEUED, RunStatus.RUNNING)
        if ended and run.finished_at is not None:
            head["finishedAt"] = instant_utc(run.finished_at)
        head["status"] = run.status.value if ended else RunStatus.RUNNING.value
        if run.stop_reason:
            head["stopReason"] = run.stop_reason
        if run.grading:
            head["grading"] = run.grading
        return head

    def case(self, view: CaseView, detail: AttemptDetail | None) -> dict[str, Any]:
        planned = self._planned(view)
        entry = case_entry(self._reported.run.id, view, detail, planned)
        self._counts[entry["status"]] += 1
        self._ids.update(f"{entry['id']}\n".encode("ascii"))
        if self._suite is None:
            self._register(view.eval_id, detail, declared=planned.scenario is not None)
        return entry

    def _planned(self, view: CaseView) -> Planned:
        scenario = self._declared.get(view.eval_id)
        if scenario is None:
            return Planned(scenario_id=view.eval_id, name=view.eval_id)
        own = view.eval_id if self._suite is None else scenario["id"]
        return Planned(scenario_id=own, name=scenario["name"], scenario=scenario)

    def _register(self, eval_id: str, detail: AttemptDetail | None, *, declared: bool) -> None:
        """Keep which assertions an eval registered, the most that any of its cases did; equal lists are kept once."""
        rows = () if detail is None else detail.assertions
        if len(rows) < len(self._registered.get(eval_id, ())):
            return
        found = tuple((criterion_id(row), row.name, criterion_label(row, declared=declared)) for row in rows)
        self._registered[eval_id] = self._shared.setdefault(found, found)

    def tail(self) -> dict[str, Any]:
        suite = self._generated() if self._suite is None else self._reported.suites[self._suite]
        return {
            "summary": {"total": sum(self._counts.values()), **self._counts},
            "assertions": self._suite_results(),
            "suite": suite,
            "fingerprint": _fingerprint(suite, self._ids.hexdigest(), self._target),
        }

    def _suite_results(self) -> list[dict[str, Any]]:
        """What the suites came to; where there are several, each result is named after its suite."""
        results: list[dict[str, Any]] = []
        for suite, outcomes in self._reported.results.items():
            prefix = "" if suite == self._suite else f"{suite}/"
            results += [{**outcome, "id": f"{prefix}{outcome['id']}"} for outcome in outcomes]
        return results

    def _generated(self) -> dict[str, Any]:
        run = self._reported.run
        scenarios = [self._scenario(eval_id, found) for eval_id, found in self._registered.items()]
        return {"schemaVersion": 1, "generated": True, "id": run.name, "name": run.name, "scenarios": scenarios}

    def _scenario(self, eval_id: str, registered: _Registered) -> dict[str, Any]:
        definition = eval_id if eval_id in self._evals else eval_id.rpartition("/")[0]
        scenario: dict[str, Any] = {"id": eval_id, "name": self._declared.get(eval_id, {}).get("name", eval_id)}
        description = self._reported.run.lock.get("descriptions", {}).get(definition)
        told = {"description": description, "source": self._evals.get(definition, {}).get("source")}
        scenario |= {name: value for name, value in told.items() if value is not None}
        scenario["assertions"] = [
            {"id": identity, "kind": kind, **({} if label is None else {"label": label})}
            for identity, kind, label in registered
        ]
        return scenario
