"""Run, carry or blocked, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest

from evalfleet.model.case import Case
from evalfleet.model.verdict import CaseStatus, Style
from evalfleet.planning.fingerprint import FingerprintParts
from evalfleet.planning.reuse import Action, ActionKind, NoHistory, Past, reuse

CASE = Case(
    ordinal=0, arm="a", eval_id="x", definition="x", style=Style.PASS, repetition=1, content="c", fingerprint="now"
)
PARTS = FingerprintParts({"source": "1", "model": "2", "row": "3"})


@dataclass
class Known:
    """A history of at most one past Case."""

    past: Past | None

    def settled(self, fingerprint: str, repetition: int) -> Past | None:
        found = self.past is not None and (self.past.fingerprint, repetition) == (fingerprint, CASE.repetition)
        return self.past if found else None

    def resembling(self, case: Case) -> Past | None:
        return self.past


def past(status: CaseStatus = CaseStatus.PASSED, fingerprint: str = "now", **parts: str) -> Past:
    return Past(run="r1", ordinal=4, status=status, fingerprint=fingerprint, attempt=9, parts=parts)


def decide(
    case: Case, before: Past | None, *, allow_external: bool = False, skips: Mapping[str, str] | None = None
) -> Action:
    (action,) = reuse(
        [case],
        Known(before),
        lambda _: PARTS,
        allow_external=allow_external,
        unprintable={"b": "no source"},
        skips=skips or {},
    )
    return action


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (CaseStatus.PASSED, ActionKind.CARRY),
        (CaseStatus.FAILED, ActionKind.CARRY),
        (CaseStatus.ERRORED, ActionKind.RUN),
        (CaseStatus.SKIPPED, ActionKind.RUN),
        (CaseStatus.BLOCKED, ActionKind.RUN),
        (CaseStatus.CANCELLED, ActionKind.RUN),
        (CaseStatus.NOT_NEEDED, ActionKind.RUN),
        (CaseStatus.PENDING, ActionKind.RUN),
        (CaseStatus.RUNNING, ActionKind.RUN),
    ],
)
def test_only_a_decided_answer_of_the_latest_run_is_carried(status: CaseStatus, kind: ActionKind) -> None:
    action = decide(CASE, past(status))
    assert action.kind is kind
    assert action.past == past(status)
    assert "run r1" in action.reason


def test_a_changed_case_runs_and_names_the_fields() -> None:
    action = decide(CASE, past(fingerprint="old", source="1", model="other", gone="x"))
    assert (action.kind, action.changed) == (ActionKind.RUN, ("model", "row", "gone"))
    assert action.reason == "changed since run r1: model, row, gone"


def test_a_case_without_a_past_runs() -> None:
    assert decide(CASE, None).reason == "never settled before"


def test_another_repetition_is_another_sample() -> None:
    action = decide(replace(CASE, repetition=2), past())
    assert action.kind is ActionKind.RUN


def test_an_arm_without_a_fingerprint_is_never_carried_and_says_why() -> None:
    action = decide(replace(CASE, arm="b", fingerprint=None), past())
    assert (action.kind, action.past) == (ActionKind.RUN, None)
    assert action.reason == "the arm's agent can't be fingerprinted: no source"


def test_external_cases_are_blocked_unless_allowed() -> None:
    external = replace(CASE, external=True)
    assert decide(external, None).kind is ActionKind.BLOCKED
    assert decide(external, past()).kind is ActionKind.BLOCKED
    assert decide(external, None, allow_external=True).kind is ActionKind.RUN


def test_what_is_left_out_is_neither_run_nor_carried_nor_asked_whether_it_writes() -> None:
    skips = {CASE.definition: "the shop is closed"}
    for case, before in ((CASE, None), (CASE, past()), (replace(CASE, external=True), None)):
        action = decide(case, before, skips=skips)
        assert (action.kind, action.reason) == (ActionKind.SKIP, "the shop is closed")
    assert decide(CASE, None, skips={"another": "closed"}).kind is ActionKind.RUN


def test_no_history_runs_everything() -> None:
    actions = reuse([CASE], NoHistory(), lambda _: PARTS, allow_external=False, unprintable={}, skips={})
    assert [action.kind for action in actions] == [ActionKind.RUN]
