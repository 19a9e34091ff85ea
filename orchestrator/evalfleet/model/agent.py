"""`@agent` and `@sandbox_agent`: how a Python agent declares what its adapter can prove."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evalfleet.model.coverage import Coverage
from evalfleet.model.definition import AgentDefinition


def agent(*, coverage: Coverage, name: str | None = None) -> Callable[[Callable[..., Any]], AgentDefinition]:
    """Declare a direct Python agent: `async def f(turn, ctx) -> Turn`, a plain function, or a class.

    `coverage` declares all six evidence channels. Raises TypeError when it is not a Coverage.
    """
    return _declare(coverage, name, sandboxed=False)


def sandbox_agent(*, coverage: Coverage, name: str | None = None) -> Callable[[Callable[..., Any]], AgentDefinition]:
    """Declare a Python agent that lives in the attempt's sandbox (`ctx.sandbox`)."""
    return _declare(coverage, name, sandboxed=True)


def _declare(
    coverage: Coverage, name: str | None, *, sandboxed: bool
) -> Callable[[Callable[..., Any]], AgentDefinition]:
    if not isinstance(coverage, Coverage):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
        raise TypeError(f"coverage must be a Coverage with all six channels, not {type(coverage).__name__}")

    def wrap(target: Callable[..., Any]) -> AgentDefinition:
        label = name or getattr(target, "__name__", type(target).__name__)
        return AgentDefinition(target=target, coverage=coverage, sandboxed=sandboxed, name=label)

    return wrap
