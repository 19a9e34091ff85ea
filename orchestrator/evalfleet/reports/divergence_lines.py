"""A divergence as lines for people and as a JSON value for programs, with the same keys. PURE."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evalfleet.model.events import MISSING, OperationStarted
from evalfleet.model.report import CaseView
from evalfleet.reports.assertion_tree import assertion_lines
from evalfleet.reports.divergence import Crossing, Divergence, Evidence
from evalfleet.reports.evidence_value import plain
from evalfleet.reports.figures import counted
from evalfleet.reports.visible import shown, visible_line
from evalfleet.reports.wording import case_name, case_result

#: So many pieces of evidence are named at a boundary; JSON names all.
_NAMED = 6
_QUOTED = 200

NOT_RECORDED = "not recorded"
_STARTED = OperationStarted.type


def divergence_lines(case: CaseView, found: Divergence | None, limit: int | None) -> Iterator[str]:
    """The criterion with what it wanted and saw, then each boundary in order with what is recorded there."""
    yield f"{visible_line(case_name(case))} · arm {visible_line(case.arm)} · {case_result(case)}"
    if found is None:
        yield "  nothing diverges: what decides holds, and nothing failed"
        return
    if found.assertion is not None:
        yield from assertion_lines(found.assertion, limit)
    if found.code is not None:
        yield f"  {found.code}: check {found.check}" if found.check else f"  {found.code}"
    yield f"  in {', '.join(found.turns[:_NAMED]) or 'no turn'}{_more(len(found.turns))}"
    for number, crossing in enumerate(found.crossings, 1):
        yield from _crossing(number, crossing)


def _crossing(number: int, crossing: Crossing) -> Iterator[str]:
    head = f"  {number} {crossing.boundary.value:<14}  "
    named, total = crossing.evidence[:_NAMED], len(crossing.evidence)
    if not crossing.recorded:
        yield f"{head}{NOT_RECORDED}"
    elif crossing.none:
        yield f"{head}none, by {', '.join(each.id for each in named)}{_more(total)}"
    else:
        calls = {each.value["operation_id"]: each.value["name"] for each in crossing.evidence if each.what == _STARTED}
        for place, evidence in enumerate(named):
            yield f"{head if place == 0 else ' ' * len(head)}{evidence.id}  {_told(evidence, calls)}"
        if total > _NAMED:
            yield f"{' ' * len(head)}and {total - _NAMED} more"


def _told(evidence: Evidence, calls: Mapping[str, str]) -> str:
    """The evidence in a line; a call by its name."""
    value: Any = evidence.value
    match evidence.what:
        case "message":
            text = f"{value['role']} {shown(value['text'], _QUOTED)}"
        case "operation.started":
            given = value["raw_input"] or value.get("input", MISSING)
            text = f"{value['kind']} {value['name']}({'' if given is MISSING else shown(given, _QUOTED)})"
        case "operation.finished":
            output = f": {shown(value['output'], _QUOTED)}" if "output" in value else ""
            text = f"{calls.get(value['operation_id'], value['operation_id'])} {value['status']}{output}"
        case what:
            text = f"{what} {shown(value, _QUOTED)}"
    return visible_line(text)


def _more(total: int) -> str:
    return f" and {counted(total - _NAMED, 'other')}" if total > _NAMED else ""


def divergence_value(found: Divergence | None) -> dict[str, Any] | None:
    """All of it. A boundary is `recorded` or not; where there was `none`, its evidence is what proves that."""
    if found is None:
        return None
    return {
        "assertion": None if found.assertion is None else plain(found.assertion),
        "code": found.code,
        "check": found.check,
        "turns": list(found.turns),
        "boundaries": [
            {
                "boundary": crossing.boundary.value,
                "question": crossing.boundary.question,
                "recorded": crossing.recorded,
                "none": crossing.none,
                "evidence": [{"id": each.id, "what": each.what, "value": each.value} for each in crossing.evidence],
            }
            for crossing in found.crossings
        ],
    }
