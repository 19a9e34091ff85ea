"""How often an agent gets a Task pack wrong, and in which way: from what graders and the state diff recorded. PURE.

| Rate | Part | Of |
|---|---|---|
| `false_sufficient` | decided, and asked for nothing | decision points with gaps |
| `false_insufficient` | asked for something | decision points without gaps |
| `undecided` | decided nothing | decision points |
| `missed_gap` | gaps that were not asked for | gaps |
| `over_asking` | requirements that were no gap | requirements asked for |
| `reason_missing` | those without a reason | gaps that were asked for |
| `unexpected_change` | something unexpected, or taken back | attempts whose changes were looked at |

Attempts without a graders' record, as errored ones, are in none of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evalfleet.reports.statistics import pass_hat_k

#: The channel of the state diff, beside the graders.
STATE = "state"

#: How the codes of failures of who answers the agent begin.
_RESPONDER = "RESPONDER_"


@dataclass(frozen=True, slots=True, kw_only=True)
class PackAttempt:
    """A settled attempt of a pack: what it attached, None where it never came so far, and the code of its failure."""

    eval_id: str
    evidence: Mapping[str, Any]
    graders: Sequence[Mapping[str, Any]] | None
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a whole."""

    part: int = 0
    whole: int = 0

    @property
    def value(self) -> float | None:
        """The share, None of nothing."""
        return self.part / self.whole if self.whole else None

    def plus(self, part: int, whole: int) -> Share:
        return Share(self.part + part, self.whole + whole)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserFidelity:
    """How a model played its users: its calls, those that gave something away, attempts that it ended ungraded."""

    model: str
    calls: int
    gave_away: int
    ended: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PackRates:
    """The rates of one arm on one pack. `turns` is the mean number of sends of attempts that ended with the right
    decision; `reliability` is pass^k by grader, over the assignments, where each has `k` graded repetitions or more.
    `user` is None where no model played one: then all but the agent repeats.
    """

    attempts: int
    graded: int
    rates: Mapping[str, Share]
    turns: float | None
    k: int
    reliability: Mapping[str, float | None]
    user: UserFidelity | None = None

    def document(self) -> dict[str, Any]:
        """The rates as JSON."""
        user = self.user
        played = user and {"model": user.model, "calls": user.calls, "gave_away": user.gave_away, "ended": user.ended}
        return {
            "attempts": self.attempts,
            "graded": self.graded,
            "rates": {name: {"part": s.part, "whole": s.whole, "value": s.value} for name, s in self.rates.items()},
            "turns": self.turns,
            "k": self.k,
            "reliability": dict(self.reliability),
            "deterministic": user is None,
            "user": played,
        }


@dataclass(slots=True)
class _Count:
    shares: dict[str, Share] = field(default_factory=lambda: dict.fromkeys(_NAMES, Share()))

    def add(self, name: str, part: int, whole: int = 1) -> None:
        self.shares[name] = self.shares[name].plus(part, whole)


_NAMES = (
    "false_sufficient", "false_insufficient", "undecided", "missed_gap", "over_asking", "reason_missing",
    "unexpected_change",
)  # fmt: skip


def pack_rates(attempts: Sequence[PackAttempt]) -> PackRates:
    """The rates of these attempts, which are of one arm on one pack."""
    count, turns = _Count(), list[int]()
    graded = [each for each in attempts if each.graders is not None]
    for each in graded:
        for at, results in _points(each.graders or ()).items():
            _count_point(count, results)
            if at is None and _status(results.get("decision")) == "pass":
                turns.append(len(each.evidence["points"]))
        state = each.evidence.get("state")
        if state is not None:
            count.add("unexpected_change", bool(state["unexpected"] or state["reverted_changes"]))
    k, reliability = _reliability(graded)
    return PackRates(
        attempts=len(attempts),
        graded=len(graded),
        rates=count.shares,
        turns=sum(turns) / len(turns) if turns else None,
        k=k,
        reliability=reliability,
        user=_user(attempts),
    )


def _points(graders: Iterable[Mapping[str, Any]]) -> dict[int | None, dict[str, Mapping[str, Any]]]:
    """The results by decision point and grader; the end is the point None."""
    found: dict[int | None, dict[str, Mapping[str, Any]]] = defaultdict(dict)
    for result in graders:
        found[result["at"]][result["grader"]] = result
    return found


def _count_point(count: _Count, results: Mapping[str, Mapping[str, Any]]) -> None:
    decision, gap, request = results.get("decision"), results.get("gap"), results.get("request")
    decided = _status(decision) in {"pass", "fail"} and (decision or {})["actual"] is not None
    if _status(decision) in {"pass", "fail"}:
        count.add("undecided", not decided)
    if gap is None or _status(gap) == "error":
        return
    gaps, asked = frozenset(gap["expected"]), frozenset(gap["actual"])
    if gaps:
        count.add("false_sufficient", decided and not asked)
    else:
        count.add("false_insufficient", bool(asked))
    count.add("missed_gap", len(gaps - asked), len(gaps))
    count.add("over_asking", len(asked - gaps), len(asked))
    if request is not None and _status(request) in {"pass", "fail"}:
        said = request["detail"].get("of_gaps", {})
        told = [name for name in gaps & asked if name in said]
        count.add("reason_missing", sum(not said[name]["reason"] for name in told), len(told))


def _reliability(graded: Sequence[PackAttempt]) -> tuple[int, dict[str, float | None]]:
    """The smallest number of graded repetitions of an assignment, and pass^k of each grader at it."""
    by_eval: dict[str, list[dict[str, bool]]] = defaultdict(list)
    for each in graded:
        by_eval[each.eval_id].append(_passed(each))
    k = min((len(repetitions) for repetitions in by_eval.values()), default=0)
    names = dict.fromkeys(name for repetitions in by_eval.values() for one in repetitions for name in one)
    found: dict[str, float | None] = {}
    for name in names:
        answers = [[one[name] for one in repetitions if name in one] for repetitions in by_eval.values()]
        shares = [pass_hat_k(len(each), sum(each), k) for each in answers if len(each) >= k]
        known = [share for share in shares if share is not None]
        found[name] = sum(known) / len(known) if known else None
    return k, found


def _passed(attempt: PackAttempt) -> dict[str, bool]:
    """What each grader says of an attempt, at all of its decision points together; without those that broke."""
    found: dict[str, bool] = {}
    broken: set[str] = set()
    for result in attempt.graders or ():
        name, status = result["grader"], result["status"]
        if status == "error":
            broken.add(name)
        elif status != "not_applicable":
            found[name] = found.get(name, True) and status == "pass"
    if (state := attempt.evidence.get("state")) is not None:
        found[STATE] = bool(state["clean"])
    return {name: passed for name, passed in found.items() if name not in broken}


def _user(attempts: Iterable[PackAttempt]) -> UserFidelity | None:
    played = [
        (each, each.evidence["responder"])
        for each in attempts
        if not each.evidence.get("responder", {}).get("deterministic", True)
    ]
    if not played:
        return None
    calls = [call for _, responder in played for call in responder["calls"]]
    return UserFidelity(
        model=", ".join(sorted({responder["model"] for _, responder in played})),
        calls=len(calls),
        gave_away=sum(bool(call.get("gave_away")) for call in calls),
        ended=sum((each.code or "").startswith(_RESPONDER) for each, _ in played),
    )


def _status(result: Mapping[str, Any] | None) -> str | None:
    return None if result is None else result["status"]
