"""`@pack_tool`: a typed function on the case store that an agent may call, described without its first parameter."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_type_hints, overload

from evalfleet.model.tool import Tool, tool


@dataclass(frozen=True, slots=True, kw_only=True)
class PackTool:
    """A function `(cases, …)`, sync or async, and how agents see it. Only a `mutating` one may write."""

    tool: Tool
    function: Callable[..., Any]
    mutating: bool

    @property
    def name(self) -> str:
        return self.tool.name


@overload
def pack_tool(function: Callable[..., Any], /) -> PackTool: ...
@overload
def pack_tool(*, mutating: bool = False, name: str | None = None) -> Callable[[Callable[..., Any]], PackTool]: ...
def pack_tool(
    function: Callable[..., Any] | None = None, /, *, mutating: bool = False, name: str | None = None
) -> PackTool | Callable[[Callable[..., Any]], PackTool]:
    """Offer a function whose first parameter is the `Cases` to agents of a pack: `@pack_tool(mutating=True)`.

    The other parameters need annotations, as for `@tool`. Raises TypeError without a first parameter, or when another
    can't be described.
    """

    def wrap(target: Callable[..., Any]) -> PackTool:
        return PackTool(tool=tool(name=name)(_seen_by_agents(target)), function=target, mutating=mutating)

    return wrap if function is None else wrap(function)


def _seen_by_agents(target: Callable[..., Any]) -> Callable[..., Any]:
    """A function with the signature, the hints and the docstring of `target` but its first parameter."""
    signature = inspect.signature(target)
    first, *rest = [*signature.parameters.values(), None]
    if first is None:
        raise TypeError(f"pack tool {getattr(target, '__name__', target)}: its first parameter is the case store")
    hints = get_type_hints(target, include_extras=True)

    async def described(**arguments: Any) -> Any:
        raise NotImplementedError  # a pack's tools are called with the case store of an attempt

    described.__name__ = getattr(target, "__name__", type(target).__name__)
    described.__doc__ = inspect.getdoc(target)
    described.__annotations__ = {name: hint for name, hint in hints.items() if name != first.name}
    described.__signature__ = signature.replace(parameters=[each for each in rest if each is not None])  # pyright: ignore[reportFunctionMemberAccess]
    return described
