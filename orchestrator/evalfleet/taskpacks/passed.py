"""What the assertions of a Task pack look for: a grader that passes, and a diff with nothing unexpected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from evalfleet.assertions.match import Evaluation, Match, broken, decided
from evalfleet.taskpacks.graders import GraderStatus


@dataclass(frozen=True, slots=True)
class GraderPasses(Match):
    """The document of a grader's result says that it passes; one that broke decides nothing."""

    grader: str

    def describe(self) -> Any:
        return {"grader": self.grader}

    def judge(self, value: Any) -> Evaluation:
        """Matched for `pass`, mismatched for `fail`, errored for `error`."""
        if value["status"] == GraderStatus.ERROR:
            return broken(f"grader ({value['detail'].get('error', 'unknown')})", value)
        found = {"actual": value["actual"], "detail": value["detail"]}
        return decided(value["status"] == GraderStatus.PASS, expected=value["expected"], actual=found)


@dataclass(frozen=True, slots=True)
class StateIsClean(Match):
    """The document of an examined diff says that it is clean."""

    def describe(self) -> Any:
        return {"state": "clean"}

    def judge(self, value: Any) -> Evaluation:
        """Matched when nothing is unexpected, missing or taken back."""
        wrong = {name: value[name] for name in ("unexpected", "missing", "reverted_changes") if value[name]}
        return decided(value["clean"], expected={}, actual=wrong)
