"""The other face of a pack's tools: an MCP server over streamable HTTP, one for each attempt's world.

Needs `evalfleet[mcp]`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from evalfleet.errors import EvalfleetError, describe
from evalfleet.model.tool import ToolArgumentError, ToolRejected
from evalfleet.taskpacks.world import World

try:
    from mcp.server.lowlevel.server import Server
    from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
    from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, Tool
except ModuleNotFoundError as error:
    raise ImportError("tools for agents that speak MCP need evalfleet[mcp]: pip install 'evalfleet[mcp]'") from error

if TYPE_CHECKING:
    from starlette.types import ASGIApp


@asynccontextmanager
async def mcp_app(world: World, name: str = "case-store") -> AsyncGenerator[ASGIApp]:
    """An ASGI application that speaks MCP at any path, for as long as the block runs.

    No state is kept between requests but the world's: an agent may connect as often as it likes. Names and arguments
    that fit no tool are traced and told to the agent, as they are to one that holds the functions.
    """

    async def list_tools(*_: Any) -> ListToolsResult:
        world.by_mcp = True
        return ListToolsResult(tools=_described(world))

    async def call_tool(_: Any, asked: CallToolRequestParams) -> CallToolResult:
        world.by_mcp = True
        return await _called(world, asked.name, asked.arguments or {})

    server: Server[Any] = Server(name, on_list_tools=list_tools, on_call_tool=call_tool)
    manager = StreamableHTTPSessionManager(app=server, json_response=True, stateless=True)
    async with manager.run():
        yield StreamableHTTPASGIApp(manager)


def _described(world: World) -> list[Tool]:
    return [
        Tool(name=tool.name, description=tool.description, input_schema=dict(tool.parameters)) for tool in world.tools
    ]


async def _called(world: World, name: str, arguments: dict[str, Any]) -> CallToolResult:
    try:
        result = await world.call(name, arguments)
    except (ToolArgumentError, ToolRejected) as error:
        return _said(describe(error), is_error=True)
    except EvalfleetError:
        return _said("the tool is not available", is_error=True)  # the world keeps why, for the attempt
    except Exception as error:  # noqa: BLE001 - tools are a pack's code; agents live with broken tools
        return _said(f"{type(error).__name__}: {describe(error)}", is_error=True)
    text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
    return _said(text)


def _said(text: str, *, is_error: bool = False) -> CallToolResult:
    content: Sequence[TextContent] = [TextContent(type="text", text=text)]
    return CallToolResult(content=list(content), is_error=is_error)
