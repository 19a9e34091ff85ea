"""A task folder as it is run: what is said to the agent, which tests judge it, and for how long either may go on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from evalfleet.harbor.reward import REWARD
from evalfleet.harbor.task_toml import VERIFIER_SECONDS, HealthTable, StepTable, TaskToml, User

INSTRUCTION = "instruction.md"
TESTS = "tests"
TEST_SCRIPT = "test.sh"
STEPS = "steps"
WORKDIR = "workdir"
#: What some data sets put above an instruction, so that it is found in what models were trained on.
_CANARY = re.compile(r"(<!--.*canary.*-->|#.*canary.*)", re.IGNORECASE)
_STEP_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class TaskFault(ValueError):
    """The folder lacks something, or its settings don't agree. `field` is the setting's dotted name, if it is one."""

    def __init__(self, message: str, field: str | None = None) -> None:
        self.field = field
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One send and the tests that follow it. `name` is None in a task without steps; times are in seconds.

    `tests` are folders, each laid over those before it; `workdir` is one whose content the sandbox gets before the
    send. `verifier_user` is None where the tests run as whoever the sandbox's commands run as.
    """

    instruction: str
    tests: tuple[Path, ...]
    name: str | None = None
    workdir: Path | None = None
    agent_seconds: float | None = None
    verifier_seconds: float = VERIFIER_SECONDS
    verifier_user: str | None = None
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    min_reward: Mapping[str, float] = field(default_factory=dict[str, float])
    health: HealthTable | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFolder:
    """A task: its steps, at least one. With `final` the last step's reward is the task's, else their mean is.

    `root` is where `tests` and `logs/verifier` lie, "" for the file system's own root as the format has it; None is a
    fresh folder for each verification, for a sandbox whose root is not ours to write to. `ignored` are settings
    without effect. `workdir_is_all` says that tests look at the workdir alone.
    """

    folder: Path
    steps: tuple[Step, ...]
    root: str | None = ""
    final: bool = False
    ignored: tuple[str, ...] = ()
    health: HealthTable | None = None
    workdir_is_all: bool = False

    @property
    def seconds(self) -> float | None:
        """How long all agents and all tests may take together; None when an agent has no limit."""
        limits = [step.agent_seconds for step in self.steps]
        if any(limit is None for limit in limits):
            return None
        checks = [self.health, *(step.health for step in self.steps)]
        waiting = sum(check.longest for check in checks if check is not None)
        return sum(limit or 0.0 for limit in limits) + sum(step.verifier_seconds for step in self.steps) + waiting


def read_steps(folder: Path, toml: TaskToml) -> Iterator[Step]:
    """The steps of a task folder in their order. Raises TaskFault, OSError and UnicodeDecodeError."""
    names = [step.name for step in toml.steps]
    for name in names:
        if not _STEP_NAME.fullmatch(name) or names.count(name) > 1:
            raise TaskFault(f"{name!r} is no name of a folder, or two steps have it", "steps")
    if not toml.steps:
        yield _step(folder, toml, None)
    for table in toml.steps:
        yield _step(folder, toml, table)


def instruction_of(text: str) -> str:
    """What the agent is told: without the lines at its beginning that only mark a data set."""
    lines = text.splitlines(keepends=True)
    while lines and _CANARY.fullmatch(lines[0].strip()):
        del lines[0]
        while lines and not lines[0].strip():
            del lines[0]
    return "".join(lines)


def _step(folder: Path, toml: TaskToml, table: StepTable | None) -> Step:
    step = StepTable(name=TESTS) if table is None else table
    place = folder if table is None else folder / STEPS / step.name
    instruction = instruction_of((place / INSTRUCTION).read_text("utf-8"))
    if not instruction.strip():
        raise TaskFault(f"{place / INSTRUCTION} is empty")
    tests = tuple(dict.fromkeys(tests for tests in (folder / TESTS, place / TESTS) if tests.is_dir()))
    if not any((each / TEST_SCRIPT).is_file() for each in tests):
        raise TaskFault(f"there is no {place.relative_to(folder) / TESTS / TEST_SCRIPT}, which says what is right")
    workdir = place / WORKDIR
    return Step(
        instruction=instruction,
        tests=tests,
        name=None if table is None else step.name,
        workdir=workdir if table is not None and workdir.is_dir() else None,
        agent_seconds=step.agent.timeout_sec or toml.agent.timeout_sec,
        verifier_seconds=step.verifier.timeout_sec or toml.verifier.timeout_sec or VERIFIER_SECONDS,
        verifier_user=_verifier_user(step, toml),
        env={**toml.verifier.env, **step.verifier.env},
        min_reward=_thresholds(step),
        health=step.healthcheck,
    )


def _verifier_user(step: StepTable, toml: TaskToml) -> str | None:
    """Who runs the tests: whoever is named, root beside an agent that is named, else as the agent's commands run."""
    for named in (step.verifier.user, toml.verifier.user):
        if named is not None:
            return user_text(named)
    return None if toml.agent.user is None else "0"


def user_text(user: User) -> str:
    """A user as a sandbox knows it."""
    return "0" if user == "root" else str(user)


def _thresholds(step: StepTable) -> dict[str, float]:
    least = step.min_reward
    return {} if least is None else dict(least) if isinstance(least, dict) else {REWARD: least}
