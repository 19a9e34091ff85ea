"""What earlier runs settled, read from the record store before a plan asks for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from evalfleet.model.case import Case
from evalfleet.model.ids import sha256
from evalfleet.model.verdict import CaseStatus, Settlement
from evalfleet.planning.plan import Plan
from evalfleet.planning.reuse import Past
from evalfleet.store.connection import Connection, connect
from evalfleet.store.history import CaseName, resembling, settled_before
from evalfleet.store.planned import PastResult
from evalfleet.store.reader import Reader

_BATCH = 4000
#: Beyond so many cases a plan does not say what changed since which run, only what is carried.
_EXPLAINED = 100_000


class StoredHistory:
    """The earlier results that a plan's cases can be compared with."""

    def __init__(
        self,
        plan: Plan,
        settled: Mapping[tuple[str, int], PastResult],
        similar: Mapping[CaseName, PastResult],
        parts: Mapping[str, Mapping[str, Any]],
    ) -> None:
        self._plan = plan
        self._settled = settled
        self._similar = similar
        self._parts = parts

    def settled(self, fingerprint: str, repetition: int) -> Past | None:
        found = self._settled.get((fingerprint, repetition))
        return None if found is None else _past(found, fingerprint, {})

    def resembling(self, case: Case) -> Past | None:
        found = self._similar.get((case.arm, case.eval_id, case.repetition))
        if found is None:
            return None
        before = recorded_parts(self._parts.get(found.run, {}), case)
        now = self._plan.parts(case).fields
        shared = {name: value for name, value in now.items() if name != "row"}
        row = "" if case.row is None else sha256(case.row)
        if shared == before:
            # Nothing else changed and the fingerprint did, so it was the row.
            row = f"not {row}"
        return _past(found, None, {**before, "row": row})


async def load_history(url: str, plan: Plan) -> StoredHistory:
    """Everything that `plan.actions` may ask for. Raises StoreError when the store can't be used."""
    project = str(plan.project)
    async with await connect(url, autocommit=True) as connection:
        settled = await _settled(connection, project, plan.cases())
        similar: dict[CaseName, PastResult] = {}
        if plan.total <= _EXPLAINED:
            similar = await resembling(connection, project, plan.experiment.name)
    reader = Reader(url)
    try:
        runs = {found.run for found in similar.values()}
        parts = {run: (await reader.find_run(run)).lock.get("parts", {}) for run in runs}
    finally:
        await reader.close()
    return StoredHistory(plan, settled, similar, parts)


async def _settled(connection: Connection, project: str, cases: Iterable[Case]) -> dict[tuple[str, int], PastResult]:
    keys = ((case.fingerprint, case.repetition) for case in cases if case.fingerprint is not None)
    found: dict[tuple[str, int], PastResult] = {}
    while batch := list(islice(keys, _BATCH)):
        found |= await settled_before(connection, project, batch)
    return found


def parts_to_record(plan: Plan) -> dict[str, Any]:
    """The plan's fingerprint parts as a run keeps them: by arm, by eval, and by both."""
    sandboxes: dict[str, dict[str, Mapping[str, str]]] = {}
    for (arm, definition), parts in plan.sandbox_parts.items():
        sandboxes.setdefault(arm, {})[definition] = dict(parts.fields)
    return {
        "arms": {arm.name: dict(arm.parts.fields) for arm in plan.arms},
        "evals": {name: dict(parts.fields) for name, parts in plan.eval_parts.items()},
        "sandboxes": sandboxes,
    }


def recorded_parts(parts: Mapping[str, Any], case: Case) -> dict[str, str]:
    """The parts that a run recorded for a case like this one, without its row's."""
    arm = parts.get("arms", {}).get(case.arm, {})
    definition = parts.get("evals", {}).get(case.definition, {})
    sandbox = parts.get("sandboxes", {}).get(case.arm, {}).get(case.definition, {})
    return {**arm, **definition, **sandbox}


def _past(found: PastResult, fingerprint: str | None, parts: Mapping[str, str]) -> Past:
    return Past(
        run=found.run,
        ordinal=found.ordinal,
        status=_status(found),
        fingerprint=fingerprint,
        attempt=found.attempt,
        executed_by=found.executed_by,
        grading=found.grading,
        parts=parts,
    )


def _status(found: PastResult) -> CaseStatus:
    if found.verdict is not None:
        return CaseStatus(found.verdict.value)
    return {
        Settlement.BLOCKED: CaseStatus.BLOCKED,
        Settlement.SKIPPED: CaseStatus.SKIPPED,
        Settlement.NOT_NEEDED: CaseStatus.NOT_NEEDED,
    }.get(found.how, CaseStatus.PENDING)
