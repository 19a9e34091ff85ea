"""Reading a report document back: it is refused where it contradicts itself, and rendered from what it tells."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from evalfleet.errors import DefinitionError, FailureKind
from evalfleet.model.assertion import Result
from evalfleet.model.turn import TurnInput
from evalfleet.model.verdict import CaseStatus
from evalfleet.reports.classes import CaseClass
from evalfleet.reports.document import document_fingerprint
from evalfleet.reports.document_import import import_report
from evalfleet.suites.bounded_json import MAX_VALUES
from tests.unit.reports.documents import CHECKOUT, case, detail, document_of, row, run_info, suite_row, suite_run, turn


async def suite_document() -> Any:
    """A case that passed, one that failed and one that was left out."""
    turns = [
        turn(0, input=TurnInput("a lamp", value={"text": "a lamp"})),
        turn(1, input=TurnInput("pay", value={"text": "pay"})),
    ]
    passed = case(eval_id="shop/checkout")
    failed = case(CaseStatus.FAILED, ordinal=1, eval_id="shop/checkout", repetition=1)
    skipped = case(CaseStatus.SKIPPED, ordinal=2, eval_id="shop/left-out", attempts=0)
    return await document_of(
        suite_run(),
        (passed, detail(*turns, rows=[suite_row(0, "pay"), suite_row(1, None)])),
        (failed, detail(*turns, rows=[suite_row(0, "pay", passed=False, label="paid"), suite_row(1, None)])),
        (skipped, None),
        suites={"shop": CHECKOUT},
        results={"shop": [{"id": "all-settled", "kind": "check", "passed": True}]},
    )


def forge(document: Any) -> None:
    """Make the fingerprint that of what the document says now."""
    ids = [each["id"] for each in document["cases"]]
    document["fingerprint"] = document_fingerprint(document["suite"], ids, document["target"])


def setting(*path: str | int, to: Any) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        *way, last = path
        for part in way:
            document = document[part]
        document[last] = to

    return change


def swap_steps(document: Any) -> None:
    first, second = document["cases"][0]["turns"]
    first["stepId"], second["stepId"] = second["stepId"], first["stepId"]


def twice(document: Any) -> None:
    document["cases"].append(copy.deepcopy(document["cases"][0]))
    document["summary"] |= {"total": 4, "passed": 2}


#: What is changed in a document, and where the refusal says that it is wrong.
FORGED: list[tuple[Callable[[Any], None], str]] = [
    (setting("cases", 0, "status", to="excellent"), "cases.0.status"),
    (setting("cases", 0, "turns", 0, "notes", to="mine"), "cases.0.turns.0.notes"),
    (setting("schemaVersion", to=2), "schemaVersion"),
    (setting("startedAt", to="yesterday"), "startedAt"),
    (setting("startedAt", to="2025-13-01T00:00:00Z"), "startedAt"),
    (setting("suite", "schemaVersion", to=7), "suite"),
    (setting("suite", "scenarios", 0, "writePolicy", to="perhaps"), "suite.scenarios.0.writePolicy"),
    (setting("suite", "scenarios", 0, "steps", 1, "id", to="choose"), "suite.scenarios.0.steps.1.id"),
    (setting("summary", "failed", to=0), "summary.failed"),
    (setting("summary", "total", to=9), "summary.total"),
    (setting("status", to="running"), "finishedAt"),
    (twice, "cases.3.id"),
    (setting("cases", 0, "scenarioId", to="elsewhere"), "cases.0.scenarioId"),
    (setting("cases", 0, "repetition", to=4), "cases.0.id"),
    (setting("cases", 1, "status", to="passed"), "cases.1.status"),
    (setting("cases", 1, "turns", 1, "status", to="passed"), "cases.1.turns.1.status"),
    (setting("cases", 0, "turns", 1, "assertions", 0, "passed", to=False), "cases.0.turns.1.status"),
    (setting("cases", 0, "turns", to=[]), "cases.0.status"),
    (swap_steps, "cases.0.turns.0.stepId"),
    (setting("cases", 0, "turns", 0, "input", to={"text": "a sofa"}), "cases.0.turns.0.input"),
    (setting("fingerprint", to="0" * 64), "fingerprint"),
    (setting("suite", "name", to="Another shop"), "fingerprint"),
    (setting("target", "fingerprint", to="another"), "fingerprint"),
]


@pytest.mark.parametrize(("change", "place"), FORGED, ids=[place for _, place in FORGED])
async def test_a_document_that_contradicts_itself_is_refused_with_the_place(
    change: Callable[[Any], None], place: str
) -> None:
    document = await suite_document()
    change(document)
    if place != "fingerprint":
        forge(document)
    with pytest.raises(DefinitionError) as refused:
        import_report(document, "report.json")
    assert refused.value.code == "EVALUATION_RESUME_INVALID"
    assert place in [problem.field for problem in refused.value.problems]
    assert "sofa" not in str(refused.value) and "excellent" not in str(refused.value)


async def test_a_case_without_an_observation_did_not_pass() -> None:
    document = await suite_document()
    del document["cases"][0]["turns"][0]["observation"]
    with pytest.raises(DefinitionError, match=r"cases\.0\.turns\.0\.status: a turn that passed has an observation"):
        import_report(document, "report.json")


@pytest.mark.parametrize("value", [[], "x", None, {}, {"arms": {"a": {}}}])
def test_what_is_no_report_at_all(value: Any) -> None:
    with pytest.raises(DefinitionError) as refused:
        import_report(value, "report.json")
    assert refused.value.code == "EVALUATION_RESUME_INVALID"
    assert all(problem.file == "report.json" for problem in refused.value.problems)


async def test_a_suite_document_is_rendered_from_what_it_tells() -> None:
    imported = import_report(await suite_document(), "report.json")
    report = imported.report
    assert (report.run.id, report.run.name, report.run.status) == ("7f3k2m0q1x", "Shop", "completed")
    (arm,) = report.arms
    assert {each: count for each, count in arm.classes.items() if count} == {
        CaseClass.PASSED: 1,
        CaseClass.FAILED: 1,
        CaseClass.SKIPPED: 1,
    }
    assert [each.message for each in report.notable] == ["pay: paid is not met"]
    assert report.accepted.decision is False
    assert [(each.eval_id, each.repetition, each.duration) for each in imported.cases] == [
        ("checkout", 0, 1.25),
        ("checkout", 1, 1.25),
        ("left-out", 0, None),
    ]


async def test_a_suite_criterion_that_is_not_met_is_not_accepted() -> None:
    passed = (case(), detail(turn(), rows=[row(0)]))
    met = await document_of(run_info(), passed)
    assert import_report(met, "r").report.accepted.decision is True
    unmet = await document_of(
        run_info(), passed, results={"shop": [{"id": "unique", "kind": "custom", "passed": False}]}
    )
    accepted = import_report(unmet, "r").report.accepted
    assert (accepted.decision, accepted.reasons) == (False, ("arm mine: the suite criterion shop/unique is not met",))


async def test_each_status_comes_back() -> None:
    records = [
        (case(eval_id="a"), detail(turn(), rows=[row(0)])),
        (case(CaseStatus.FAILED, eval_id="b"), detail(turn(), rows=[row(0, Result.MISMATCHED)])),
        (case(CaseStatus.ERRORED, eval_id="c", kind=FailureKind.DEADLINE, code="TURN_TIMEOUT"), None),
        (case(CaseStatus.ERRORED, eval_id="d", kind=FailureKind.PROVIDER, code="RATE_LIMITED"), None),
        (case(CaseStatus.NOT_NEEDED, eval_id="e"), None),
        (case(CaseStatus.SKIPPED, eval_id="f", message="no"), None),
        (case(CaseStatus.BLOCKED, eval_id="g", code="EXTERNAL_WRITES_NOT_AUTHORIZED"), None),
        (case(CaseStatus.CANCELLED, eval_id="h", settlement=None), None),
        (case(CaseStatus.PENDING, eval_id="i", settlement=None), None),
    ]
    imported = import_report(json.loads(json.dumps(await document_of(run_info(), *records))), "r")
    assert [each.status for each in imported.cases] == [view.status for view, _ in records]
    kinds = [(each.kind, each.code) for each in imported.cases if each.status is CaseStatus.ERRORED]
    assert kinds == [(FailureKind.DEADLINE, "EVALUATION_TIMEOUT"), (None, "RATE_LIMITED")]
    assert {count for each, count in imported.report.totals.items()} == {1}


async def test_the_arms_of_one_run_are_read_together_and_those_of_two_are_refused() -> None:
    one = await document_of(run_info(), (case(), detail(turn(), rows=[row(0)])))
    other = await document_of(run_info(id="8g4"), (case(), detail(turn(), rows=[row(0)])))
    imported = import_report({"run": {}, "arms": {"a": one, "b": one}}, "r")
    assert [(each.arm, each.ordinal) for each in imported.cases] == [("a", 0), ("b", 1)]
    assert [arm.counts.arm for arm in imported.report.arms] == ["a", "b"]
    with pytest.raises(DefinitionError, match="arms: the arms are not those of one run"):
        import_report({"arms": {"a": one, "b": other}}, "r")
    del one["summary"]
    with pytest.raises(DefinitionError, match=r"arms\.a\.summary"):
        import_report({"arms": {"a": one}}, "r")


async def test_12_a_document_larger_in_all_than_one_value_may_be_is_read() -> None:
    """The bounds are of a value: an observation, an input, a result."""
    observation = {"numbers": [*range(110_000)]}
    asked, paid = ({"text": text} for text in ("a lamp", "pay"))
    played = [
        turn(0, input=TurnInput("a lamp", value=asked), observation=observation),
        turn(1, input=TurnInput("pay", value=paid)),
    ]
    cases = [(case(ordinal=n, eval_id="shop/checkout", repetition=n), n) for n in range(5)]
    rows = [suite_row(0, "pay"), suite_row(1, None)]
    records = [(each, detail(*played, rows=rows)) for each, _ in cases]
    document = await document_of(suite_run(), *records, suites={"shop": CHECKOUT}, results={})
    assert 5 * len(observation["numbers"]) > MAX_VALUES
    assert len(import_report(document, "report.json").cases) == 5
