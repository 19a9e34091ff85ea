"""Why a run is not accepted: the rule, what its cases came to, and what is said of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from evalfleet.reports.exit_code import ExitCode
from tests.acceptance.codes.bodies import Body, submit, write_evals

if TYPE_CHECKING:
    from tests.acceptance.cli.conftest import Orchestrate

PASSES, FAILS = Body("t.check(1, equals(1))"), Body("t.check(1, equals(2))")
SKIPS, WRITES = Body("t.skip('later')"), Body("t.check(1, equals(1))", options="external=True")
EARNS, UNKNOWN = Body("t.check(1, equals(1)).score(1)"), Body("raise ValueError")
NO, UNSURE = ExitCode.NOT_ACCEPTED, ExitCode.INCONCLUSIVE


@pytest.mark.parametrize(
    ("style", "bodies", "accept", "code", "why"),
    [
        ("pass", [PASSES, FAILS, UNKNOWN], {}, NO, "not every case passed: 1 failed, 1 errored otherwise"),
        ("pass", [PASSES, SKIPS], {}, NO, "1 of 2 cases skipped (write allow_skips: true to accept skips)"),
        ("pass", [PASSES, WRITES], {}, NO, "not every case passed: 1 blocked"),
        ("pass", [PASSES], {"mean_score": {"min": 1}}, NO, "accept.mean_score does not apply: the arm is pass-style"),
        ("pass", [FAILS], {"pass_rate": {"min": 0.5}}, NO, "pass rate at most 0.0000, below 0.5"),
        ("pass", [UNKNOWN], {"pass_rate": {"min": 0.5}}, UNSURE, "pass rate lies between 0.0000 and 1.0000"),
        ("score", [EARNS], {"pass_rate": {"min": 1}}, NO, "accept.pass_rate does not apply: the arm is score-style"),
        ("score", [EARNS], {"mean_score": {"min": 2}}, NO, "mean score 1, below 2"),
        ("score", [EARNS, UNKNOWN], {"mean_score": {"min": 1}}, UNSURE, "mean score at least 0.5, 1 is wanted"),
    ],
)  # fmt: skip
def test_why_a_run_is_not_accepted(
    orchestrate: Orchestrate,
    tmp_path: Path,
    style: str,
    bodies: list[Body],
    accept: dict[str, Any],
    code: ExitCode,
    why: str,
) -> None:
    decorator = "define_eval" if style == "pass" else "define_score_eval"
    write_evals(tmp_path, "of", {f"e{number}": body for number, body in enumerate(bodies)}, decorator)
    ended = submit(orchestrate, tmp_path, {"arms": {"parrot": {"adapter": "scripted"}}, "accept": accept})
    (reason,) = ended.values[-1]["reasons"]
    assert (ended.code, reason.startswith(f"arm parrot: {why}")) == (code, True), reason
    assert ended.values[-1]["accepted"] is (False if code is NO else None)
