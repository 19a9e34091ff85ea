"""Every code that is described is triggered by a test, and every kind of failure: a new one without is refused.

| Where a code comes from | Table, code → what triggers it |
|---|---|
| a test body, an agent's turn | `test_codes.py`: BODIES, SCORED, SLOW |
| an adapter, a provider | `test_codes_of_arms.py`: ARMS |
| a sandbox | `test_codes_of_sandboxes.py`: BODIES, AROUND |
| a judge | `test_codes_of_judges.py`: BODIES, WHY |
| a report | `test_codes_of_reports.py`: ARMS |
| a suite | `test_codes_of_suites.py`: SCENARIOS, REFUSED, CALLED |
| a process of its own | `test_codes_of_the_machinery.py`: APART |
| a definition | `test_codes_of_definitions.py`: EVAL_FILES, OF_ROWS, AT_ONCE, EXPERIMENTS |
| what a test is about that shares no run with others | SINGLE |
| what no run brings about | GUARDS |

`rename.py` renames each in turn, and its test has to notice.
"""

from __future__ import annotations

import re
from types import ModuleType

import pytest

from evalfleet.codes.book import CODES
from evalfleet.errors import FailureKind
from tests.acceptance.codes import (
    test_codes,
    test_codes_of_arms,
    test_codes_of_definitions,
    test_codes_of_judges,
    test_codes_of_reports,
    test_codes_of_sandboxes,
    test_codes_of_suites,
    test_codes_of_the_machinery,
)
from tests.unit.semantics.test_requirements import TESTS, names_in

IN_RUNS = {
    **test_codes.BODIES,
    **test_codes.SCORED,
    **test_codes.SLOW,
    **test_codes_of_sandboxes.BODIES,
    **test_codes_of_judges.BODIES,
    **test_codes_of_the_machinery.APART,
}
CONTINUED = "unit/execution/test_scenario.py::test_an_adapter_that_can_not_go_on_is_told_so_before_anything_is_sent"

#: The codes of each module with tables.
TABLES: dict[ModuleType, set[str]] = {
    test_codes: {*test_codes.BODIES, *test_codes.SCORED, *test_codes.SLOW},
    test_codes_of_sandboxes: {*test_codes_of_sandboxes.BODIES, *test_codes_of_sandboxes.AROUND},
    test_codes_of_judges: {*test_codes_of_judges.BODIES},
    test_codes_of_the_machinery: {*test_codes_of_the_machinery.APART},
    test_codes_of_definitions: {
        *test_codes_of_definitions.EVAL_FILES,
        *test_codes_of_definitions.OF_ROWS,
        *test_codes_of_definitions.AT_ONCE,
        *test_codes_of_definitions.EXPERIMENTS,
    },
    test_codes_of_arms: {*test_codes_of_arms.ARMS},
    test_codes_of_reports: {*test_codes_of_reports.ARMS},
    test_codes_of_suites: {
        *test_codes_of_suites.SCENARIOS,
        *test_codes_of_suites.REFUSED,
        *test_codes_of_suites.CALLED,
    },
}
IN_TABLES = set[str]().union(*TABLES.values())

ATTEMPTS = "acceptance/codes/test_codes.py"
DEFINITIONS = "acceptance/codes/test_codes_of_definitions.py"
MACHINERY = "acceptance/codes/test_codes_of_the_machinery.py"
LATER = "acceptance/codes/test_codes_of_later_commands.py"
LINT = "unit/cli/test_list.py"
TOOLS, WORLD = "unit/execution/test_tools_and_attachments.py", "unit/taskpacks/test_world.py"
USERS = "unit/execution/test_model_users.py"
PROGRAMS, BUDGETS = "unit/adapters/cli/test_session.py", "unit/planning/test_budgets.py"
STORES = "conformance/test_case_stores.py"
SUITES = "acceptance/codes/test_codes_of_suites.py"
KEPT = "unit/execution/test_kept_workdirs.py"
TASKS, TASK_BODIES = "acceptance/sandboxes/test_task_folders.py", "unit/execution/test_task_folders.py"

#: Codes that are read back in a test of their own, which names them.
SINGLE = {
    # of attempts
    "COVERAGE_CONTRADICTED": f"{ATTEMPTS}::test_a_contradiction_is_told_of_the_attempt_and_counted_for_the_run",
    "SANDBOX_NOT_ANNOUNCED": "unit/execution/test_sandbox_stay.py::test_without_its_row_none_is_made",
    "ISOLATION_FAILED": f"{MACHINERY}::test_a_process_that_does_not_begin",
    "RECORD_REJECTED": f"{MACHINERY}::test_a_record_that_the_store_refuses",
    "RECORDING_FAILED": f"{MACHINERY}::test_evidence_that_finds_no_place",
    "ARTIFACT_STORE_AWAY": f"{MACHINERY}::test_evidence_that_finds_no_place",
    "RECORDING_UNREADABLE": f"{MACHINERY}::test_a_recording_that_is_damaged_when_it_is_to_be_judged",
    "EXTERNAL_WRITES_NOT_AUTHORIZED": f"{MACHINERY}::test_a_write_to_the_outside_has_to_be_allowed",
    "EXTERNAL_WRITE_RESUME_REQUIRES_RECONCILIATION": f"{MACHINERY}::test_what_a_killed_run_had_under_way",
    "EXTERNAL_WRITE_RETRY_REQUIRES_RECONCILIATION": f"{MACHINERY}::"
    "test_a_failed_write_is_only_sent_again_when_a_person_has_looked",
    "RUN_INTERRUPTED": f"{MACHINERY}::test_what_a_killed_run_had_under_way",
    "WORKER_STALLED": "acceptance/kill/test_stops.py::test_an_actor_that_stops_is_killed_and_replaced",
    "LEASE_EXPIRED": "acceptance/kill/test_node_loss.py::test_leases_of_a_lost_node_come_back_after_their_end",
    # where a run has another package's sandbox, or its agent's word for it: our own places give them here
    "SANDBOX_EXISTS": "unit/sandboxes/test_local.py::test_an_owner_has_one_sandbox_at_a_time",
    "SANDBOX_CLOSED": "unit/sandboxes/test_local.py::test_one_that_is_closed_or_can_not_be_ended_says_so",
    "SANDBOX_CLEANUP_FAILED": "unit/sandboxes/test_local.py::test_one_that_is_closed_or_can_not_be_ended_says_so",
    "PROVIDER_UNAVAILABLE": "unit/adapters/test_openai.py::test_whose_fault_a_failure_is",
    "REPLAY_DIVERGED": f"{LATER}::test_a_code_of_judging_again",
    "REPLAY_TIMEOUT": f"{LATER}::test_a_code_of_judging_again",
    # of programs
    "AGENT_MISSING": f"{PROGRAMS}::test_a_program_that_is_not_there_as_pinned_is_told",
    "AGENT_VERSION": f"{PROGRAMS}::test_a_program_that_is_not_there_as_pinned_is_told",
    "AGENT_EXITED": f"{PROGRAMS}::test_a_program_that_breaks_off_leaves_what_it_said",
    "AGENT_NOT_SET_UP": f"{PROGRAMS}::test_a_program_whose_settings_find_no_place_is_told",
    "AGENT_OUTPUT_TOO_LARGE": f"{PROGRAMS}::test_a_program_that_writes_without_end_is_ended",
    "AGENT_WITHOUT_GATEWAY": f"{PROGRAMS}::test_a_sandbox_without_a_gateway_is_no_place_for_a_program",
    "AGENT_WITHOUT_MODEL": "unit/adapters/cli/test_ending.py::test_failures",
    # of budgets
    "PRICE_UNKNOWN": f"{BUDGETS}::test_what_can_not_be_kept_is_refused",
    "BUDGET_NOT_COVERED": f"{BUDGETS}::test_what_can_not_be_kept_is_refused",
    # of runs
    "EVALUATION_OBSERVER_FAILED": "acceptance/commands/test_events.py::"
    "test_a_pipe_that_is_closed_is_an_observer_that_failed",
    "RUNNER_INTERNAL": "unit/cli/test_errors.py::test_a_mistake_of_ours_has_a_code_of_its_own",
    # of definitions
    "DUPLICATE_ID": f"{DEFINITIONS}::test_two_files_of_one_id_are_told_with_both",
    "INVALID_EVALS": f"{DEFINITIONS}::test_all_that_is_wrong_with_evals_is_told_at_once",
    "INVALID_EXPERIMENT": f"{DEFINITIONS}::test_the_codes_of_one_experiment",
    "INVALID_OVERRIDE": f"{DEFINITIONS}::test_a_code_of_what_is_set_for_one_call",
    "INVALID_LABEL": "acceptance/judge/test_judged_runs.py::test_labels_that_are_none_are_named_by_their_line",
    "DEFINITION_CHANGED": f"{LATER}::test_codes_of_going_on_with_what_has_changed_since",
    "EVALUATION_RESUME_INCOMPATIBLE": f"{LATER}::test_codes_of_going_on_with_what_has_changed_since",
    "EVALUATION_RESUME_REQUIRED": f"{LATER}::test_codes_of_calls_that_ask_for_what_there_is_not",
    "EVALUATION_OPTIONS_INVALID": f"{LATER}::test_codes_of_calls_that_ask_for_what_there_is_not",
    "STYLE_CHANGED": f"{LATER}::test_codes_of_going_on_with_what_has_changed_since",
    "UNKNOWN_EVAL": f"{LATER}::test_codes_of_going_on_with_what_has_changed_since",
    "INVALID_ACCEPT": f"{LATER}::test_a_rule_of_acceptance_that_this_version_does_not_read",
    # the command line refuses such paths before anything reads them
    "EXPERIMENT_NOT_FOUND": "unit/planning/test_experiment_file.py::test_a_missing_or_unreadable_file_is_one_line",
    "EXPERIMENT_NOT_READABLE": "unit/planning/test_experiment_file.py::test_a_missing_or_unreadable_file_is_one_line",
    # warnings
    "NO_DESCRIPTION": f"{LINT}::test_lint_warns_and_refuses_nothing",
    "JUDGE_NOT_ASKED": f"{LINT}::test_lint_warns_and_refuses_nothing",
    "ROWS_NAMED_BY_POSITION": f"{LINT}::test_lint_warns_and_refuses_nothing",
    "REPEATED_ROW": f"{LINT}::test_lint_warns_and_refuses_nothing",
    "OVERLOOKED_FILE": f"{LINT}::test_lint_warns_and_refuses_nothing",
    # of suites
    "EVALUATION_CANCELLED": f"{SUITES}::test_what_is_reached_when_the_attempt_is_to_end_is_cancelled",
    "EVALUATION_INCOMPLETE": f"{SUITES}::test_a_case_with_fewer_turns_than_steps_is_never_a_pass",
    "TURN_RESUME_NOT_SUPPORTED": CONTINUED,
    "TURN_RESUME_UNSAFE": CONTINUED,
    "NO_CRITERIA": f"{SUITES}::test_a_scenario_that_checks_nothing_is_a_warning",
    "EVALUATION_SELECTION_EMPTY": f"{SUITES}::test_a_selection_that_leaves_no_scenario_is_refused",
    "UNKNOWN_TAG": f"{SUITES}::test_a_tag_that_no_scenario_has_is_a_warning",
    "JUDGE_UNAVAILABLE": "unit/reports/test_document.py::test_the_text_of_a_failure_never_enters",
    # of task packs
    "INVALID_TOOLS": f"{TOOLS}::test_what_is_no_tool_and_no_document_is_the_authors_mistake",
    "INVALID_ATTACHMENT": f"{TOOLS}::test_what_is_no_tool_and_no_document_is_the_authors_mistake",
    "UNKNOWN_TOOL": f"{WORLD}::test_what_goes_wrong_is_traced_and_changes_nothing",
    "INVALID_ARGUMENTS": f"{WORLD}::test_what_goes_wrong_is_traced_and_changes_nothing",
    "CALL_REJECTED": f"{WORLD}::test_what_goes_wrong_is_traced_and_changes_nothing",
    "TOOL_RAISED": f"{WORLD}::test_what_goes_wrong_is_traced_and_changes_nothing",
    "READ_ONLY_TOOL": f"{WORLD}::test_a_tool_that_writes_without_saying_so_is_the_packs_mistake",
    "RESPONDER_MODEL_FAILED": f"{USERS}::test_what_fails_in_the_user_is_never_the_agents",
    "RESPONDER_MODEL_INVALID": f"{USERS}::test_what_fails_in_the_user_is_never_the_agents",
    "RESPONDER_OUT_OF_SCOPE": f"{USERS}::test_what_fails_in_the_user_is_never_the_agents",
    "NO_STATE": "unit/execution/test_pack_attempts.py::test_without_a_pack_there_are_no_records",
    "NO_USER_MODEL": f"{USERS}::test_a_user_without_a_key_or_a_model_is_told",
    "RESPONDER_NO_RULE": f"{WORLD}::test_without_a_rule_there_is_no_answer",
    "CASE_STORE_FAILED": f"{WORLD}::test_a_store_that_breaks_is_nobodys_fault_but_its_own",
    # of reports
    "EVALUATION_RESUME_INVALID": "unit/reports/test_document_import.py::"
    "test_a_document_that_contradicts_itself_is_refused_with_the_place",
    # of task folders
    "INVALID_TASK": f"{TASKS}::test_a_folder_that_can_t_be_run_is_refused_in_a_line",
    "TASK_NOT_SUPPORTED": f"{TASKS}::test_a_folder_that_can_t_be_run_is_refused_in_a_line",
    "TASK_SETTING_IGNORED": f"{TASKS}::test_what_a_folder_asks_for_in_vain_is_said",
    "VERIFIER_TIMEOUT": f"{TASKS}::test_they_settle_as_they_should",
    "REWARD_MISSING": f"{TASKS}::test_they_settle_as_they_should",
    "REWARD_INVALID": f"{TASK_BODIES}::test_tests_that_decide_nothing_are_no_zero",
    "STATE_INCOMPLETE": f"{KEPT}::test_less_than_a_full_reward_is_only_taken_where_the_workdir_is_all",
    "WORKDIR_NOT_RESTORED": f"{KEPT}::test_what_can_not_be_put_back_changes_no_judgement",
    "VERDICT_TAMPERED": f"{TASK_BODIES}::test_a_verdict_that_an_agent_prepared_is_its_own_doing",
    "TESTS_NOT_PLACED": f"{TASK_BODIES}::test_tests_that_find_no_place_are_the_graders_matter",
}

#: Codes that no run on one machine brings about, why, and the test of the place that gives them.
GUARDS = {
    # an author's handles refuse it first, as ASSERTION_MISCONFIGURED; the fold reads stored rows too
    "PASS_SCORE_REFUSED": "unit/grading/test_fold.py::test_what_an_author_may_not_configure",
    "GATE_MINIMUM_MISSING": "unit/grading/test_fold.py::test_what_an_author_may_not_configure",
    # the check of turns refuses it first, as INVALID_TURN; the encoder trusts nobody
    "EVIDENCE_NOT_JSON": "unit/store/test_rows.py::test_evidence_that_is_no_json_is_a_typed_failure_of_the_adapter",
    "EVIDENCE_TOO_DEEP": "unit/store/test_rows.py::test_evidence_that_is_no_json_is_a_typed_failure_of_the_adapter",
    # such a body keeps its earlier verdict
    "NOT_RECORDED": "unit/execution/test_regrade.py::test_what_was_not_recorded_is_no_mistake_of_the_body",
    # the machine would have to be out of memory, or a worker to leave by itself
    "WORKER_OOM": "unit/scheduling/test_losses.py::test_a_worker_that_ended_leaves_an_interrupted_attempt",
    "WORKER_DRAINED": "unit/scheduling/test_losses.py::test_a_worker_that_ended_leaves_an_interrupted_attempt",
    # the shipped suite gives them to every kind of case store
    "SNAPSHOT_NOT_FOUND": f"{STORES}::test_what_is_refused_is_told_by_its_code",
    "SNAPSHOT_DAMAGED": f"{STORES}::test_what_is_refused_is_told_by_its_code",
    "RESET_WHILE_ACTIVE": f"{STORES}::test_what_is_refused_is_told_by_its_code",
    # they need a container engine: `make test-engines`
    "SANDBOX_IMAGE_MISSING": "engines/test_containers.py::test_an_image_that_is_nowhere_is_missing",
    "SANDBOX_IMAGE_UNFIT": "engines/test_containers.py::test_an_unfit_image_is_told_once_and_leaves_nothing",
    "SANDBOX_BUILD_FAILED": "engines/test_containers.py::test_a_build_that_fails_is_told_the_same_way_to_all",
    "SANDBOX_OOM": "engines/test_containers.py::test_a_sandbox_whose_memory_stays_full_is_told_as_that",
    # they need a cluster: `make test-k8s`
    "SANDBOX_FORBIDDEN": "kubernetes/test_refusals.py::test_a_check_says_which_rights_are_missing",
    "SANDBOX_QUOTA": "kubernetes/test_refusals.py::test_a_quota_that_is_used_up_is_told_from_a_missing_right",
    "SANDBOX_UNSCHEDULABLE": "kubernetes/test_refusals.py::test_what_no_node_takes_is_given_up_after_a_while",
    # no run uses a sandbox a second time; who holds one may reset it
    "SANDBOX_UNCLEAN": "unit/sandboxes/test_local.py::test_what_isolates_nothing_can_not_be_reset",
    # the sandbox would have to go away in the moment before its gateway opens
    "SANDBOX_UNREACHABLE": "unit/sandboxes/test_listening.py::test_a_network_that_is_gone_is_unreachable",
    # another version would have to be installed where the worker runs, or no pyarrow
    "INVALID_SNAPSHOT": "unit/planning/test_experiment_file.py::"
    "test_a_snapshot_that_this_installation_does_not_load_says_so",
    "MISSING_EXTRA": "unit/planning/test_tables.py::test_without_the_extra_one_line_says_how_to_install_it",
}

LISTED = IN_TABLES | set(SINGLE) | set(GUARDS)


def place_of_test(code: str) -> str:
    """The file, and the test in it where it is not a table's, that is to notice when the code is another."""
    place = {**SINGLE, **GUARDS}.get(code)
    if place is not None:
        return f"tests/{place}"
    return next(f"{module.__name__.replace('.', '/')}.py" for module, codes in TABLES.items() if code in codes)


def test_every_code_is_triggered() -> None:
    untested = set(CODES) - LISTED
    assert not untested, f"codes without a test: add each to a table above, and run it: {sorted(untested)}"


def test_no_table_has_a_code_that_is_gone() -> None:
    assert LISTED - set(CODES) == set()
    assert not IN_TABLES & {*GUARDS}


@pytest.mark.parametrize("code", [*SINGLE, *GUARDS])
def test_a_code_is_in_the_test_that_is_named(code: str) -> None:
    file, _, test = {**SINGLE, **GUARDS}[code].partition("::")
    assert test in names_in(file), test
    text = (TESTS / file).read_text(encoding="utf-8")
    assert code in GUARDS or re.search(rf"\b{code}\b", text), f"{file} does not name {code}"


def test_every_kind_of_failure_ends_an_attempt() -> None:
    shown = {body.kind for body in IN_RUNS.values()} | {kind for _, kind in test_codes_of_arms.ARMS.values()}
    # an attempt that is cancelled settles nothing
    assert shown | {"infrastructure", "cancelled"} == {kind.value for kind in FailureKind}
