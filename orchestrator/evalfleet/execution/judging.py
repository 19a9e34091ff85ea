"""Asking a judge about one assertion: its votes, each with its cache, its call and its row, and what they come to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from evalfleet.errors import ConfigurationError, JudgeFailure, StoreError, describe
from evalfleet.execution.state import AttemptState
from evalfleet.grading.judge_prompts import JudgePrompt, Question, ask, request_digest
from evalfleet.grading.judge_reply import InvalidReply, read_reply
from evalfleet.grading.judge_votes import agreement, reduce
from evalfleet.model.assertion import AssertionResult, Result
from evalfleet.model.judge import INVALID_RESPONSE, JudgeCall, JudgeConfig, JudgeReply, JudgeRequest, Ruling
from evalfleet.model.usage import Usage
from evalfleet.ports import Clock, JudgeCache, JudgeModel, ModelCalls
from evalfleet.redact import Redactor

MODEL_UNRESOLVED = "judge-model-unresolved"
KEY_UNRESOLVED = "judge-key-unresolved"
SELF_JUDGING = "judge-self-judging"
EVALUATOR_ERROR = "judge-evaluator-error"

_REASON_LIMIT = 500


@dataclass(frozen=True, slots=True)
class Judged:
    """A question to a judge as the criterion of an assertion: its answer is a measurement."""

    question: Question

    def describe(self) -> Any:
        question = self.question
        described: dict[str, Any] = {"criterion": "judge", "recipe": question.recipe}
        if question.text:
            described["question"] = question.text
        if question.choices is not None:
            described["choices"] = dict(question.choices)
        return described


@dataclass(frozen=True, slots=True)
class JudgedParts:
    """A criterion of a suite that holds questions to a judge beside what is known of it. `described` is as in rows."""

    questions: tuple[Question, ...]
    described: Mapping[str, Any]

    def describe(self) -> Any:
        return self.described


class Judging:
    """What the attempts of one worker ask judges with. `cache` is None when nobody's judge may be cached."""

    def __init__(self, clock: Clock, model: JudgeModel, cache: JudgeCache | None = None) -> None:
        self._clock = clock
        self._model = model
        self._cache = cache

    async def measured(self, judged: Judged, assertion: int, state: AttemptState) -> AssertionResult:
        """The measurement that a judge makes of an assertion; unavailable, saying why, when there is none.

        Every call is noted in `state`, also those made before this is cancelled.
        """
        config = state.job.judge or JudgeConfig()
        reason, key = _hindrance(config, state)
        if reason is not None:
            return AssertionResult(result=Result.UNAVAILABLE, reason=reason)
        inquiry = Inquiry(
            question=judged.question,
            config=config,
            key=key,
            redactor=state.secrets.redactor,
            price=state.estimate,
            note=state.note,
            keep=state.judge_calls.append,
            assertion=assertion,
            repetition=state.job.case.repetition,
            admission=state.calls,
        )
        calls = await self.calls(inquiry)
        failed = next((call for call in calls if call.ruling is None), None)
        if failed is not None:
            return AssertionResult(result=Result.UNAVAILABLE, reason=f"{failed.code} ({failed.message})")
        return _measured([call.ruling for call in calls if call.ruling is not None], config)

    async def calls(self, inquiry: Inquiry) -> list[JudgeCall]:
        """All votes on a question, asked at the same time. Raises the first error of our own, ending the others."""
        try:
            async with asyncio.TaskGroup() as votes:
                tasks = [votes.create_task(self._vote(inquiry, number)) for number in range(inquiry.config.votes)]
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        return [task.result() for task in tasks]

    async def close(self) -> None:
        await self._model.close()
        if self._cache is not None:
            await self._cache.close()

    async def _vote(self, inquiry: Inquiry, number: int) -> JudgeCall:
        prompt = ask(inquiry.question, number)
        request = request_digest(prompt, inquiry.config.identity())
        outcome = await self._cached(inquiry, request, number) or await self._asked(inquiry, prompt)
        call = inquiry.call(prompt, request, number, outcome, self._clock.wall())
        inquiry.keep(call)
        return call

    async def _cached(self, inquiry: Inquiry, request: str, number: int) -> JudgeReply | None:
        if self._cache is None or not inquiry.config.cache:
            return None
        try:
            return await self._cache.find(request, inquiry.repetition, number)
        except StoreError as error:
            inquiry.note(f"no cached judge replies: {describe(error)}")
            return None

    async def _asked(self, inquiry: Inquiry, prompt: JudgePrompt) -> JudgeReply | JudgeFailure:
        config = inquiry.config
        request = JudgeRequest(
            model=config.model or "",
            base_url=config.base_url,
            messages=prompt.messages,
            schema=prompt.schema,
            temperature=config.temperature,
            max_tokens=config.max_tokens,
            timeout=config.timeout,
            key_name=config.api_key_env,
        )
        try:
            return await self._model.ask(request, inquiry.key, inquiry.admission)
        except JudgeFailure as failure:
            return failure


async def answered(judged: Judged, assertion: int, state: AttemptState) -> AssertionResult:
    """What the judge of an attempt says of an assertion; a judge that breaks makes no answer of any kind."""
    judging = state.services.judging
    try:
        if judging is None:
            raise RuntimeError("nothing to ask a judge with")
        return await judging.measured(judged, assertion, state)
    except Exception as error:  # noqa: BLE001 - our own mistake is this assertion's error and no other's
        state.note_error(error)
        return AssertionResult(result=Result.ERRORED, reason=f"{EVALUATOR_ERROR}:{type(error).__name__}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquiry:
    """One question to a judge, whoever asks it. `keep` is given each call as it ends, `note` what went wrong beside it.

    `admission` is where its requests are admitted. What a call says is kept through `redactor`; `price` gives the US
    dollars of a usage of a model.
    """

    question: Question
    config: JudgeConfig
    key: str | None
    redactor: Redactor
    price: Callable[[Usage | None, str | None], float | None]
    note: Callable[[str], None]
    keep: Callable[[JudgeCall], None]
    assertion: int = 0
    repetition: int = 0
    admission: ModelCalls | None = None

    def call(
        self,
        prompt: JudgePrompt,
        request: str,
        number: int,
        outcome: JudgeReply | JudgeFailure,
        ended_at: float,
    ) -> JudgeCall:
        """The call as it is recorded, its reply read. `ended_at` is in seconds since the epoch."""
        ruling: Ruling | None = None
        code = message = reply = None
        usage: Usage | None = None
        cached = False
        if isinstance(outcome, JudgeFailure):
            code, message = outcome.code, self.redactor.safe(str(outcome), _REASON_LIMIT)
        else:
            usage, cached = outcome.usage, outcome.tries == 0
            reply = self.redactor.text(outcome.text)
            try:
                ruling = read_reply(reply, prompt)
            except InvalidReply as error:
                more = "; it was cut off at the token limit" if outcome.cut_off else ""
                text = f"{self.config.model}: {error}{more}"
                code, message = INVALID_RESPONSE, self.redactor.safe(text, _REASON_LIMIT)
        return JudgeCall(
            assertion=self.assertion,
            repetition=self.repetition,
            vote=number,
            recipe=prompt.recipe,
            version=prompt.version,
            model=self.config.model or "",
            request=request,
            prompt=prompt.digest,
            messages=prompt.messages,
            started_at=ended_at - outcome.latency,
            latency=outcome.latency,
            tries=outcome.tries,
            cached=cached,
            reply=reply,
            ruling=ruling,
            usage=usage,
            cost_usd=0.0 if cached else self._cost(usage),
            code=code,
            message=message,
        )

    def _cost(self, usage: Usage | None) -> float | None:
        observed = None if usage is None else usage.cost_usd
        return self.price(usage, self.config.model) if observed is None else observed


def _hindrance(config: JudgeConfig, state: AttemptState) -> tuple[str | None, str | None]:
    """Why the judge can't be asked, if it can't; else its key, if it needs one."""
    if config.model is None:
        return MODEL_UNRESOLVED, None
    if config.model == state.job.arm.model and not config.allow_self:
        return f"{SELF_JUDGING} ({config.model} would judge itself; judge.allow_self allows it)", None
    if config.api_key_env is None:
        return None, None
    try:
        return None, state.secrets.resolve(config.api_key_env)
    except ConfigurationError:
        return f"{KEY_UNRESOLVED} ({config.api_key_env} unset)", None


def _measured(rulings: list[Ruling], config: JudgeConfig) -> AssertionResult:
    """What the votes come to, with the rationale of the first."""
    scores = [ruling.score for ruling in rulings]
    actual: dict[str, Any] = {"rationale": rulings[0].rationale}
    if rulings[0].label is not None:
        actual["verdict"] = rulings[0].label
    if len(scores) > 1:
        actual |= {"scores": scores, "reducer": config.reducer.value, "agreement": agreement(scores)}
    if repairs := sorted({repair for ruling in rulings for repair in ruling.repairs}):
        actual["repairs"] = repairs
    return AssertionResult(result=Result.MATCHED, actual=actual, measurement=reduce(scores, config.reducer))
