"""From outcomes to a status: the list's table, and that of a case with its turns."""

from __future__ import annotations

import pytest

from evalfleet.model.suite import Severity, SuiteOutcome
from evalfleet.model.turn import Stop, StopKind
from evalfleet.suites.folding import Cause, TurnFold, fold, fold_case


def outcome(
    passed: bool, code: str | None = None, id: str = "c", *children: SuiteOutcome, advisory: bool = False
) -> SuiteOutcome:
    severity = Severity.ADVISORY if advisory else Severity.REQUIRED
    return SuiteOutcome(id=id, kind="check", passed=passed, error_code=code, severity=severity, children=children)


HELD, MISSED, BROKEN = outcome(True), outcome(False), outcome(False, "EVALUATOR_FAILED")


@pytest.mark.parametrize(
    ("outcomes", "status"),
    [
        ((), "passed"),
        ((HELD, HELD), "passed"),
        ((HELD, MISSED), "failed"),
        ((MISSED, BROKEN), "error"),
        ((BROKEN, HELD), "error"),
        ((HELD, outcome(False, advisory=True)), "passed"),
        ((HELD, outcome(False, "EVALUATOR_FAILED", advisory=True)), "passed"),
        ((MISSED, outcome(True, advisory=True)), "failed"),
    ],
)
def test_a_list(outcomes: tuple[SuiteOutcome, ...], status: str) -> None:
    assert fold(outcomes) == status


def turn(*outcomes: SuiteOutcome, code: str | None = None) -> TurnFold:
    return TurnFold(step_id="s", outcomes=outcomes, error_code=code)


PASSED, FAILED, ERROR = turn(HELD), turn(MISSED), turn(BROKEN)
LOST, CANCELLED = turn(code="EVALUATION_TRANSPORT_FAILED"), turn(code="EVALUATION_CANCELLED")

CASES: list[tuple[str, tuple[TurnFold, ...], tuple[SuiteOutcome, ...], StopKind | None, str, str | None]] = [
    # turns of two steps, outcomes at the end, the agent's stop, status, cause
    ("all passed", (PASSED, PASSED), (HELD,), None, "passed", None),
    ("a failed turn", (FAILED, PASSED), (HELD,), None, "failed", None),
    ("a failed end", (PASSED, PASSED), (MISSED,), None, "failed", None),
    ("an error in a turn", (PASSED, ERROR), (), None, "error", "EVALUATOR_FAILED at turns.1.assertions.c"),
    ("a send without a turn", (LOST,), (), None, "error", "EVALUATION_TRANSPORT_FAILED at turns.0"),
    ("a failure, then an error", (FAILED, LOST), (), None, "error", "EVALUATION_TRANSPORT_FAILED at turns.1"),
    ("a failed turn, an error at the end", (FAILED, PASSED), (BROKEN,), None, "error",
     "EVALUATOR_FAILED at assertions.c"),
    ("cancelled", (FAILED, CANCELLED), (), None, "cancelled", "EVALUATION_CANCELLED at turns.1"),
    ("too few turns", (PASSED,), (), None, "blocked", "EVALUATION_INCOMPLETE at turns.1"),
    ("completed early", (PASSED,), (), StopKind.COMPLETED, "blocked", "EVALUATION_EARLY_COMPLETION at turns.1"),
    ("completed at the last step", (PASSED, PASSED), (MISSED,), StopKind.COMPLETED, "failed", None),
    ("completed early after a failure", (FAILED,), (), StopKind.COMPLETED, "failed", None),
    ("skipped", (PASSED,), (), StopKind.SKIPPED, "skipped", None),
    ("skipped at the last step", (PASSED, PASSED), (), StopKind.SKIPPED, "skipped", None),
    ("skipped after a failure", (FAILED,), (), StopKind.SKIPPED, "failed", None),
    ("skipped after an error", (ERROR,), (), StopKind.SKIPPED, "error", "EVALUATOR_FAILED at turns.0.assertions.c"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("turns", "outcomes", "kind", "status", "cause"), [row[1:] for row in CASES], ids=[row[0] for row in CASES]
)
def test_a_case(
    turns: tuple[TurnFold, ...],
    outcomes: tuple[SuiteOutcome, ...],
    kind: StopKind | None,
    status: str,
    cause: str | None,
) -> None:
    found = fold_case(turns, outcomes, steps=2, stop=None if kind is None else Stop(kind, "said so"))
    assert found.status == status
    assert (None if found.cause is None else f"{found.cause.code} at {found.cause.pointer}") == cause


def test_edge_2_the_innermost_cause_is_lifted() -> None:
    inner = outcome(False, "EVALUATOR_FAILED", "inner")
    parent = outcome(False, "EVALUATOR_FAILED", "all", HELD, inner)
    assert fold_case([turn(HELD, parent)], (), steps=1).cause == Cause(
        "EVALUATOR_FAILED", "turns.0.assertions.all.inner"
    )


def test_edge_6_a_stop_stays_beside_a_failure() -> None:
    stop = Stop(StopKind.COMPLETED, "done")
    assert fold_case([FAILED], (), steps=2, stop=stop).stop is stop
    assert fold_case([FAILED], (), steps=1, stop=stop).stop is None
