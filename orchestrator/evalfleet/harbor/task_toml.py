"""What a `task.toml` says, in Harbor's words: strict about the settings it knows, patient with the others. Pure."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue

#: Seconds that tests may take when nothing says so.
VERIFIER_SECONDS = 600.0
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMG])[Bb]?")

Seconds: TypeAlias = Annotated[float, Field(gt=0)]
Megabytes: TypeAlias = Annotated[int, Field(gt=0)]
User: TypeAlias = str | int
Thresholds: TypeAlias = float | dict[str, float]


class TomlTable(BaseModel):
    """One table of the file. A key that is not known here is kept apart, since the format is not ours."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, allow_inf_nan=False, hide_input_in_errors=True)

    def unknown(self, prefix: str = "") -> Iterator[str]:
        """The dotted names of keys that are not known here, in this table and those below it."""
        yield from (f"{prefix}{name}" for name in self.model_extra or {})
        for name in type(self).model_fields:
            value: Any = getattr(self, name)
            if isinstance(value, TomlTable):
                yield from value.unknown(f"{prefix}{name}.")
            elif isinstance(value, tuple):
                for index, item in enumerate(value):  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
                    if isinstance(item, TomlTable):
                        yield from item.unknown(f"{prefix}{name}[{index}].")


class HealthTable(TomlTable):
    """`healthcheck`: a shell command that has to succeed before anybody is told anything."""

    command: Annotated[str, Field(min_length=1)]
    interval_sec: Seconds = 5.0
    timeout_sec: Seconds = 30.0
    start_period_sec: Annotated[float, Field(ge=0)] = 0.0
    start_interval_sec: Seconds = 5.0
    retries: Annotated[int, Field(ge=1)] = 3

    @property
    def longest(self) -> float:
        """The seconds after which it has succeeded or failed, however it goes."""
        return self.start_period_sec + self.start_interval_sec + self.retries * (self.timeout_sec + self.interval_sec)


class NetworkTable(TomlTable):
    """What every table says that stands for a phase with a network."""

    network_mode: Literal["public", "no-network", "allowlist"] | None = None
    allowed_hosts: tuple[str, ...] | None = None

    @property
    def network(self) -> str | tuple[str, ...] | None:
        """As a sandbox says it, None when the table says nothing."""
        if self.network_mode == "allowlist" or (self.network_mode is None and self.allowed_hosts):
            return self.allowed_hosts or ()
        return None if self.network_mode is None else "open" if self.network_mode == "public" else "none"


class AgentTable(NetworkTable):
    """`[agent]`, of the task or of one step."""

    timeout_sec: Seconds | None = None
    user: User | None = None


class VerifierTable(NetworkTable):
    """`[verifier]`, of the task or of one step."""

    timeout_sec: Seconds | None = None
    env: dict[str, str] = Field(default_factory=dict)
    user: User | None = None
    environment_mode: Literal["shared", "separate"] | None = None
    environment: dict[str, JsonValue] | None = None
    collect: tuple[JsonValue, ...] = ()
    continuous: dict[str, JsonValue] = Field(default_factory=dict)


class EnvironmentTable(NetworkTable):
    """`[environment]`: the sandbox that a step's agent and tests share."""

    build_timeout_sec: Seconds | None = None
    docker_image: Annotated[str, Field(min_length=1)] | None = None
    os: str = "linux"
    cpus: Annotated[float, Field(gt=0)] | None = None
    memory_mb: Megabytes | None = None
    storage_mb: Megabytes | None = None
    memory: Annotated[str, Field(pattern=rf"^{_SIZE.pattern}$")] | None = None
    storage: Annotated[str, Field(pattern=rf"^{_SIZE.pattern}$")] | None = None
    gpus: int | None = None
    gpu_types: tuple[str, ...] | None = None
    tpu: dict[str, JsonValue] | None = None
    allow_internet: bool | None = None
    mcp_servers: tuple[JsonValue, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    skills_dir: str | None = None
    healthcheck: HealthTable | None = None
    workdir: str | None = None

    @property
    def open_to(self) -> str | tuple[str, ...]:
        """The network of the whole task, as a sandbox says it; the format's own answer is that it is open."""
        own = self.network
        return own if own is not None else "none" if self.allow_internet is False else "open"

    @property
    def memory_bytes(self) -> int | None:
        return _bytes(self.memory_mb, self.memory)

    @property
    def storage_bytes(self) -> int | None:
        return _bytes(self.storage_mb, self.storage)


class StepTable(TomlTable):
    """One of `[[steps]]`: an instruction and tests of its own. What it says nothing about is as in the task."""

    name: Annotated[str, Field(min_length=1)]
    agent: AgentTable = Field(default_factory=AgentTable)
    verifier: VerifierTable = Field(default_factory=VerifierTable)
    min_reward: Thresholds | None = None
    healthcheck: HealthTable | None = None
    artifacts: tuple[JsonValue, ...] = ()


class PackageTable(TomlTable):
    """`[task]`: how a registry knows it."""

    name: str | None = None
    version: str | None = None
    description: str = ""
    authors: tuple[JsonValue, ...] = ()
    keywords: tuple[str, ...] = ()


class SolutionTable(TomlTable):
    """`[solution]`: for a reference solution, which no run of ours uses."""

    env: dict[str, str] = Field(default_factory=dict)


class TaskToml(TomlTable):
    """The whole file."""

    schema_version: str | None = None
    version: str | None = None
    source: str | None = None
    task: PackageTable = Field(default_factory=PackageTable)
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    agent: AgentTable = Field(default_factory=AgentTable)
    verifier: VerifierTable = Field(default_factory=VerifierTable)
    environment: EnvironmentTable = Field(default_factory=EnvironmentTable)
    solution: SolutionTable = Field(default_factory=SolutionTable)
    steps: tuple[StepTable, ...] = ()
    multi_step_reward_strategy: Literal["mean", "final"] | None = None
    artifacts: tuple[JsonValue, ...] = ()


def read_task_toml(data: bytes) -> TaskToml:
    """Raises ValueError: UnicodeDecodeError and TOMLDecodeError are two, pydantic's ValidationError is another."""
    document = tomllib.loads(data.decode("utf-8"))
    return TaskToml.model_validate_json(json.dumps(document, default=str))  # dates, which JSON has not, as their text


def _bytes(megabytes: int | None, size: str | None) -> int | None:
    if megabytes is not None:
        return megabytes << 20
    found = None if size is None else _SIZE.fullmatch(size)
    return None if found is None else int(float(found[1]) * _UNITS[found[2]])
