"""A run that may cost more than `budget.confirm_usd` begins only when somebody said so."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.commands.test_going_on import FILES, on_terminal

if TYPE_CHECKING:
    from tests.acceptance.cli.conftest import Orchestrate

#: Four cases of 0.003 US dollars each.
CHANGES = {"repetitions: 20": "repetitions: 4\nbudget: {confirm_usd: 0.01}", "sleep(0.25)": "sleep(0)"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        for before, now in CHANGES.items():
            text = text.replace(before, now)
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_what_may_cost_too_much_is_confirmed_or_does_not_begin(orchestrate: Orchestrate, project: Path) -> None:
    submit = ("submit", "experiment.yaml", "--inline")
    unknown = orchestrate(*submit, cwd=project)
    assert unknown.code == 2
    assert "estimated cost: unknown (no earlier case of mine has a known cost)" in unknown.err
    assert "budget.confirm_usd is $0.0100: say --yes" in unknown.err
    assert orchestrate("runs", "--json").values == [], "nothing was begun"

    assert orchestrate(*submit, "--yes", cwd=project).code == 0
    known = orchestrate(*submit, cwd=project)
    assert known.code == 2 and "estimated cost: $0.0120, and budget.confirm_usd" in known.err
    detached = orchestrate("submit", "experiment.yaml", "--inline", "--detach", cwd=project)
    assert detached.code == 2 and "say --yes" in detached.err
    assert len(orchestrate("runs", "--json").values) == 1

    code, said = on_terminal(orchestrate, "n\n", project, *submit)
    assert code == 2 and "estimated cost: $0.0120. Begin?" in said and "was not confirmed" in said
    code, said = on_terminal(orchestrate, "y\n", project, *submit)
    assert code == 0, said
    assert orchestrate(*submit, "--set", "budget.confirm_usd=0.02", cwd=project).code == 0
    assert orchestrate(*submit, "--reuse", cwd=project).code == 0, "what is carried costs nothing"
    (planned,) = orchestrate("plan", "experiment.yaml", "--json", cwd=project).values
    assert planned["estimate"]["usd"] == pytest.approx(0.012)
    assert planned["estimate"]["low"] == planned["estimate"]["high"] == pytest.approx(0.012)
