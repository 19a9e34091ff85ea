"""Running the tool calls of a model: whatever goes wrong is told to the model, and recorded, and never raised."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic_core import PydanticSerializationError, to_jsonable_python

from evalfleet.errors import ConfigurationError, describe
from evalfleet.model.events import OperationFinished, OperationStatus
from evalfleet.model.tool import Tool, ToolArgumentError, ToolRejected
from evalfleet_adapters.converters.model_reply import ToolCall
from evalfleet_adapters.limits import AgentThreads


class ToolBox:
    """The tools offered to a model. Raises ConfigurationError when two have one name."""

    def __init__(self, tools: Iterable[Tool], threads: AgentThreads) -> None:
        self._tools: dict[str, Tool] = {}
        self._threads = threads
        for tool in tools:
            if tool.name in self._tools:
                raise ConfigurationError(f"two tools are named {tool.name!r}")
            self._tools[tool.name] = tool

    def joined(self, given: Sequence[Tool]) -> ToolBox:
        """These tools and those that an eval gives, run in the same threads. Raises ConfigurationError as above."""
        return ToolBox((*self._tools.values(), *given), self._threads) if given else self

    def asks(self, name: str) -> bool:
        """Whether a tool of this name says that no call of it runs before a person allows it."""
        return name in self._tools and self._tools[name].needs_approval

    def __bool__(self) -> bool:
        return bool(self._tools)

    def close(self) -> None:
        self._threads.close()

    async def run(self, call: ToolCall) -> tuple[OperationFinished, str]:
        """How the call ended, and the text that goes back to the model. Arguments and output are exact JSON."""
        status, output = await self._outcome(call)
        text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
        return OperationFinished(call.id, status, output), text

    async def _outcome(self, call: ToolCall) -> tuple[OperationStatus, Any]:
        tool = self._tools.get(call.name)
        if tool is None:
            return OperationStatus.FAILED, f"there is no tool {call.name!r}; there are {', '.join(self._tools)}"
        if call.arguments is None:
            return OperationStatus.FAILED, f"{call.name}: {call.problem}; received: {call.raw}"
        try:
            return OperationStatus.COMPLETED, _as_json(await self._call(tool, call.arguments))
        except ToolArgumentError as error:
            return OperationStatus.FAILED, str(error)
        except ToolRejected as error:
            return OperationStatus.REJECTED, describe(error) or "the call was rejected"
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return OperationStatus.FAILED, f"{type(error).__name__}: {describe(error)}"
        except (Exception, SystemExit) as error:  # noqa: BLE001 - tools are author code; agents live with broken tools
            return OperationStatus.FAILED, f"{type(error).__name__}: {describe(error)}"

    async def _call(self, tool: Tool, arguments: dict[str, Any]) -> Any:
        if tool.is_async:
            return await tool.call(arguments)
        bound = tool.bind(arguments)
        return await self._threads.run(lambda: tool.function(**bound))


def _as_json(value: Any) -> Any:
    """A tool's result as JSON: models, dates and dataclasses in their JSON form. Raises TypeError for other things."""
    try:
        return json.loads(json.dumps(value, default=to_jsonable_python))
    except PydanticSerializationError as error:
        raise TypeError(f"the tool returned a {type(value).__name__}, which has no JSON form") from error
