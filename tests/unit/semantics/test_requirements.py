"""Each requirement on what a result means, and the tests that show it: all of them exist."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]

TABLES, DECLARED = "unit/semantics/test_tables.py", "unit/semantics/test_declarations.py"
COVERAGE = "unit/assertions/test_coverage_table.py"
EVIDENCE = "unit/assertions/test_evidence.py"
HANDLES = "unit/execution/test_snapshots_and_handles.py"
FOLD = "unit/grading/test_fold.py"
SUITE = "conformance/test_adapters.py"
DISCOVER = "unit/planning/test_discover.py"

#: The requirement in a line, and `file::test` for each test that shows it.
REQUIREMENTS: dict[str, tuple[str, ...]] = {
    # evidence and what may be concluded from it
    "A1 what can be called and what can be trusted are two things": (
        f"{DECLARED}::test_an_agent_declares_coverage_and_nothing_else_about_what_it_can_do",
        "unit/execution/test_sandbox_room.py::test_without_a_sandbox_the_agent_is_told",
    ),
    "A2 coverage is declared, capabilities are not": (
        f"{DECLARED}::test_an_agent_declares_coverage_and_nothing_else_about_what_it_can_do",
        f"{DECLARED}::test_no_adapter_takes_capabilities",
    ),
    "A3 three states and no fourth": (
        f"{DECLARED}::test_six_channels_of_three_states",
        f"{DECLARED}::test_every_channel_is_declared",
    ),
    "A4 the sandbox comes from how the agent is declared": (
        "unit/adapters/test_python.py::test_a_sandbox_agent_says_so",
        "unit/execution/test_sandbox_room.py::test_the_agent_gets_the_same_sandbox",
    ),
    # an adapter that exports spans, and their waterfall, come with telemetry
    "A5 evidence never comes from spans": (
        f"{DECLARED}::test_evidence_is_what_turns_report_and_no_timing_is_among_it",
    ),
    "A6 sessions go on and share nothing, whatever the coverage": (
        "unit/adapters/test_openai.py::test_a_conversation_remembers_and_sessions_share_nothing",
        "unit/adapters/test_http.py::test_a_conversation_goes_by_the_endpoints_session_id",
        f"{SUITE}::test_the_suite_refuses",
    ),
    "A7 a question parks the turn, an answer names it": (
        f"{HANDLES}::test_answers_reach_the_agent_by_request",
        "unit/adapters/test_openai.py::"
        "test_a_call_that_needs_approval_parks_the_turn_and_an_answer_goes_on_with_the_same_rounds",
        "unit/adapters/test_http.py::test_a_question_parks_the_turn_and_an_allowed_call_does_not_start_again",
    ),
    "A8 compaction is an event like others": (f"{COVERAGE}::test_positive", f"{COVERAGE}::test_negative"),
    "A9 six channels, a reason for what is missing": (
        f"{DECLARED}::test_six_channels_of_three_states",
        f"{DECLARED}::test_a_reason_stands_where_something_is_missing_and_nowhere_else",
    ),
    "A10 presets, of converters too": (
        f"{DECLARED}::test_six_channels_of_three_states",
        "unit/adapters/test_openai.py::test_actions_are_complete_unless_the_provider_has_tools_of_its_own",
        "unit/adapters/test_http.py::test_what_is_not_mapped_is_not_covered",
    ),
    "A11 a turn only takes back": (
        f"{DECLARED}::test_a_turn_only_takes_back",
        f"{HANDLES}::test_a_turn_may_downgrade_and_an_upgrade_is_clamped_and_noted",
        f"{SUITE}::test_the_suite_refuses_an_upgrade_of_coverage",
    ),
    "A12 what was found is found; what was not may only be missing": (
        f"{COVERAGE}::test_positive",
        f"{COVERAGE}::test_positive_value",
    ),
    "A13 absence and limits need all of the evidence, a counterexample does not": (
        f"{COVERAGE}::test_negative",
        f"{COVERAGE}::test_upper_bound",
        f"{TABLES}::test_how_often",
    ),
    "A14 what can't be known is recorded with its reason": (
        f"{COVERAGE}::test_the_reason_names_channel_state_and_the_authors_reason",
        "acceptance/codes/test_codes.py::test_a_code_of_a_pass_style_attempt",
    ),
    "A15 required and unknown is errored, optional and unknown is only shown": (
        f"{TABLES}::test_the_verdict",
        f"{FOLD}::test_the_verdict_in_its_order",
    ),
    "A16 a judge has causes of its own, and the same verdict rule": (
        "unit/execution/test_judging.py::test_a_judge_without_an_answer_is_unavailable_and_says_why",
        "unit/execution/test_judging.py::test_an_optional_judge_stays_out_of_the_verdict",
        "unit/grading/test_judge_reply.py::test_what_is_no_ruling_is_never_read_as_one",
        "acceptance/codes/test_codes_of_judges.py::test_why_a_judge_has_no_answer",
    ),
    "A17 who claims to see all must show it": (
        f"{SUITE}::test_complete_actions_must_be_shown",
        f"{SUITE}::test_the_suite_refuses",
        "unit/assertions/test_contradictions.py::test_a_claim_that_is_contradicted",
        "unit/execution/test_diagnostics.py::test_a_claim_that_the_turns_contradict_is_told_and_decides_nothing",
    ),
    "A18 converters promise their protocol only": (
        "unit/adapters/test_openai.py::test_actions_are_complete_unless_the_provider_has_tools_of_its_own",
    ),
    # evals, verdicts, files
    "B1 an eval names no agent": ("unit/planning/test_define.py::test_a_wrong_option_is_refused_where_it_stands",),
    "B2 ids come from paths": (
        f"{DISCOVER}::test_ids_come_from_paths_and_are_ordered_by_path",
        f"{DISCOVER}::test_only_eval_files_are_imported_and_hidden_folders_are_skipped",
    ),
    "B3 prefixes are plain text": ("unit/planning/test_select.py::test_a_prefix_is_plain_text",),
    "B4 send, assert, verdict, in this order": (
        "unit/execution/test_attempt_lifecycle.py::test_the_stages_are_seen_in_order",
        f"{HANDLES}::test_or_stop_settles_what_came_before_in_source_order",
    ),
    "B5 one file holds a run": (
        "integration/store/test_transfer.py::test_a_run_reads_the_same_in_another_store_and_can_be_resumed_there",
    ),
    "B6 four verdicts": (f"{TABLES}::test_the_verdict", f"{FOLD}::test_what_every_judgement_is"),
    "B7 a score is read as a sum, 0 is one": (
        f"{TABLES}::test_the_score",
        "unit/reports/test_summaries.py::test_score_arms_have_no_percentage",
    ),
    "B8 what failed is in no ranking of successes": (
        f"{TABLES}::test_a_failed_gate_keeps_the_score_that_was_earned",
        "unit/reports/test_ranking.py::test_what_is_ranked",
    ),
    "B9 points are a weight": (f"{FOLD}::test_what_a_row_means",),
    "B10 kinds are not mixed": ("unit/planning/test_plan.py::test_what_can_not_be_planned_is_refused_at_its_place",),
    "B11 a Boolean decides in pass-style and is recorded in score-style": (f"{FOLD}::test_what_a_row_means",),
    "B12 measurements decide by a gate, which keeps the score": (
        f"{FOLD}::test_what_a_row_means",
        f"{TABLES}::test_a_failed_gate_keeps_the_score_that_was_earned",
    ),
    "B13 counts stand on the match": (f"{TABLES}::test_how_often", f"{TABLES}::test_a_count_is_at_least_one"),
    "B14 a list fans out by position": (f"{TABLES}::test_ids",),
}


@cache
def names_in(file: str) -> frozenset[str]:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, functions))


def test_no_requirement_is_left_out() -> None:
    assert [requirement.split()[0] for requirement in REQUIREMENTS] == [
        *(f"A{number}" for number in range(1, 19)),
        *(f"B{number}" for number in range(1, 15)),
    ]


@pytest.mark.parametrize("requirement", REQUIREMENTS)
def test_a_requirement_is_shown_by_tests_that_exist(requirement: str) -> None:
    assert REQUIREMENTS[requirement]
    for name in REQUIREMENTS[requirement]:
        file, _, test = name.partition("::")
        assert test in names_in(file), name
