"""What an author defines: evals, agents, tools and sandbox plans, before any file or id is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evalfleet.model.changes import TrackChanges
from evalfleet.model.coverage import Coverage
from evalfleet.model.verdict import Style


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Limits of one sandbox: cpus in cores, memory and disk in bytes, pids a count; None is unlimited."""

    cpus: float | None = None
    memory: int | None = None
    pids: int | None = None
    disk: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """What an attempt's sandbox looks like. Paths are relative to the eval file (or the experiment's).

    `image` names what a backend with images starts from; `build` is a folder with a Dockerfile that makes one.
    `files` is a directory copied to the workdir before anything runs; `setup` are shell commands run after it;
    `env` holds plain values, `env_from` names of secrets to resolve, where `NAME=OTHER:-default` is another one's value
    by this name; `network` is `none`, `open` or hosts.
    With `changes` the workdir is followed around every send; backends have no part in that.
    """

    backend: str | None = None
    image: str | None = None
    build: str | None = None
    files: str | None = None
    setup: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    env_from: tuple[str, ...] = ()
    network: str | tuple[str, ...] = "none"
    resources: Resources = field(default_factory=Resources)
    user: str | None = None
    changes: TrackChanges | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePlace:
    """Where something was defined: the file and the 1-based line."""

    file: Path
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalDefinition:
    """One runnable test definition, agent-neutral.

    `id` is empty until discovery derives it from the path. `body` is the author's function, sync or async, which
    takes `t` and, with a dataset, one row; or a suite's `DeclaredScenario`. `skip_reason` leaves it out.
    `rows` is the dataset (see `planning.dataset`) or None. `timeout` is the attempt deadline in seconds. `fixture` is
    the fixture folder when the eval came from one. `criteria` names files that it judges by, relative to its own.
    `serves` are the routes that its body mounts in the attempt's gateway, such as `/mcp`.
    """

    body: Callable[..., Any]
    style: Style = Style.PASS
    id: str = ""
    description: str | None = None
    tags: tuple[str, ...] = ()
    rows: Any = None
    sandbox: SandboxSpec | None = None
    judge: bool | Mapping[str, Any] = False
    timeout: float | None = None
    allow_no_assertions: bool = False
    replayable: bool = True
    external: bool = False
    skip_reason: str | None = None
    criteria: tuple[str, ...] = ()
    serves: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    place: SourcePlace | None = None
    fixture: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDefinition:
    """An agent written in Python: a coroutine or function `(turn, ctx) -> Turn`, or a class with a session.

    A class is constructed once per session with `ctx` and has `send(turn)` and optionally `close()`, sync or
    async. `sandboxed` agents live in the attempt's sandbox and have `ctx.sandbox`.
    """

    target: Callable[..., Any]
    coverage: Coverage
    sandboxed: bool = False
    name: str = ""
