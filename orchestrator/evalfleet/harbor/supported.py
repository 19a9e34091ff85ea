"""Which settings of a `task.toml` can be kept here: one that would change what the task means is refused. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from evalfleet.harbor.task_toml import EnvironmentTable, NetworkTable, TaskToml, VerifierTable
from evalfleet.model.destination import check_network

_REFERENCE = re.compile(r"\$\{([A-Za-z_]\w*)(:-[^${}]*)?\}")


def refusals(toml: TaskToml) -> Iterator[tuple[str, str]]:
    """The settings that can't be kept, each with what it asks for: the dotted name, and the reason."""
    yield from _of_environment(toml.environment)
    yield from _of_verifier("verifier", toml.verifier)
    yield from _of_network("agent", toml.agent, toml.environment)
    yield from _of_network("verifier", toml.verifier, toml.environment)
    for index, step in enumerate(toml.steps):
        place = f"steps[{index}]"
        yield from _of_verifier(f"{place}.verifier", step.verifier)
        yield from _of_network(f"{place}.agent", step.agent, toml.environment)
        yield from _of_network(f"{place}.verifier", step.verifier, toml.environment)
        if step.agent.user not in (None, toml.agent.user):
            yield f"{place}.agent.user", "all steps have one sandbox, whose agent is one user: name it in [agent]"


def ignored(toml: TaskToml) -> Iterator[str]:
    """The settings without effect: those that are not known here, and those that are about what a run leaves."""
    yield from toml.unknown()
    if toml.artifacts:
        yield "artifacts"
    yield from (f"steps[{index}].artifacts" for index, step in enumerate(toml.steps) if step.artifacts)


def environment_of(table: EnvironmentTable) -> tuple[dict[str, str], tuple[str, ...]]:
    """The variables with their values, and those that are asked of the host: `NAME`, or `NAME=OTHER:-default`."""
    asked = {name: _asked(name, value) for name, value in table.env.items() if _REFERENCE.fullmatch(value)}
    return {name: value for name, value in table.env.items() if name not in asked}, tuple(asked.values())


def _of_environment(table: EnvironmentTable) -> Iterator[tuple[str, str]]:
    if table.os.lower() != "linux":
        yield "environment.os", f"sandboxes are Linux, not {table.os!r}"
    if table.gpus or table.tpu is not None:
        yield f"environment.{'gpus' if table.gpus else 'tpu'}", "sandboxes have no accelerators"
    if table.mcp_servers:
        yield "environment.mcp_servers", "an agent's tools are its arm's to say"
    if table.skills_dir is not None:
        yield "environment.skills_dir", "an agent's skills are its arm's to say"
    if table.workdir is not None:
        yield "environment.workdir", "the workdir is the image's: say it by WORKDIR in the Dockerfile"
    for name, value in table.env.items():
        if "${" in value and not _REFERENCE.fullmatch(value):
            yield f"environment.env.{name}", "is more than one variable of the host: ${NAME} or ${NAME:-default}"
    try:
        check_network(table.open_to)
    except ValueError as error:
        yield "environment.allowed_hosts", str(error)


def _of_verifier(place: str, table: VerifierTable) -> Iterator[tuple[str, str]]:
    if table.environment is not None or table.environment_mode == "separate":
        yield f"{place}.environment", "tests run in the agent's sandbox, not in one of their own"
    if table.collect:
        yield f"{place}.collect", "there are no other services to collect from"
    if table.continuous.get("enabled"):
        yield f"{place}.continuous", "tests run when the agent is done, not before"
    for name, value in table.env.items():
        if "${" in value:
            yield f"{place}.env.{name}", "takes a variable of the host, which tests don't get"


def _of_network(place: str, table: NetworkTable, environment: EnvironmentTable) -> Iterator[tuple[str, str]]:
    if table.network not in (None, environment.open_to):
        yield f"{place}.network_mode", "the network is the same all along: say it in [environment]"


def _asked(name: str, value: str) -> str:
    inner = value.removeprefix("${").removesuffix("}")
    return name if inner == name else f"{name}={inner}"
