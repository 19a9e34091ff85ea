"""`accept` decides the exit code: what is missing makes an answer inconclusive, never right or wrong."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.acceptance.cli.conftest import Orchestrate

# Of three cases one passes, one fails, and one has no answer: its eval forgot to assert anything.
EVALS = {
    "passes": 't.check((await t.send("hello")).reply, includes("hello"))',
    "fails": 't.check((await t.send("hello")).reply, includes("goodbye"))',
    "says_nothing": 'await t.send("hello")',
}
EVAL = "from evalfleet import define_eval, includes\n\n@define_eval\nasync def body(t):\n    {}\n"
EXPERIMENT = """schema_version: 1
name: third
arms:
  parrot: {adapter: scripted}
accept: {pass_rate: {min: %s}}
"""


@pytest.mark.parametrize(
    ("minimum", "accepted", "code", "said"),
    [
        (0.3, True, 0, "accepted"),
        (0.5, None, 5, "arm parrot: pass rate lies between 0.3333 and 0.6667, around 0.5: 1 of 3 cases unanswered"),
        (0.7, False, 1, "arm parrot: pass rate at most 0.6667, below 0.7"),
    ],
)
def test_the_bounds_of_the_pass_rate_decide(
    orchestrate: Orchestrate, tmp_path: Path, minimum: float, accepted: bool | None, code: int, said: str
) -> None:
    (tmp_path / "evals").mkdir()
    for name, line in EVALS.items():
        (tmp_path / f"evals/{name}.eval.py").write_text(EVAL.format(line), encoding="utf-8")
    (tmp_path / "experiment.yaml").write_text(EXPERIMENT % minimum, encoding="utf-8")
    ended = orchestrate("submit", "experiment.yaml", "--inline", cwd=tmp_path)
    assert ended.code == code, ended.out + ended.err
    assert ended.out.splitlines()[-1].endswith(said)
    run = ended.err.splitlines()[0].removeprefix("run ")
    (status,) = orchestrate("status", run, "--json").values
    assert status["accepted"] is accepted
