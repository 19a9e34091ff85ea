"""What an implementation of the suite format has to show, by number, and the corners that it has to decide.

`SHOWN` and `DECIDED` name the test of each, which breaking the rule turns red.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from evalfleet import evaluate_assertions
from evalfleet.codes.book import CODES as CODES_OF_OURS
from evalfleet.errors import DefinitionError
from evalfleet.model.canonical import digest
from evalfleet.suites.outcome_json import outcome_value
from evalfleet.suites.parse import parse_suite
from tests.unit.semantics.test_requirements import names_in
from tests.unit.suites.documents import check, custom, either, judged, judged_alone, negated, problems, scenario, suite

HERE, SCENARIO = "unit/suites/test_conformance.py", "unit/execution/test_scenario.py"
SELECTION, CODES = "unit/planning/test_suite_selection.py", "acceptance/codes/test_codes_of_suites.py"
MACHINERY = "acceptance/codes/test_codes_of_the_machinery.py"
IMPORT = "unit/reports/test_document_import.py"
SNAPSHOTS = "integration/scheduling/test_snapshots.py"
STAYS = f"{SNAPSHOTS}::test_7_10_33_what_a_snapshot_said_stays_and_no_event_precedes_it"

SHOWN: dict[int, tuple[str, str]] = {
    1: ("a repeated id and an unknown operator refuse the suite", f"{HERE}::test_1_what_refuses_the_suite"),
    2: ("null is a value, and missing is not null", f"{HERE}::test_2_null_and_missing"),
    3: ("contains finds an element by a part of it", f"{HERE}::test_3_a_part_of_an_element"),
    4: ("unknown and raising evaluators differ", f"{HERE}::test_4_unknown_and_raising_evaluators"),
    5: (
        "a failing criterion of the suite leaves its cases passed",
        "acceptance/suites/test_suite_criteria.py::test_the_criteria_of_a_suite_decide_beside_its_cases",
    ),
    6: (
        "after a failed step the next one runs",
        f"{SCENARIO}::test_6_a_failed_step_does_not_keep_the_next_from_running_and_the_session_is_closed_once",
    ),
    7: ("the first snapshot has no turns, a later one has some, and earlier ones stay as they were", STAYS),
    8: ("an unauthorised write opens nothing", f"{MACHINERY}::test_a_write_to_the_outside_has_to_be_allowed"),
    9: ("a changed target refuses to resume", f"{SNAPSHOTS}::test_9_a_changed_target_is_not_resumed"),
    10: ("a case that did not change is the same in a later snapshot, and nobody's copy is another's", STAYS),
    11: (
        "snapshots stay readable while one case closes and another sends",
        f"{SNAPSHOTS}::test_11_snapshots_agree_while_one_case_closes_and_another_sends",
    ),
    12: (
        "a report larger in all than one value may be still parses",
        f"{IMPORT}::test_12_a_document_larger_in_all_than_one_value_may_be_is_read",
    ),
    13: (
        "two at a time over five cases: never more open, all closed, steps not interleaved",
        f"{SNAPSHOTS}::test_13_never_more_at_a_time_than_are_allowed_and_each_in_its_own_order",
    ),
    14: (
        "a limit of failures leaves the rest pending and the run limited",
        f"{SNAPSHOTS}::test_14_a_limit_of_failures_leaves_the_rest_pending",
    ),
    15: (
        "variants times repetitions, in order, within a limit",
        "unit/suites/test_matrix.py::test_15_later_steps_vary_faster",
    ),
    16: (
        "a lost conversation goes on at its next step",
        f"{SCENARIO}::test_16_a_lost_conversation_goes_on_with_the_next_step_in_the_same_session",
    ),
    17: (
        "completed on the last step is a normal end",
        f"{SCENARIO}::test_17_the_word_that_the_conversation_is_over_is_no_harm_at_the_last_step",
    ),
    18: (
        "a send that never ends is out of time",
        f"{SCENARIO}::test_18_a_send_that_never_ends_is_a_turn_out_of_time",
    ),
    19: (
        "an observer that fails ends what is under way, and nothing is opened after it",
        f"{SNAPSHOTS}::test_19_an_observer_that_fails_ends_what_is_under_way_and_nothing_new_begins",
    ),
    20: (
        "a report that contradicts itself is refused",
        f"{IMPORT}::test_a_document_that_contradicts_itself_is_refused_with_the_place",
    ),
    21: ("no composite launders a missing evaluator", f"{HERE}::test_21_no_composite_over_a_missing_evaluator_passes"),
    22: ("cycles and names of a language are refused", f"{HERE}::test_22_a_cycle_and_a_name_of_javascript"),
    23: (
        "a failed external write is not sent again by a retry",
        f"{MACHINERY}::test_a_failed_write_is_only_sent_again_when_a_person_has_looked",
    ),
    24: ("a write under way is not sent again", f"{MACHINERY}::test_what_a_killed_run_had_under_way"),
    25: (
        "a turn's id keeps its bounds",
        "unit/suites/test_matrix.py::test_25_a_turn_is_named_within_its_bounds_however_long_its_step_s_id_is",
    ),
    26: (
        "nobody changes evidence",
        "unit/suites/test_evaluate.py::"
        "test_26_an_attempt_to_change_evidence_fails_and_the_next_criterion_sees_the_original",
    ),
    27: ("a stop hides no failed turn", f"{SCENARIO}::test_27_a_stop_never_hides_a_failed_turn"),
    28: (
        "a session that can't be closed is an error",
        f"{SCENARIO}::test_28_a_session_that_can_not_be_closed_is_an_error_after_all_passed",
    ),
    29: (
        "a session that opens after its deadline is closed",
        f"{SCENARIO}::test_29_a_session_that_opens_after_its_deadline_is_closed",
    ),
    30: (
        "empty lists select nothing",
        f"{SELECTION}::test_30_what_can_not_be_meant_is_told_with_its_field_and_the_nearest_name",
    ),
    31: (
        "an abort while criteria are evaluated leaves the case cancelled",
        f"{SCENARIO}::test_31_an_abort_while_criteria_are_evaluated_leaves_the_case_cancelled",
    ),
    32: ("a bool is no number", f"{HERE}::test_32_a_bool_is_no_number"),
    33: ("events have no gap and never precede their snapshot", STAYS),
    34: (
        "earlier failures of a resumed run do not count towards its limit",
        f"{SNAPSHOTS}::test_34_failures_of_before_do_not_count_towards_the_limit",
    ),
}

DECIDED: dict[int, tuple[str, str]] = {
    1: (
        "an error dominates a failed turn",
        f"{SCENARIO}::test_a_criterion_that_can_not_be_judged_ends_the_conversation_and_dominates_a_failure",
    ),
    2: (
        "the first cause is lifted with its place",
        f"{CODES}::test_a_code_of_a_scenario",
    ),
    3: (
        "what was observed stays when its criteria ran out of time",
        f"{SCENARIO}::test_what_takes_longer_than_a_turn_is_not_judged_and_its_observation_stays",
    ),
    4: (
        "an invalid session state keeps the observation and only makes going on impossible",
        f"{SCENARIO}::test_edge_4_a_session_state_that_is_none_keeps_the_observation_and_prevents_going_on",
    ),
    5: (
        "a failed cleanup keeps what it hides",
        "unit/reports/test_document.py::test_a_failed_cleanup_keeps_what_it_hides",
    ),
    6: (
        "an early stop stays beside a failure",
        f"{SCENARIO}::test_27_a_stop_never_hides_a_failed_turn",
    ),
    7: (
        "an unknown tag is a warning",
        "acceptance/codes/test_codes_of_suites.py::test_a_tag_that_no_scenario_has_is_a_warning",
    ),
    8: (
        "our own mistake has a code of its own, apart from a failed observer",
        "unit/cli/test_errors.py::test_a_mistake_of_ours_has_a_code_of_its_own",
    ),
    9: (
        "each case has its times, attempt and worker",
        "unit/reports/test_document.py::test_a_case_of_a_declared_suite",
    ),
    10: (
        "an abort after the last case leaves the run completed",
        "unit/scheduling/test_decide.py::test_edge_10_an_abort_after_the_last_case_leaves_the_run_completed",
    ),
    11: (
        "evaluators of scenarios that are not selected are only warned about",
        "unit/suites/test_registry.py::test_edge_11_what_others_name_is_only_a_warning",
    ),
    12: ("keys are sorted by code point", f"{HERE}::test_edge_12_keys_are_sorted_by_code_point"),
}


def test_every_number_has_a_test() -> None:
    assert sorted(SHOWN) == list(range(1, 35))
    assert sorted(DECIDED) == list(range(1, 13))


#: The codes of the format that this one follows.
CODES_OF_THE_FORMAT = [
    "EVALUATION_SUITE_INVALID",
    "EVALUATION_DATA_LIMIT",
    "EVALUATION_DATA_CYCLE",
    "EVALUATION_OPTIONS_INVALID",
    "EVALUATION_SCENARIO_NOT_FOUND",
    "EVALUATION_SELECTION_EMPTY",
    "EVALUATION_CASE_LIMIT",
    "EVALUATOR_NOT_FOUND",
    "EVALUATION_ASSERTIONS_INVALID",
    "EVALUATION_OBSERVATION_INVALID",
    "EVALUATION_RESUME_REQUIRED",
    "EVALUATION_RESUME_INVALID",
    "EVALUATION_RESUME_INCOMPATIBLE",
    "EVALUATION_OBSERVER_FAILED",
    "EVALUATOR_FAILED",
    "EVALUATOR_RESULT_INVALID",
    "EVALUATION_TRANSPORT_FAILED",
    "EVALUATION_SESSION_FAILED",
    "EVALUATION_TIMEOUT",
    "EVALUATION_CANCELLED",
    "EVALUATION_CLEANUP_FAILED",
    "EVALUATION_EARLY_COMPLETION",
    "EVALUATION_INCOMPLETE",
    "EXTERNAL_WRITES_NOT_AUTHORIZED",
    "EXTERNAL_WRITE_RESUME_REQUIRES_RECONCILIATION",
    "EXTERNAL_WRITE_RETRY_REQUIRES_RECONCILIATION",
    "TURN_RESUME_NOT_SUPPORTED",
    "TURN_RESUME_UNSAFE",
    "EVALUATION_AGENT_INPUT_INVALID",
    "EVALUATION_SELECTION_UNAVAILABLE",
    "EVALUATION_SELECTION_AMBIGUOUS",
]


def test_every_code_of_the_format_is_in_the_book() -> None:
    assert [code for code in CODES_OF_THE_FORMAT if code not in CODES_OF_OURS] == []


@pytest.mark.parametrize("named", [test for _, test in [*SHOWN.values(), *DECIDED.values()]])
def test_a_named_test_exists(named: str) -> None:
    file, _, test = named.partition("::")
    assert test in names_in(file)


def test_1_what_refuses_the_suite() -> None:
    assert [problem.field for problem in problems(suite(scenario(), scenario()))] == ["scenarios.1.id"]
    unknown = suite(assertions=[check("resembles", value=1)])
    assert [problem.field for problem in problems(unknown)] == ["assertions.0.operator"]


async def test_2_null_and_missing() -> None:
    is_null = check("equals", ["a"], value=None)
    assert (await judged_alone(is_null, {"a": None})).passed
    missing = await judged_alone(is_null, {})
    assert (missing.passed, outcome_value(missing)["actual"]) == (False, {"present": False})
    assert (await judged_alone(check("exists", ["a"]), {"a": None})).passed


async def test_3_a_part_of_an_element() -> None:
    document = check("contains", ["items"], value={"sku": 7})
    assert (await judged_alone(document, {"items": [{"sku": 1}, {"sku": 7, "size": "M"}]})).passed


async def test_4_unknown_and_raising_evaluators() -> None:
    def raises(*_: Any) -> Any:
        raise RuntimeError("PRIVATE")

    outcomes = await judged([custom("unknown"), custom("raises", id="b")], {}, {"raises": raises})
    assert [outcome.error_code for outcome in outcomes] == ["EVALUATOR_NOT_FOUND", "EVALUATOR_FAILED"]
    assert "PRIVATE" not in json.dumps([outcome_value(outcome) for outcome in outcomes])


@pytest.mark.parametrize("document", [negated(custom("gone")), either(check(), custom("gone"))], ids=["not", "any"])
async def test_21_no_composite_over_a_missing_evaluator_passes(document: dict[str, Any]) -> None:
    outcome = await judged_alone(document, {"a": 1})
    assert (outcome.passed, outcome.error_code) == (False, "EVALUATOR_NOT_FOUND")


async def test_22_a_cycle_and_a_name_of_javascript() -> None:
    document = suite()
    document["metadata"] = {"self": document}
    with pytest.raises(DefinitionError) as raised:
        parse_suite(document)
    assert raised.value.code == "EVALUATION_DATA_CYCLE"
    for name in ("__proto__", "prototype", "constructor"):
        with pytest.raises(DefinitionError, match="EVALUATION_ASSERTIONS_INVALID"):
            await evaluate_assertions([check(path=["a", name])], {})


@pytest.mark.parametrize(
    "document",
    [
        check("equals", value=1),
        check("contains", ["list"], value=1),
        check("matches", [], value={"a": 1}),
        check("gte", value=0),
        check("one_of", value=[1]),
        check("set_equals", ["list"], value=[1]),
        check("approx", value=1, tolerance=0),
    ],
    ids=lambda document: document["operator"],
)
async def test_32_a_bool_is_no_number(document: dict[str, Any]) -> None:
    assert not (await judged_alone(document, {"a": True, "list": [True]})).passed
    assert (await judged_alone(document, {"a": 1.0, "list": [1.0]})).passed


def test_edge_12_keys_are_sorted_by_code_point() -> None:
    assert digest({"é": 1, "z": 2, "Z": 3}) == digest({"Z": 3, "z": 2, "é": 1})
    assert digest({"a": 1}) == "015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862"


async def test_the_format_s_own_example_of_a_result() -> None:
    """A missing path is told from null, and what was wanted stands beside it."""
    document = check("equals", ["response", "interaction", "kind"], value="choice", id="choice-offered")
    told = outcome_value(await judged_alone(document, {"response": {"text": "Hello"}}))
    example = {"id": "choice-offered", "passed": False, "actual": {"present": False}, "expected": "choice"}
    assert {key: told[key] for key in example} == example
    assert told.keys() - example.keys() == {"kind", "operator", "path"}
