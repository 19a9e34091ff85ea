"""One attempt's world: its case store, the tools on it, their trace, and the responder on the other side."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from pydantic_core import PydanticSerializationError, to_jsonable_python

from evalfleet.errors import AttemptFailure, AuthoringError, EvalfleetError, FailureKind, describe
from evalfleet.model.tool import Tool, ToolArgumentError, ToolRejected
from evalfleet.taskpacks.case_store import CaseStore, Restored
from evalfleet.taskpacks.cases import RESPONDER, Cases
from evalfleet.taskpacks.diff import Actor, compare
from evalfleet.taskpacks.pack_tool import PackTool
from evalfleet.taskpacks.policy import Allowed, Examined, examine
from evalfleet.taskpacks.responder import RESPONDER_NO_RULE, Answer, Responder, read_cursor
from evalfleet.taskpacks.state import HARNESS, CaseState
from evalfleet.taskpacks.trace import CallStatus, CallTrace, TraceLine, completed, read_lines, result_ref
from evalfleet.taskpacks.trace_file import TraceFile
from evalfleet.taskpacks.writes import attributed

UNKNOWN_TOOL, INVALID_ARGUMENTS, TOOL_RAISED = "UNKNOWN_TOOL", "INVALID_ARGUMENTS", "TOOL_RAISED"
CALL_REJECTED = "CALL_REJECTED"

#: What the responder's acts are called in a trace.
REPLY = "responder.reply"

Act = Callable[[Cases], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldTool(Tool):
    """A pack's tool as an agent holds it. Also arguments that do not fit reach the trace.

    A coroutine awaits `call`; plain code in a thread of its own calls the tool itself: `tool(parcel="P-1")`.
    """

    perform: Callable[[str, Any], Coroutine[Any, Any, Any]]
    loop: asyncio.AbstractEventLoop

    async def call(self, arguments: Mapping[str, Any]) -> Any:
        """Call it in the attempt's world. Raises ToolArgumentError, ToolRejected, or what the tool raises."""
        return await self.perform(self.name, arguments)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As `call`, and its result; where a loop runs, something to await. Raises TypeError for too many arguments."""
        names = list(self.parameters.get("properties", {}))
        if len(args) > len(names):
            raise TypeError(f"{self.name} takes {len(names)} arguments, not {len(args)}")
        calling = self.perform(self.name, {**dict(zip(names, args, strict=False)), **kwargs})
        return calling if _in_a_loop() else asyncio.run_coroutine_threadsafe(calling, self.loop).result()


class World:
    """What the agent, the responder and the harness do to one case store, one call at a time."""

    def __init__(self, store: CaseStore, file: TraceFile, tools: Sequence[PackTool], responder: Responder):
        self._store = store
        self._file = file
        self._tools = {tool.name: tool for tool in tools}
        self.responder = responder
        self._lock = asyncio.Lock()
        self._start: CaseState | None = None
        self._seen: CaseState | None = None
        self._failure: AttemptFailure | None = None
        self._over = False
        self.turn = 0
        self.by_mcp = False
        self.results: dict[str, Any] = {}

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools for an agent."""
        return tuple(self._offered(tool) for tool in self._tools.values())

    @property
    def trace(self) -> CallTrace:
        """The calls so far."""
        return read_lines([line.document() for line in self._file.lines])

    async def reset(self, snapshot_id: str) -> Restored:
        """Start from a snapshot. Raises AttemptFailure; refused once the first call was made."""
        restored = await self._store.reset(snapshot_id)
        self._start = self._seen = await self._store.state()
        return restored

    async def call(self, name: str, arguments: Any) -> Any:
        """Call a tool as the agent; its result as JSON.

        Raises ToolArgumentError for a name or arguments that fit no tool, ToolRejected, or what the tool raises.
        """
        async with self._lock:
            if self._over:
                raise ToolRejected("the attempt is over")
            tool = self._tools.get(name)
            if tool is None:
                await self._deny(name, arguments, UNKNOWN_TOOL)
                raise ToolArgumentError(f"there is no tool {name!r}; there are {', '.join(self._tools)}")
            try:
                bound = _bound(tool, arguments)
            except ToolArgumentError:
                await self._deny(name, arguments, INVALID_ARGUMENTS)
                raise
            line = self._file.next(name, dict(arguments), Actor.AGENT, self.turn)
            return await self._perform(line, lambda cases: tool.function(cases, **bound), tool.mutating)

    async def reply(self, asked: Iterable[str], said: str = "") -> Answer:
        """What the responder answers to who asks for requirements and says that.

        Raises AttemptFailure RESPONDER_NO_RULE, and what else its responder raises.
        """
        wanted = sorted(set(asked))
        async with self._lock:
            cursor = read_cursor(Cases(await self._store.state(), Actor.RESPONDER, 0).kept(RESPONDER))
        found = await self.responder.answer(wanted, said, cursor)
        if found is None:
            message = f"no rule of the responder answers who asks for {', '.join(wanted) or 'nothing'}"
            raise AttemptFailure(FailureKind.AUTHORING, RESPONDER_NO_RULE, message)
        async with self._lock:
            line = self._file.next(REPLY, {"asked": wanted, **found.said}, Actor.RESPONDER, self.turn)
            line = line.model_copy(update={"rule": found.rule.id})
            await self._perform(line, lambda cases: _carry_out(cases, found), mutating=True)
            return found

    async def refused(self, name: str, arguments: Any, code: str = UNKNOWN_TOOL) -> None:
        """Trace a call that never reached a tool."""
        async with self._lock:
            await self._deny(name, arguments, code)

    async def examine(self, policy: Sequence[Allowed]) -> Examined:
        """What changed since the reset, held against a policy."""
        async with self._lock:
            if self._start is None:
                raise AuthoringError("reset() the world before its changes are looked at")
            after, trace = await self._store.state(), self.trace
            diff = attributed(compare(self._start, after), trace.writes)
            return examine(policy, diff, trace.writes, after.schema)

    async def state(self) -> CaseState:
        """All records as they stand."""
        return await self._store.state()

    def records(self) -> dict[str, dict[str, Any]]:
        """Copies of all records as the last call left them: by collection and key, without the harness's own."""
        seen = self._seen
        if seen is None:
            return {}
        found: dict[str, dict[str, Any]] = {name: {} for name in sorted(seen.schema.keys() - {HARNESS})}
        for row in seen.rows:
            if row.collection != HARNESS:
                found[row.collection][row.key] = seen.record(*row)
        return found

    async def end(self) -> None:
        """Let the agent call no more: what a process of it that lives on writes now is not looked at."""
        async with self._lock:
            self._over = True

    def fail(self, failure: AttemptFailure) -> None:
        """Keep a failure that is not the agent's, whatever it makes of it; the first one counts."""
        self._failure = self._failure or failure

    def check(self) -> None:
        """Raise the first failure of the world itself, which an agent may have taken for one of its tools."""
        if self._failure is not None:
            raise self._failure

    # --- one call ---------------------------------------------------------------------------------------------

    async def _perform(self, line: TraceLine, act: Act, mutating: bool) -> Any:
        """Do it and write down how it ended. Cancelled in the middle, a mutating call leaves its intent alone."""
        with self._guarded():
            self._store.active = True
            if mutating:
                await self._file.append(line)
            cases = Cases(await self._store.state(), line.actor, line.step)
        try:
            result = await _result(act, cases)
        except Exception as error:
            denied = isinstance(error, ToolRejected)
            ended = (CallStatus.DENIED, CALL_REJECTED) if denied else (CallStatus.ERROR, TOOL_RAISED)
            with self._guarded():
                await self._file.append(completed(line, status=ended[0], error=ended[1]))
            raise
        with self._guarded():
            return await self._keep(line, cases, result, mutating)

    async def _keep(self, line: TraceLine, cases: Cases, result: Any, mutating: bool) -> Any:
        """Let the writes of a call take effect."""
        writes = tuple(cases.writes())
        if writes and not mutating:
            await self._file.append(completed(line, status=CallStatus.ERROR, error=TOOL_RAISED))
            message = f"{line.tool} wrote {'/'.join(writes[0].row)}: declare it @pack_tool(mutating=True)"
            raise AuthoringError(message, "READ_ONLY_TOOL")
        await self._store.write((each.row, cases.after.rows.get(each.row)) for each in writes)
        self._seen = cases.after
        reference = result_ref(result)
        self.results[reference] = result
        digest = cases.after.digest if mutating else None
        await self._file.append(completed(line, writes, result_ref=reference, state_digest=digest))
        return result

    @contextmanager
    def _guarded(self) -> Generator[None]:
        """Around what is the world's own to do, and nothing that a tool does."""
        try:
            yield
        except (EvalfleetError, OSError) as error:
            self._break(error)
            raise

    def _break(self, error: Exception) -> None:
        """Keep a failure of the store or of the pack: not of the agent, whatever it makes of it."""
        if isinstance(error, AttemptFailure):
            self.fail(error)
        elif isinstance(error, AuthoringError):
            self.fail(AttemptFailure(FailureKind.AUTHORING, error.code, str(error)))
        else:
            message = f"{type(error).__name__}: {describe(error)}"
            self.fail(AttemptFailure(FailureKind.INFRASTRUCTURE, "CASE_STORE_FAILED", message))

    async def _deny(self, name: str, arguments: Any, code: str) -> None:
        known = isinstance(arguments, Mapping)
        line = self._file.next(
            name, dict(cast("Mapping[str, Any]", arguments)) if known else {}, Actor.AGENT, self.turn
        )
        received = None if known else arguments
        await self._file.append(completed(line, status=CallStatus.DENIED, error=code, received=received))

    def _offered(self, tool: PackTool) -> WorldTool:
        async def function(**arguments: Any) -> Any:
            return await self.call(tool.name, arguments)

        seen = tool.tool
        return WorldTool(
            name=seen.name,
            description=seen.description,
            parameters=seen.parameters,
            function=function,
            arguments=seen.arguments,
            perform=self.call,
            loop=asyncio.get_running_loop(),
        )


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _bound(tool: PackTool, arguments: Any) -> dict[str, Any]:
    if not isinstance(arguments, Mapping):
        raise ToolArgumentError(f"{tool.name}: the arguments are a JSON object, not {type(arguments).__name__}")
    return tool.tool.bind(cast("Mapping[str, Any]", arguments))


async def _result(act: Act, cases: Cases) -> Any:
    """What a function of the pack returns, as JSON; a plain one runs in a thread."""
    result = act(cases) if inspect.iscoroutinefunction(act) else await asyncio.to_thread(act, cases)
    value = await result if inspect.isawaitable(result) else result
    try:
        return json.loads(json.dumps(value, default=to_jsonable_python))
    except PydanticSerializationError as error:
        raise TypeError(f"the tool returned a {type(value).__name__}, which has no JSON form") from error


def _carry_out(cases: Cases, found: Answer) -> str:
    """The responder's writes, and how far its script has come."""
    for each in found.rule.writes:
        if each.key is None:
            cases.add(each.collection, each.record)
        else:
            cases.update(each.collection, each.key, **each.record)
    cases.keep(RESPONDER, found.cursor.document())
    return found.rule.reply
