"""A plan in numbers: how many cases of each arm run, are carried or blocked, why, and what that may cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from evalfleet.api.preview import Preview
from evalfleet.planning.plan import Plan
from evalfleet.planning.reuse import Action, ActionKind
from evalfleet.reports.backend_lines import default_backend_line
from evalfleet.reports.cost_estimate import CostEstimate, estimate_line, estimated
from evalfleet.reports.figures import count, counted
from evalfleet.reports.judge_lines import judge_line
from evalfleet.reports.tables import columns
from evalfleet.reports.visible import visible_line

SHOWN_REASONS = 8
HEADERS = ("arm", "adapter", "model", "sandbox", "cases", *(kind.value for kind in ActionKind))


@dataclass
class ActionCounts:
    """Actions by arm and kind, and by arm, kind and reason."""

    kinds: Counter[tuple[str, ActionKind]] = field(default_factory=Counter[tuple[str, ActionKind]])
    reasons: Counter[tuple[str, ActionKind, str]] = field(default_factory=Counter[tuple[str, ActionKind, str]])

    @classmethod
    def of(cls, actions: Iterable[Action]) -> ActionCounts:
        """One pass over the actions; nothing of a case is kept."""
        counts = cls()
        for action in actions:
            counts.kinds[action.case.arm, action.kind] += 1
            counts.reasons[action.case.arm, action.kind, action.reason] += 1
        return counts

    def estimate(self, preview: Preview) -> CostEstimate:
        """What the cases that run may cost."""
        running = {arm.name: self.kinds[arm.name, ActionKind.RUN] for arm in preview.plan.arms}
        return estimated(running, preview.costs)


def plan_lines(preview: Preview, counts: ActionCounts) -> list[str]:
    """The plan for people."""
    plan = preview.plan
    experiment = plan.experiment
    sizes = ((len(plan.evals), "eval"), (len(plan.arms), "arm"), (experiment.repetitions, "repetition"))
    factors = " × ".join(counted(size, noun) for size, noun in sizes)
    head = f"{experiment.name} · {counted(plan.total, 'case')} = {factors} · {plan.style.value}-style"
    rows = _arm_rows(plan, counts)
    default = plan.default_backend
    backend = [] if default is None else [default_backend_line(default)]
    more = [*backend, *_judges(plan), *_datasets(plan), *(visible_line(f"warning: {each}") for each in plan.warnings)]
    return [head, "", *columns(HEADERS, rows), "", *_cost(preview, counts), *_why(counts), *more]


def plan_value(preview: Preview, counts: ActionCounts) -> dict[str, Any]:
    """The plan for programs."""
    plan, estimate = preview.plan, counts.estimate(preview)
    return {
        "name": plan.experiment.name,
        "digest": plan.digest,
        "style": plan.style.value,
        "cases": plan.total,
        "evals": len(plan.evals),
        "repetitions": plan.experiment.repetitions,
        "arms": [
            {
                "arm": arm.name,
                "adapter": arm.plan.settings.adapter,
                "model": arm.settings.model,
                "sandboxed": arm.sandboxed,
                "never_carried_because": arm.agent.missing,
                **{kind.value: counts.kinds[arm.name, kind] for kind in ActionKind},
                "estimated_usd": estimate.arms.get(arm.name, None if counts.kinds[arm.name, ActionKind.RUN] else 0.0),
                "estimated_from": asdict(preview.costs[arm.name]) if arm.name in preview.costs else None,
            }
            for arm in plan.arms
        ],
        "estimate": {
            "usd": estimate.expected,
            "low": estimate.low,
            "high": estimate.high,
            "judge_usd": estimate.judge,
            "unknown": list(estimate.unknown),
        },
        "reasons": [
            {"arm": arm, "action": kind.value, "reason": reason, "cases": cases}
            for (arm, kind, reason), cases in counts.reasons.most_common()
        ],
        "default_backend": None if plan.default_backend is None else plan.default_backend.as_json(),
        "judges": [use.as_json() for use in plan.judge_uses],
        "warnings": [asdict(each) for each in plan.warnings],
        "datasets": [{"uri": each.uri, "sha256": each.sha256, "rows": each.rows} for each in plan.datasets],
    }


def action_value(action: Action) -> dict[str, Any]:
    """One case of a plan for programs."""
    return {
        "case": action.case.ordinal,
        "arm": action.case.arm,
        "eval": action.case.eval_id,
        "repetition": action.case.repetition,
        "action": action.kind.value,
        "reason": action.reason,
        "changed": list(action.changed),
        "carried_from": action.past.run if action.past is not None and action.kind is ActionKind.CARRY else None,
    }


def _cost(preview: Preview, counts: ActionCounts) -> list[str]:
    """What the cases that run will cost, as far as earlier runs can tell; nothing where none of them can."""
    return [visible_line(estimate_line(counts.estimate(preview)))] if preview.costs else []


def _arm_rows(plan: Plan, counts: ActionCounts) -> list[tuple[str, ...]]:
    return [
        (
            arm.name,
            arm.plan.settings.adapter,
            visible_line(arm.settings.model or ""),
            _sandbox(plan, arm.name) if arm.sandboxed else "none",
            count(plan.per_arm),
            *(count(counts.kinds[arm.name, kind]) for kind in ActionKind),
        )
        for arm in plan.arms
    ]


def _sandbox(plan: Plan, arm: str) -> str:
    """The backends and images that the arm's cases get."""
    specs = [spec for (name, _), spec in plan.sandboxes.items() if name == arm and spec is not None]
    named = {" ".join(part for part in (spec.backend, spec.image) if part) or "default" for spec in specs}
    return visible_line(", ".join(sorted(named)))


def _why(counts: ActionCounts) -> list[str]:
    common = counts.reasons.most_common(SHOWN_REASONS)
    lines = [f"{arm}: {kind.value} {count(cases)}: {visible_line(reason)}" for (arm, kind, reason), cases in common]
    more = len(counts.reasons) - len(common)
    return [*lines, *([f"… {counted(more, 'more reason')}: --cases lists every case"] if more else [])]


def _judges(plan: Plan) -> list[str]:
    return [visible_line(judge_line(use.as_json())) for use in plan.judge_uses]


def _datasets(plan: Plan) -> list[str]:
    return [
        f"dataset {visible_line(each.uri)}: {counted(each.rows, 'row')}, {each.sha256[:12]}" for each in plan.datasets
    ]
