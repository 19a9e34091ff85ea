"""What the text and Markdown reports say in the same words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from evalfleet.model.report import ArmCounts, CaseView, JudgeCounts, RunInfo
from evalfleet.reports.accept import Accepted
from evalfleet.reports.classes import CaseClass
from evalfleet.reports.figures import UNKNOWN, count, counted, money, part_of, percent, seconds
from evalfleet.reports.headline import Headline, PassHeadline
from evalfleet.reports.model import ArmReport
from evalfleet.reports.repetitions import PerEval
from evalfleet.reports.statistics import Interval
from evalfleet.reports.visible import visible_line

ARM_COLUMNS = (
    "arm",
    "result",
    "95 % interval",
    "of all cases",
    "answered",
    "cases",
    "tokens in / out",
    "cost",
    "p50",
    "p95",
)


def arm_cells(counts: ArmCounts, figures: Headline, name: str) -> tuple[str, ...]:
    """One row of the arms table, in the order of `ARM_COLUMNS`; `name` is the arm's name as the format shows it."""
    return (
        name,
        *headline_cells(figures),
        count(counts.planned),
        tokens(counts),
        money(counts.cost_usd if counts.attempts else None, counts.unknown_cost),
        seconds(counts.seconds.get("p50")),
        seconds(counts.seconds.get("p95")),
    )


def headline_cells(figures: Headline) -> tuple[str, str, str, str]:
    """Result, interval, bounds and coverage of an arm. A rate never stands without how much it covers."""
    if isinstance(figures, PassHeadline):
        of = "" if figures.within is None else f" evals within {figures.within}"
        return (
            f"{percent(figures.rate)} ({figures.passed}/{figures.answered}{of})",
            span(figures.interval),
            span(figures.bounds),
            f"{percent(figures.coverage)} ({figures.answered}/{figures.total})",
        )
    mean = UNKNOWN if figures.mean is None else f"{figures.mean:.4g} points"
    return (mean, UNKNOWN, UNKNOWN, f"{figures.complete}/{figures.total} complete")


def arm_lines(arm: ArmReport, *, alone: bool) -> Iterator[str]:
    """What is said of an arm below the table; of an arm that is alone the totals say its classes."""
    if not alone:
        yield class_counts(arm.classes)
    failures = failure_counts(arm.counts.failures_by_kind)
    if failures:
        yield f"failures by kind, all attempts: {failures}"
    if arm.counts.judge is not None:
        yield judge_counts(arm.counts.judge)
    if arm.counts.judge_again is not None:
        yield f"judged again: {judge_counts(arm.counts.judge_again)}"
    if arm.per_eval is not None and arm.per_eval.repetitions > arm.per_eval.evals:
        yield from _per_eval_lines(arm.per_eval)
    yield from arm.notes


def _per_eval_lines(figures: PerEval) -> Iterator[str]:
    """What the repetitions say, with how many evals stand behind it."""
    if figures.evals > 1:
        yield _mean_line(figures)
    last = figures.repeated[-1] if figures.repeated else None
    if last is not None and last.k > 1:
        shares = (
            f"at least one {percent(last.any_passes)} (pass@{last.k}), all {percent(last.all_pass)} (pass^{last.k})"
        )
        yield f"of {last.k} repetitions, drawn without replacement: {shares}, over {counted(last.evals, 'eval')}"
    yield from figures.notes


def _mean_line(figures: PerEval) -> str:
    spread = "" if figures.standard_error is None else f" ± {percent(figures.standard_error)} standard error"
    over = part_of(figures.answered_evals, figures.evals, "eval")
    return f"mean over evals {percent(figures.mean)}{spread} ({over})"


def span(interval: Interval | None) -> str:
    """An interval of shares as percentages."""
    return UNKNOWN if interval is None else f"{percent(interval.low)} … {percent(interval.high)}"


def tokens(counts: ArmCounts) -> str:
    """Input and output tokens; a lower bound when some usage is unknown, a dash when all of it is."""
    if not counts.attempts or counts.unknown_usage >= counts.attempts:
        return UNKNOWN
    bound = "≥ " if counts.unknown_usage else ""
    return f"{bound}{count(counts.input_tokens)} / {count(counts.output_tokens)}"


def class_counts(classes: Mapping[CaseClass, int]) -> str:
    """The exclusive classes that occur; they add up to the planned cases."""
    return " · ".join(f"{count(number)} {each.label}" for each, number in classes.items() if number) or "no cases"


def judge_counts(counts: JudgeCounts) -> str:
    """What the judge was asked and what that used, beside what the agent did."""
    asked = counts.calls - counts.cached
    calls = [counted(counts.calls, "judge call")]
    calls += [
        f"{count(number)} {what}" for number, what in ((counts.cached, "cached"), (counts.failed, "failed")) if number
    ]
    used = f"{count(counts.input_tokens)} / {count(counts.output_tokens)} tokens"
    bound = "≥ " if counts.unknown_usage else ""
    known = UNKNOWN if asked and counts.unknown_usage >= asked else f"{bound}{used}"
    return f"{', '.join(calls)} · {known} · {money(counts.cost_usd, counts.unknown_cost)}"


def failure_counts(kinds: Mapping[str, int]) -> str:
    """Failures by who is to blame, most frequent first."""
    ordered = sorted(kinds.items(), key=lambda item: (-item[1], item[0]))
    return " · ".join(f"{kind} {count(number)}" for kind, number in ordered if number)


def acceptance(accepted: Accepted) -> str:
    """The decision in a word or two."""
    return {True: "accepted", False: "not accepted", None: "inconclusive"}[accepted.decision]


def elapsed(run: RunInfo) -> str | None:
    """How long the run took, once it is over."""
    if run.started_at is None or run.finished_at is None:
        return None
    return seconds(max(0.0, run.finished_at - run.started_at))


def run_state(run: RunInfo) -> str:
    """The run's status with why it stopped, or that nobody works on it, and which grading is read."""
    state = f"{run.status.value} ({run.stop_reason})" if run.stop_reason else run.status.value
    if run.interrupted:
        state = f"{run.status.value} (interrupted: orchestrate resume {run.id})"
    return f"{state}, grading {run.grading}" if run.grading else state


def case_name(case: CaseView) -> str:
    """The case without its arm: eval, variants and the repetition counted from 1."""
    chosen = ", ".join(f"{step}={variant}" for step, variant in sorted(case.variants.items()))
    variants = f" [{chosen}]" if chosen else ""
    return f"{case.eval_id}{variants} #{case.repetition + 1}"


def case_result(case: CaseView) -> str:
    """What became of the case: its status, and whose fault an error was."""
    blame = " ".join(part for part in (case.kind.value if case.kind else None, case.code) if part)
    return f"{case.status.value} ({visible_line(blame)})" if blame else case.status.value
