"""A model in the responder's place: it plays the user of an assignment. Not deterministic, and marked so.

Whatever fails in it is its own failure: the attempt is errored and nothing of it counts for the agent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalfleet.errors import AttemptFailure, ConfigurationError, FailureKind, JudgeFailure
from evalfleet.execution.state import AttemptState
from evalfleet.model.judge import CALL_FAILED, JUDGE_KEY, JUDGE_URL, JudgeReply, JudgeRequest
from evalfleet.taskpacks.responder import Answer, Cursor, ScriptRule
from evalfleet.taskpacks.script_lint import given_away
from evalfleet.taskpacks.user_prompt import (
    GUIDELINES,
    SCHEMA,
    VERSION,
    Exchanged,
    InvalidUserReply,
    UserBrief,
    read_user_reply,
    user_messages,
)

RESPONDER_MODEL_FAILED, RESPONDER_MODEL_INVALID = "RESPONDER_MODEL_FAILED", "RESPONDER_MODEL_INVALID"
RESPONDER_OUT_OF_SCOPE = "RESPONDER_OUT_OF_SCOPE"

#: What stands in place of a rule's id in a trace.
MODEL = "model"

#: The part of an attempt's time that a call may take, so that its silence is not the agent's deadline.
_SHARE = 0.9
_MESSAGE_LIMIT = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class UserModel:
    """The model that plays the users of a pack's assignments: one behind `/chat/completions`, reached as a judge is.

    `api_key_env` names the secret that it is sent; without one, only the default place gets its usual key. `timeout`
    is in seconds for all tries of one call together.
    """

    model: str
    base_url: str = JUDGE_URL
    api_key_env: str | None = None
    guidelines: str = GUIDELINES
    temperature: float | None = None
    max_tokens: int | None = None
    timeout: float = 60.0

    @property
    def key_name(self) -> str | None:
        return JUDGE_KEY if self.api_key_env is None and self.base_url == JUDGE_URL else self.api_key_env

    def identity(self) -> dict[str, Any]:
        """What shapes its answers, as JSON."""
        return {
            "model": self.model,
            "base_url": self.base_url,
            "guidelines": self.guidelines,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "version": VERSION,
        }


class ModelResponder:
    """The user of one attempt. `requirements` and `decisions` are what its replies may give away."""

    def __init__(
        self,
        settings: UserModel,
        brief: UserBrief,
        state: AttemptState,
        requirements: Mapping[str, Sequence[str]],
        decisions: Sequence[str],
    ) -> None:
        self._settings = settings
        self._brief = brief
        self._state = state
        self._requirements = requirements
        self._decisions = decisions
        self._before: list[Exchanged] = []
        self._calls: list[dict[str, Any]] = []

    def document(self) -> dict[str, Any]:
        """Who answers, and every call of its model in full, as JSON."""
        return {
            "kind": MODEL,
            "deterministic": False,
            "model": self._settings.model,
            "calls": [dict(call) for call in self._calls],
        }

    async def answer(self, asked: Sequence[str], said: str, cursor: Cursor) -> Answer | None:
        """What the model makes the user say and do. Raises AttemptFailure, never one that is the agent's."""
        messages = user_messages(self._settings.guidelines, self._brief, self._before, asked, said)
        call: dict[str, Any] = {"asked": list(asked), "prompt": [[each.role, each.text] for each in messages]}
        self._calls.append(call)
        try:
            found = await self._called(JudgeRequest(messages=messages, schema=SCHEMA, **self._how()))
        except JudgeFailure as failure:
            code = RESPONDER_MODEL_FAILED if failure.code == CALL_FAILED else RESPONDER_MODEL_INVALID
            raise self._broken(call, code, str(failure)) from None
        call |= self._facts(found)
        try:
            reply = read_user_reply(call["reply"], self._brief, asked)
        except InvalidUserReply as error:
            more = "; it was cut off at the token limit" if found.cut_off else ""
            raise self._broken(call, RESPONDER_MODEL_INVALID, f"{self._settings.model}: {error}{more}") from None
        if reply.out_of_scope:
            message = f"the user has no answer to who asks for {', '.join(asked)}: {reply.reply}"
            raise self._broken(call, RESPONDER_OUT_OF_SCOPE, message, FailureKind.AUTHORING)
        call["gave_away"] = given_away(reply.reply, asked, self._requirements, self._decisions)
        self._before.append(Exchanged(tuple(asked), said, reply.reply, tuple(reply.supplies)))
        return drawn(asked, reply.reply, reply.supplies, self._brief, cursor)

    def _how(self) -> dict[str, Any]:
        settings, left = self._settings, self._state.remaining()
        return {
            "model": settings.model,
            "base_url": settings.base_url,
            "key_name": settings.key_name,
            "temperature": settings.temperature,
            "max_tokens": settings.max_tokens,
            "timeout": settings.timeout if left is None else min(settings.timeout, left * _SHARE),
        }

    async def _called(self, request: JudgeRequest) -> JudgeReply:
        models = self._state.services.models
        if models is None:
            raise JudgeFailure(CALL_FAILED, "there is nothing here to ask a model with")
        name = self._settings.key_name
        try:
            key = None if name is None else self._state.secrets.resolve(name)
        except ConfigurationError:
            raise JudgeFailure(CALL_FAILED, f"the key of the user's model is not set: {name}") from None
        return await models.ask(request, key, self._state.calls)

    def _facts(self, found: JudgeReply) -> dict[str, Any]:
        usage = found.usage
        observed = None if usage is None else usage.cost_usd
        tokens = None if usage is None else [usage.input_tokens, usage.output_tokens]
        return {
            "reply": self._state.secrets.redactor.text(found.text),
            "latency": found.latency,
            "tries": found.tries,
            "tokens": tokens,
            "cost_usd": self._state.estimate(usage, self._settings.model) if observed is None else observed,
        }

    def _broken(
        self, call: dict[str, Any], code: str, message: str, kind: FailureKind = FailureKind.INFRASTRUCTURE
    ) -> AttemptFailure:
        text = self._state.secrets.redactor.safe(message, _MESSAGE_LIMIT)
        call |= {"code": code, "message": text}
        return AttemptFailure(kind, code, text)


class RecordedUser:
    """What a model made the user say in a recorded attempt, said again; the answers by what was asked, in order."""

    def __init__(self, brief: UserBrief, recorded: Sequence[Mapping[str, Any]]) -> None:
        self._brief = brief
        self._recorded = list(recorded)

    def document(self) -> dict[str, Any]:
        return {"kind": "recorded", "deterministic": True}

    async def answer(self, asked: Sequence[str], said: str, cursor: Cursor) -> Answer | None:
        """The next recorded answer; None when there is none to this request."""
        if not self._recorded or self._recorded[0]["asked"] != list(asked):
            return None
        found = self._recorded.pop(0)
        return drawn(asked, found["reply"], found["supplies"], self._brief, cursor)


def drawn(asked: Sequence[str], reply: str, supplies: Sequence[str], brief: UserBrief, cursor: Cursor) -> Answer:
    """An answer that no rule gave: what the user says, and what they hand over as today's brief holds it."""
    given = frozenset(supplies)
    writes = tuple(write for name in sorted(given) for write in brief.holds.get(name, ()))
    wanted = frozenset(asked)
    rule = ScriptRule(
        id=MODEL, asked=wanted, turn=None, fallback=not wanted, reply=reply, supplies=given, writes=writes
    )
    fired = {**cursor.fired, MODEL: cursor.fired.get(MODEL, 0) + 1}
    after = Cursor(cursor.answers + 1, fired, cursor.supplied | given)
    said = {"reply": reply, "supplies": sorted(given)}
    return Answer(rule, after, wanted & cursor.supplied, said)
