"""`adapter: http`: an agent behind an HTTP endpoint, by a declared mapping of request and response."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, cast

import httpx
from pydantic import BaseModel, ConfigDict, Field, model_validator

from evalfleet.errors import Acceptance, ConfigurationError, SendFailure
from evalfleet.model.coverage import Coverage
from evalfleet.model.events import OperationFinished, OperationStatus
from evalfleet.model.model_call import Account, ModelCall
from evalfleet.model.turn import Turn, TurnInput
from evalfleet.model.usage import Usage
from evalfleet.ports import Adapter, AdapterContext, AgentIdentity, ArmSettings, Session
from evalfleet_adapters.converters.ui_message import responded, unanswered, user_message
from evalfleet_adapters.files import data_url
from evalfleet_adapters.http_answer import read_answer, session_id, still_pending
from evalfleet_adapters.http_mapping import (
    NO_EVENTS,
    AnswerTemplate,
    FileTemplate,
    ResponseMapping,
    Template,
    placeholders,
    render,
)
from evalfleet_adapters.http_stream import Heard, HeardEvents, HeardUiMessage, listen
from evalfleet_adapters.limits import within_deadline
from evalfleet_adapters.transport import Outgoing, Patience, Reader, Transport, read_json

VERSION = "1"

_SECRET = re.compile(r"\$\{(\w+)\}")


class HttpOptions(BaseModel):
    """The arm's own fields. Templates may hold `${text}`, `${session}`, `${files}`, `${flags.x}` and others."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str = Field(pattern=r"^https?://[^\s/]+", description="Where every turn is sent.")
    method: Literal["POST", "PUT", "PATCH"] = "POST"
    headers: Mapping[str, Template] = Field(
        default_factory=dict[str, Any], description="Headers, as templates; one with nothing to send is left out."
    )
    headers_env: Mapping[str, str] = Field(
        default_factory=dict[str, str],
        description="Headers from secrets: the name of one, or text with names like `Bearer ${TOKEN}`.",
    )
    request: Template = Field(
        default_factory=lambda: {"text": "${text}", "session": "${session}"}, description="The request body."
    )
    file: FileTemplate = Field(
        None,
        description="One of `${files}`, of `${name}`, `${media_type}` and `${data_base64}`; all three by default.",
    )
    answer: AnswerTemplate = Field(
        None,
        description="One of `${responses}`, with `${request_id}`, `${option_id}`, `${text}` and `${answer}`, which is "
        "either of the two; by default the first three.",
    )
    response: ResponseMapping = Field(default_factory=lambda: ResponseMapping.model_validate({"reply": "reply"}))
    max_retries: int = Field(2, ge=0, description="Repeats of a request that the endpoint surely did not accept.")
    idempotent: bool = Field(False, description="Repeat also requests that the endpoint may have acted on.")
    longest_wait: float = Field(20.0, ge=0, description="Longer waits, in seconds, are left to the run's own retries.")
    timeout: float = Field(600.0, gt=0, description="Longest silence of the endpoint, in seconds.")
    connect_timeout: float = Field(10.0, gt=0, description="Longest time to connect, in seconds.")

    @model_validator(mode="after")
    def _headers_are_set_once(self) -> HttpOptions:
        twice = {name.lower() for name in self.headers} & {name.lower() for name in self.headers_env}
        if twice:
            raise ValueError(f"header {sorted(twice)[0]!r} stands in headers and in headers_env")
        return self


class HttpAdapter:
    """Sends each turn as one request. Cookies are not kept; what a conversation needs is mapped."""

    def __init__(self, options: HttpOptions) -> None:
        self._options = options
        self._coverage = options.response.coverage()
        self._transport = Transport(
            Patience(
                max_retries=options.max_retries,
                longest_wait=options.longest_wait,
                timeout=options.timeout,
                connect_timeout=options.connect_timeout,
                idempotent=options.idempotent,
            )
        )

    @property
    def coverage(self) -> Coverage:
        return self._coverage

    @property
    def sandboxed(self) -> bool:
        return False

    async def open(self, ctx: AdapterContext) -> Session:
        return _HttpSession(self._options, self._transport)

    async def close(self) -> None:
        await self._transport.close()


class _HttpSession:
    def __init__(self, options: HttpOptions, transport: Transport) -> None:
        self._options = options
        self._transport = transport
        self._sent = frozenset(placeholders(options.request)) | frozenset(placeholders(options.headers))
        self._sends_chat = options.response.stream == "ui-message" and "messages" in self._sent
        self._index = 0
        self._pending: frozenset[str] = frozenset()
        self._chat: list[dict[str, Any]] = []

    async def send(self, turn: TurnInput, ctx: AdapterContext) -> Turn:
        self._refuse_what_is_not_mapped(turn)
        chat, denied = self._said(turn)
        values = _values(turn, self._index, ctx) | self._lists(turn) | {"messages": chat}
        self._index += 1
        outgoing = Outgoing(
            url=self._options.url,
            method=self._options.method,
            headers={**_trace(ctx), **_headers(self._options.headers, values), **self._secret_headers(ctx)},
            body=json.dumps(render(self._options.request, values)).encode("ascii"),
        )
        heard = self._listener(chat, self._pending.difference(denied))
        reader = Reader(self._call(outgoing, ctx), lambda response: self._read(response, heard, ctx), _used)
        async with within_deadline(ctx):
            answer, session = await self._transport.exchange(outgoing, ctx, reader)
        ctx.session.capture(session)
        rejected = [OperationFinished(call, OperationStatus.REJECTED) for call in denied]
        answer = replace(answer, events=(*rejected, *answer.events)) if rejected else answer
        if isinstance(heard, HeardUiMessage):
            before = chat[:-1] if chat[-1]["role"] == "assistant" else chat
            self._chat = [*before, heard.message.document]
        self._pending = still_pending(answer, self._pending)
        return answer

    async def close(self) -> None: ...

    def _said(self, turn: TurnInput) -> tuple[list[dict[str, Any]], list[str]]:
        """The conversation as UI messages with what this turn adds to it, and the calls that it denies."""
        if self._options.response.stream != "ui-message":
            return [], []
        if turn.responses:
            return responded(self._chat, turn.responses), []
        chat, denied = unanswered(self._chat)
        files = [(file, data_url(file)) for file in turn.files]
        return [*chat, user_message(f"message-{self._index}", turn.text, files)], denied

    def _listener(self, chat: list[dict[str, Any]], begun: frozenset[str]) -> Heard | None:
        """Who hears the stream; None for an answer that is none."""
        mapped = self._options.response
        if mapped.stream is None:
            return None
        if mapped.stream == "sse":
            return HeardEvents(mapped, begun)
        return HeardUiMessage(mapped, begun, chat[-1] if chat[-1]["role"] == "assistant" else None)

    def _call(self, outgoing: Outgoing, ctx: AdapterContext) -> ModelCall:
        account = Account(provider="http", base_url=self._options.url, key=None, model=ctx.model or "")
        return ModelCall(account=account, input_bytes=len(outgoing.body))

    def _lists(self, turn: TurnInput) -> dict[str, Any]:
        """The placeholders that stand for lists, each item in the form that the arm gives it."""
        files = [
            {"name": file.name, "media_type": file.media_type, "data_base64": b64encode(file.data).decode("ascii")}
            for file in turn.files
        ]
        responses = [
            {"request_id": answer.request_id, "option_id": answer.option_id, "text": answer.text}
            for answer in turn.responses
        ]
        if self._options.file is not None:
            files = [render(self._options.file, file) for file in files]
        if self._options.answer is not None:
            responses = [
                render(self._options.answer, {**given, "answer": given["option_id"] or given["text"]})
                for given in responses
            ]
        return {"files": files or None, "responses": responses or None}

    def _refuse_what_is_not_mapped(self, turn: TurnInput) -> None:
        for name, given in (("files", turn.files), ("responses", turn.responses)):
            if given and name not in self._sent and not self._sends_chat:
                raise SendFailure(
                    f"the turn has {name}, but the arm's request template has no ${{{name}}}",
                    code="INPUT_UNSUPPORTED",
                    acceptance=Acceptance.REJECTED,
                )

    def _secret_headers(self, ctx: AdapterContext) -> dict[str, str]:
        def resolved(text: str) -> str:
            if _SECRET.search(text) is None:
                return ctx.secrets.resolve(text)
            return _SECRET.sub(lambda match: ctx.secrets.resolve(match[1]), text)

        return {name: resolved(text) for name, text in self._options.headers_env.items()}

    async def _read(
        self, response: httpx.Response, heard: Heard | None, ctx: AdapterContext
    ) -> tuple[Turn, str | None]:
        """The turn in an answer, and the endpoint's id of the session."""
        mapped = self._options.response
        if heard is not None:
            await listen(response, heard, ctx, text=(mapped.events or NO_EVENTS).data == "text")
            return heard.turn(), heard.session()
        if mapped.body == "json":
            document = await read_json(response)
        else:
            await response.aread()
            document = response.text
        return read_answer(document, mapped, self._pending), session_id(document, mapped)


class HttpFactory:
    """Builds the `http` adapter."""

    name = "http"
    options = HttpOptions

    def identify(self, arm: ArmSettings) -> AgentIdentity:
        """Nothing: the agent's code is elsewhere and may change without a sign. `target.fingerprint` can name it."""
        url = cast("HttpOptions", arm.options).url
        return AgentIdentity(version=VERSION, reason=f"the code behind {url} can't be seen")

    def build(self, arm: ArmSettings) -> Adapter:
        options = cast("HttpOptions", arm.options)
        for name in (*placeholders(options.request), *placeholders(options.headers)):
            if name.startswith("flags.") and name.removeprefix("flags.") not in arm.flags:
                raise ConfigurationError(
                    f"arms.{arm.name}: ${{{name}}} is in a template, but the arm sets no such flag"
                )
        return HttpAdapter(options)


factory = HttpFactory()


def _used(answer: tuple[Turn, str | None]) -> Usage | None:
    """What an answer used, for whoever rations calls; None when it does not say."""
    usage = answer[0].usage
    return None if usage is None or usage.unknown_calls else usage


def _trace(ctx: AdapterContext) -> dict[str, str]:
    """What makes the agent's spans a part of the attempt's trace, in a run that takes spans."""
    return {} if ctx.traceparent is None else {"traceparent": ctx.traceparent}


def _headers(templates: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, str]:
    rendered = {name: render(template, values) for name, template in templates.items()}
    return {"content-type": "application/json"} | {
        name.lower(): str(value) for name, value in rendered.items() if value is not None
    }


def _values(turn: TurnInput, index: int, ctx: AdapterContext) -> dict[str, Any]:
    """A value for each placeholder but the lists; None for what this turn does not have."""
    return {
        "text": turn.text,
        "input": None if turn.value is None else dict(turn.value),
        "session": ctx.session.id,
        "model": ctx.model,
        "schema": None if turn.output_schema is None else dict(turn.output_schema),
        "flags": dict(ctx.flags),
        "case": ctx.case,
        "arm": ctx.arm,
        "seed": ctx.seed,
        "attempt": ctx.attempt,
        "repetition": ctx.repetition,
        "turn": index,
        "thread_id": ctx.thread_id,
        "step_id": ctx.step_id,
        "turn_id": ctx.turn_id,
        **{f"flags.{name}": value for name, value in ctx.flags.items()},
    }
