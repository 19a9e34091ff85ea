"""One conversation with an agent that speaks the Agent Client Protocol: a process for as long as the session lives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from evalfleet.errors import FailureKind, SendFailure
from evalfleet.model.events import Event, InputOption, InputRequested
from evalfleet.model.model_route import model_prefix
from evalfleet.model.turn import InputResponse, Turn, TurnInput, TurnStatus
from evalfleet.ports import AdapterContext
from evalfleet.sandbox_ports import Command
from evalfleet_adapters.acp.permission import Permission, chosen, outcome
from evalfleet_adapters.acp.talk import Talk
from evalfleet_adapters.cli.places import PATIENCE, unusable, with_pack, within, without_gateway, write_files
from evalfleet_adapters.cli.program import Launch, Place, Wishes
from evalfleet_adapters.converters.acp_updates import AcpReading, ended_turn
from evalfleet_adapters.converters.agent_report import says_or_does
from evalfleet_adapters.converters.untrusted import as_text, mapping, sequence, text
from evalfleet_adapters.limits import within_deadline

_LOOK = 'printf "%s\\n" "$EVALFLEET_GATEWAY" "${HOME:-/tmp}"'
_VERSION = 1
#: Characters of an error that stand in a message.
_SHOWN = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class AcpSetup:
    """What all sessions of an arm share. `launch` makes the files and the environment of a known agent."""

    name: str
    command: tuple[str, ...]
    version: str | None
    wishes: Wishes
    launch: Callable[[Place, Wishes], Launch] | None
    env: Mapping[str, str]
    files: Mapping[str, str]
    permissions: str
    mode: str | None


@dataclass(slots=True)
class _Turn:
    """A prompt that is not answered yet: its number, and the permission that its agent waits for."""

    number: int
    reading: AcpReading = field(default_factory=AcpReading)
    asked: Permission | None = None
    told: int = 0


class AcpSession:
    """The agent keeps the conversation in its process."""

    def __init__(self, setup: AcpSetup) -> None:
        self._setup = setup
        self._talk: Talk | None = None
        self._id = ""
        self._turn: _Turn | None = None

    async def send(self, turn: TurnInput, ctx: AdapterContext) -> Turn:
        """Prompt the agent, or answer what it asked. Raises SendFailure when no trustworthy turn came of it."""
        answer = _answer(turn, self._turn)
        reading: AcpReading | None = None
        try:
            async with within_deadline(ctx):
                talk = self._talk or await self._begin(ctx)
                if self._turn is None or self._turn.asked is None:
                    prompt = [{"type": "text", "text": turn.text}]
                    self._turn = _Turn(await talk.post("session/prompt", {"sessionId": self._id, "prompt": prompt}))
                else:
                    await self._permit(talk, self._turn, self._turn.asked, answer)
                reading = self._turn.reading
                return await self._follow(talk, self._turn)
        except BaseException as error:
            if isinstance(error, SendFailure) and error.partial is None and reading is not None:
                error.partial = Turn(status=TurnStatus.FAILED, events=reading.events())
            await self.close()
            raise

    async def close(self) -> None:
        talk, self._talk = self._talk, None
        if talk is not None:
            await talk.end()

    # --- a turn -----------------------------------------------------------------------------------------------

    async def _follow(self, talk: Talk, turn: _Turn) -> Turn:
        """Read until the prompt is answered, or the agent asks what the author is to answer."""
        while True:
            heard = await talk.hear()
            method = text(heard.get("method"))
            if method is None:
                if heard.get("id") == turn.number:
                    self._turn = None
                    return _ended(turn, heard)
            elif method == "session/update":
                turn.reading.take(mapping(mapping(heard.get("params")).get("update")))
            elif method == "session/request_permission":
                turn.asked = Permission.read(heard.get("id"), mapping(heard.get("params")))
                turn.reading.take({**turn.asked.call, "sessionUpdate": "tool_call_update"})
                if self._setup.permissions == "ask":
                    return _asking(turn, turn.asked)
                await self._permit(talk, turn, turn.asked, self._setup.permissions)
            elif "id" in heard:
                await talk.refuse(heard["id"], method)

    async def _permit(self, talk: Talk, turn: _Turn, asked: Permission, answer: str) -> None:
        option = chosen(asked, answer)
        if option is None or option.kind.startswith("reject"):
            turn.reading.rejected.add(asked.operation)
        turn.asked = None
        await talk.answer(asked.number, outcome(option))

    # --- the beginning ----------------------------------------------------------------------------------------

    async def _begin(self, ctx: AdapterContext) -> Talk:
        """Start the agent, agree on a version with it, and open a session."""
        setup = self._setup
        seen = await ctx.sandbox.run(Command(argv=("sh", "-c", _LOOK), timeout=PATIENCE))
        gateway, home = (*seen.text.split("\n", 1), "")[:2]
        folder = f"{home.strip()}/.evalfleet-agent/acp-{setup.name}"
        if not gateway and setup.launch is not None:
            raise without_gateway()
        place = Place(model_url=f"{gateway}{quote(model_prefix(ctx.arm))}", folder=folder)
        servers = within(gateway, with_pack(setup.wishes.servers) if ctx.tools and gateway else setup.wishes.servers)
        launch = Launch(files={}, env={}) if setup.launch is None else setup.launch(place, setup.wishes)
        filled = {"${model_url}": place.model_url, "${gateway}": gateway, "${folder}": folder}
        await write_files(ctx.sandbox, folder, {**launch.files, **_filled(setup.files, filled)})
        env = {**launch.env, **_filled(setup.env, filled)}
        self._talk = talk = await Talk.begin(ctx.sandbox, folder, setup.command, env, ctx.log)
        capabilities = await self._agree(talk)
        await self._open(talk, ctx.sandbox.workdir, _servers(capabilities, servers))
        return talk

    async def _agree(self, talk: Talk) -> Mapping[str, Any]:
        offered = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
        client = {"name": "evalfleet", "title": "evalfleet", "version": "1"}
        given = {"protocolVersion": _VERSION, "clientCapabilities": offered, "clientInfo": client}
        agreed = await _asked(talk, "initialize", given)
        if agreed.get("protocolVersion") != _VERSION:
            said = as_text(agreed.get("protocolVersion"))
            raise unusable("AGENT_VERSION", f"the agent speaks version {said} of the Agent Client Protocol, not 1")
        told, wanted = mapping(agreed.get("agentInfo")), self._setup.version
        if wanted is not None and text(told.get("version")) != wanted:
            raise unusable("AGENT_VERSION", f"the agent says it is {as_text(told)}, not version {wanted}")
        return mapping(agreed.get("agentCapabilities"))

    async def _open(self, talk: Talk, cwd: str, servers: list[dict[str, Any]]) -> None:
        opened = await _asked(talk, "session/new", {"cwd": cwd, "mcpServers": servers})
        self._id = text(opened.get("sessionId")) or ""
        models = mapping(opened.get("models"))
        known = {text(mapping(model).get("modelId")) for model in sequence(models.get("availableModels"))}
        model = self._setup.wishes.model
        if model in known and models.get("currentModelId") != model:
            await _asked(talk, "session/set_model", {"sessionId": self._id, "modelId": model})
        if self._setup.mode is not None:
            await _asked(talk, "session/set_mode", {"sessionId": self._id, "modeId": self._setup.mode})


async def _asked(talk: Talk, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """The result of a request before the first prompt. Raises SendFailure when it is refused."""
    number = await talk.post(method, params)
    while True:
        heard = await talk.hear()
        if heard.get("id") == number and "method" not in heard:
            if "error" in heard:
                raise unusable("AGENT_NOT_SET_UP", f"{method}: {_said(heard['error'])}")
            return mapping(heard.get("result"))
        if "method" in heard and "id" in heard:
            await talk.refuse(heard["id"], text(heard["method"]) or "")


def _ended(turn: _Turn, heard: Mapping[str, Any]) -> Turn:
    """The turn whose prompt is answered. Raises SendFailure for an error, and for an answer that says nothing."""
    events = _untold(turn)
    if "error" in heard:
        raise SendFailure(
            f"the agent ended the turn: {_said(heard['error'])}", kind=FailureKind.AGENT, code="AGENT_EXITED"
        )
    status, told = ended_turn(mapping(heard.get("result")).get("stopReason"))
    if status is TurnStatus.COMPLETED and not says_or_does(turn.reading.events()):
        raise SendFailure("it ended without a text or an operation", kind=FailureKind.PROVIDER, code="EMPTY_RESPONSE")
    return Turn(status=status, events=(*events, *told))


def _asking(turn: _Turn, asked: Permission) -> Turn:
    """A turn that waits for a permission."""
    request = InputRequested(
        str(asked.operation),
        prompt=asked.title,
        action=turn.reading.name_of(asked.operation),
        input=asked.given,
        options=tuple(InputOption(option.id, option.name) for option in asked.options),
    )
    return Turn(status=TurnStatus.WAITING, events=(*_untold(turn), request))


def _untold(turn: _Turn) -> tuple[Event, ...]:
    """What no turn of the attempt has yet: a prompt that asks is told in several."""
    events = turn.reading.events()
    fresh, turn.told = events[turn.told :], len(events)
    return fresh


def _answer(turn: TurnInput, open_turn: _Turn | None) -> str:
    """What the author answers. Raises SendFailure for an input that the agent can't be given."""
    for name, value in (("files", turn.files), ("output_schema", turn.output_schema)):
        if value:
            raise unusable("INPUT_UNSUPPORTED", f"the turn has {name}, which `adapter: acp` does not send")
    if open_turn is None or open_turn.asked is None:
        if turn.responses:
            raise unusable("INPUT_UNSUPPORTED", "the agent asked nothing")
        return ""
    if not turn.responses:
        raise unusable("INPUT_UNSUPPORTED", "the agent waits for a permission: answer it with t.respond")
    response: InputResponse = turn.responses[0]
    return response.option_id or response.text or ""


def _servers(capabilities: Mapping[str, Any], servers: Mapping[str, str]) -> list[dict[str, Any]]:
    """MCP servers as the protocol names them. Raises SendFailure for an agent that reaches none by HTTP."""
    if servers and mapping(capabilities.get("mcpCapabilities")).get("http") is not True:
        raise unusable("AGENT_NOT_SET_UP", "the agent can't use MCP servers by HTTP, and has no other way to them here")
    return [{"type": "http", "name": name, "url": url, "headers": []} for name, url in servers.items()]


def _filled(values: Mapping[str, str], filled: Mapping[str, str]) -> dict[str, str]:
    found = dict(values)
    for mark, value in filled.items():
        found = {name: each.replace(mark, value) for name, each in found.items()}
    return found


def _said(error: Any) -> str:
    told = mapping(error)
    more = as_text(told["data"]) if "data" in told else ""
    return f"{text(told.get('message')) or as_text(error)} {more}".strip()[:_SHOWN]
