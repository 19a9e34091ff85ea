"""One criterion, its three-valued result, and the row that is kept of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from evalfleet.model.events import MISSING


class Result(StrEnum):
    """What evidence says about a criterion; `errored` means our own or a grader's code broke."""

    MATCHED = "matched"
    MISMATCHED = "mismatched"
    UNAVAILABLE = "unavailable"
    ERRORED = "errored"


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertionResult:
    """The evaluation of one criterion.

    `measurement` is in [0, 1] for continuous matches, whose `result` is then `matched` when a number was
    formed; thresholds are applied by the fold. `reason` is machine-readable and always set when the result
    is unavailable or errored (`coverage:actions=partial (…)`). `expected` and `actual` are JSON values;
    MISSING means there was nothing. `children` holds the parts of a composite, all of them; what a child expected is
    the description of its matcher.
    """

    result: Result
    reason: str | None = None
    expected: Any = MISSING
    actual: Any = MISSING
    measurement: float | None = None
    children: tuple[AssertionResult, ...] = ()

    @property
    def holds(self) -> bool:
        return self.result is Result.MATCHED


class ScopeKind(StrEnum):
    ATTEMPT = "attempt"
    SESSION = "session"
    TURN = "turn"
    VALUE = "value"


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertionPolicy:
    """How a result is used, as configured on the assertion's handle.

    `gate`: None lets the eval's style decide, True makes it a verdict condition, `gate_min` is the threshold
    of a gated measurement, `at_least` a recorded threshold without effect on the verdict, `points` the
    weight of a score contribution (0 or more), `optional` keeps unavailable and errored out of the verdict.
    """

    gate: bool | None = None
    gate_min: float | None = None
    at_least: float | None = None
    points: float | None = None
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertionRow:
    """One assertion as it is recorded: criterion, scope, policy, result and where the author wrote it.

    `name` is the method (`called_tool`, `check`, `assert`); `criterion` its JSON description; `scope` reads
    `t`, `session/1`, `turn/1/0` or `value`. `earned` is the score contribution, None when not scored or
    unknown. `holds` applies the policy's threshold to the result: None when that cannot be known.
    """

    index: int
    name: str
    scope: str
    criterion: Any
    policy: AssertionPolicy
    outcome: AssertionResult
    label: str | None = None
    key: str | None = None
    group: tuple[str, ...] = ()
    source: str | None = None
    earned: float | None = None
    holds: bool | None = None
