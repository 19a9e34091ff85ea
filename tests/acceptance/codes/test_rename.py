"""A code that is renamed is noticed by its test; all of them: `python -m tests.acceptance.codes.rename`."""

from __future__ import annotations

import pytest

from tests.acceptance.codes.rename import main


@pytest.mark.soak
def test_a_renamed_code_is_noticed(capsys: pytest.CaptureFixture[str]) -> None:
    codes = ("NO_CRITERIA", "EVALUATOR_FAILED", "EVALUATION_RESUME_INVALID", "COVERAGE_CONTRADICTED")
    assert main(codes) == 0, capsys.readouterr().out
    assert capsys.readouterr().out.count(" red\n") == len(codes)
