"""What the frame has to know of a coding agent's program. PURE."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from evalfleet.model.coverage import Coverage
from evalfleet.model.model_route import Dialect
from evalfleet_adapters.converters.agent_report import AgentReport

#: The key that a program in a sandbox is given: the gateway drops it, and puts the arm's own in its place.
DUMMY_KEY = "evalfleet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a program runs: the URL of its model in the gateway, without `/v1`, and a folder for its own files."""

    model_url: str
    folder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What an arm wants of its program. `settings` are the program's own, `servers` MCP servers as URLs by name."""

    model: str
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    servers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a program is set up in a place. `files` are written into its folder, by their names."""

    files: Mapping[str, str]
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentProgram:
    """One program: how it is installed, set up and started, and how its transcript is read.

    `arguments(place, wishes, session)` follow the program's name; `session` is its own id of a conversation to go on
    with. The prompt goes to stdin. `whole_usage`: what it reports as usage is that of the conversation so far.
    """

    name: str
    command: str
    version: str
    install: str
    dialect: Dialect
    base_url: str
    coverage: Coverage
    launch: Callable[[Place, Wishes], Launch]
    arguments: Callable[[Place, Wishes, str | None], tuple[str, ...]]
    read: Callable[[Iterable[Mapping[str, Any]]], AgentReport]
    is_last: Callable[[Mapping[str, Any]], bool]
    whole_usage: bool = False
