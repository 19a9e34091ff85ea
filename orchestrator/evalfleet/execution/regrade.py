"""Judging a recorded attempt again: its test body runs on the record, and no agent is called."""

from __future__ import annotations

from dataclasses import replace

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.execution.attempt import run_attempt
from evalfleet.execution.job import AttemptControl, AttemptJob, AttemptServices
from evalfleet.execution.recorded_agent import RecordedAgent, RecordedTime
from evalfleet.execution.unrecorded import NOT_RECORDED, NOT_RECORDED_CODE, UnrecordedSandbox
from evalfleet.grading.fold import fold
from evalfleet.model.case import AttemptSummary
from evalfleet.model.definition import EvalDefinition, SandboxSpec
from evalfleet.model.grading import Basis, Regrading
from evalfleet.model.record import KEPT_WORKDIR, AttemptEvidence
from evalfleet.model.verdict import Judgement, Outcome, Style
from evalfleet.sandbox_ports import SandboxProvider

#: What a body's own mistake with an unknown value looks like.
_MISUSED = frozenset({"EVAL_RAISED", "AUTHORING_ERROR", "INVALID_SEND", "INVALID_ASSERTION"})

#: Whose failures leave a whole conversation behind, which another body or another grader may judge. Any other ended
#: the execution itself, and stands.
_AFTER_THE_AGENT = frozenset({FailureKind.AUTHORING, FailureKind.GRADER, FailureKind.JUDGE})

#: Whose failures say nothing about a kept workdir, but about where it was to be judged.
_OF_THE_PLACE = frozenset({FailureKind.SANDBOX, FailureKind.INFRASTRUCTURE, FailureKind.DEADLINE})


async def regrade(
    job: AttemptJob, services: AttemptServices, control: AttemptControl, recorded: AttemptEvidence
) -> Regrading:
    """Judge a recorded attempt of `job` again, by its definition as it is now.

    The body gets the recorded turns for the inputs that they answered. An attempt whose execution failed is not
    replayed, nor one whose eval says `replayable=False`: its stored assertions are folded again. One that kept its
    workdir is judged in a sandbox, if the job has one.
    """
    if KEPT_WORKDIR in recorded.attachments and job.sandbox is not None:
        return await _on_kept_workdir(job, job.sandbox, services, control, recorded)
    if not job.definition.replayable or not _has_run(recorded):
        return Regrading(evidence=folded(job.definition, recorded), basis=Basis.FOLDED)
    time = RecordedTime(services.clock, recorded.summary.started_at)
    sandbox = UnrecordedSandbox()
    agent = RecordedAgent(recorded.turns, time, recorded.attribution, recorded.attachments)
    replay = replace(job, recorded=agent, sandbox=(sandbox, SandboxSpec()), turn_timeout=None)
    found = await run_attempt(replay, replace(services, clock=time), control)
    if found.summary.code == NOT_RECORDED_CODE or (sandbox.used and _went_astray(found.summary)):
        what = "its sandbox gave it" if sandbox.used else "it attached"
        reason = f"{NOT_RECORDED}: the test body decides by what {what}"
        return Regrading(evidence=recorded, basis=Basis.KEPT, reason=reason)
    return Regrading(evidence=_judged_again(recorded, found), basis=Basis.REPLAYED)


async def _on_kept_workdir(
    job: AttemptJob,
    sandbox: tuple[SandboxProvider, SandboxSpec],
    services: AttemptServices,
    control: AttemptControl,
    recorded: AttemptEvidence,
) -> Regrading:
    """Judge in a new sandbox, which the body gives the kept workdir. Real commands run there, so the time is real."""
    provider, spec = sandbox
    agent = RecordedAgent(
        recorded.turns,
        RecordedTime(services.clock, recorded.summary.started_at),
        recorded.attribution,
        recorded.attachments,
    )
    replay = replace(job, recorded=agent, sandbox=(provider, replace(spec, changes=None)), turn_timeout=None)
    found = await run_attempt(replay, services, control)
    if found.summary.kind in _OF_THE_PLACE:
        reason = f"not judged on the kept workdir: {found.summary.code}: {found.summary.message}"
        return Regrading(evidence=recorded, basis=Basis.KEPT, reason=reason)
    if KEPT_WORKDIR in found.attachments:
        reason = "the eval is not what it was: it does not look at the workdir that the attempt kept"
        return Regrading(evidence=recorded, basis=Basis.KEPT, reason=reason)
    return Regrading(evidence=_judged_again(recorded, found), basis=Basis.REPLAYED)


def refused(style: Style, recorded: AttemptEvidence, failure: AttemptFailure) -> Regrading:
    """The regrading of an attempt that can't be replayed here, for example since its row is not one any more."""
    bare = replace(recorded, assertions=(), judge_calls=(), summary=replace(recorded.summary, assertions=0))
    return Regrading(evidence=_with(bare, fold(style, failure, ())), basis=Basis.REPLAYED)


def folded(definition: EvalDefinition, recorded: AttemptEvidence) -> AttemptEvidence:
    """The attempt judged by its stored assertions and its own failure alone; its judge's replies are used again."""
    summary = recorded.summary
    calls = tuple(replace(call, cached=True, usage=None, cost_usd=0.0) for call in recorded.judge_calls)
    judgement = fold(
        definition.style,
        _own_failure(summary),
        recorded.assertions,
        summary.skip_reason,
        definition.allow_no_assertions,
    )
    found = _with(replace(recorded, judge_calls=calls), judgement)
    if (found.summary.verdict, found.summary.code) == (summary.verdict, summary.code):  # what is stored is redacted
        return replace(found, summary=replace(found.summary, message=summary.message))
    return found


def _has_run(recorded: AttemptEvidence) -> bool:
    """Whether the conversation came to its end, so that it can be judged."""
    failure = _own_failure(recorded.summary)
    return failure is None or (failure.kind in _AFTER_THE_AGENT and bool(recorded.turns))


def _own_failure(summary: AttemptSummary) -> AttemptFailure | None:
    """How the execution failed, as it was recorded; None when it did not."""
    if summary.outcome is Outcome.COMPLETED or summary.kind is None:
        return None
    return AttemptFailure(summary.kind, summary.code or "EXECUTION_FAILED", summary.message or "")


def _went_astray(found: AttemptSummary) -> bool:
    """Whether the body could not use what it got, since it was not recorded."""
    return found.kind is FailureKind.AUTHORING and found.code in _MISUSED


def _judged_again(recorded: AttemptEvidence, found: AttemptEvidence) -> AttemptEvidence:
    """The recorded attempt with the judgement of its replay."""
    summary, judged = recorded.summary, found.summary
    if judged.kind is FailureKind.DEADLINE:  # the body's, since no agent took part
        message = "the test body did not end in time on the record"
        judged = replace(judged, kind=FailureKind.GRADER, code="REPLAY_TIMEOUT", message=message)
    summary = replace(
        summary,
        verdict=judged.verdict,
        kind=judged.kind,
        code=judged.code,
        message=judged.message,
        score_state=judged.score_state,
        earned=judged.earned,
        skip_reason=judged.skip_reason,
        assertions=judged.assertions,
    )
    same = {"turns": recorded.turns, "attribution": recorded.attribution, "attachments": recorded.attachments}
    return replace(found, summary=summary, **same)


def _with(recorded: AttemptEvidence, judgement: Judgement) -> AttemptEvidence:
    """The recorded attempt with another judgement of its stored assertions."""
    score = judgement.score
    summary = replace(
        recorded.summary,
        verdict=judgement.verdict,
        kind=judgement.kind,
        code=judgement.code,
        message=judgement.message,
        score_state=None if score is None else score.state,
        earned=None if score is None else score.earned,
    )
    return replace(recorded, summary=summary)
