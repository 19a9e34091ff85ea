"""Task folders in Harbor's format as one of the forms in which an Eval may be written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, cast

from pydantic import ValidationError

from evalfleet.errors import Problem
from evalfleet.harbor.body import TaskBody
from evalfleet.harbor.supported import environment_of, ignored, refusals
from evalfleet.harbor.task_folder import INSTRUCTION, STEPS, TESTS, TaskFault, TaskFolder, read_steps, user_text
from evalfleet.harbor.task_toml import TaskToml, read_task_toml
from evalfleet.model.definition import EvalDefinition, Resources, SandboxSpec, SourcePlace
from evalfleet.model.verdict import Style

_FILE = "task.toml"
_ENVIRONMENT = "environment"
_DOCKERFILE = "Dockerfile"
_COMPOSED = ("docker-compose.yaml", "docker-compose.yml", "compose.yaml", "compose.yml")
#: What of the folder is said or judged by; the image is told apart, by what it is built from.
_CRITERIA = (INSTRUCTION, TESTS, STEPS, "solution")
#: Seconds for making the sandbox and bringing the tests, beside what agent and tests may take.
_ROOM_SECONDS = 120.0
_DESCRIPTION_LENGTH = 120


class HarborTasks:
    """`<folder>/task.toml`: the folder is one Eval, of that path."""

    owns_folder = True

    def claims(self, path: PurePosixPath) -> bool:
        return path.name == _FILE and len(path.parts) > 1

    def path_id(self, path: PurePosixPath) -> str:
        return path.parent.as_posix()

    def find(self, project: Path, file: Path, definition_id: str) -> Iterator[EvalDefinition | Problem]:
        return self.load(project, file)

    def load(self, project: Path, file: Path) -> Iterator[EvalDefinition | Problem]:
        identifier = self.path_id(PurePosixPath(file.relative_to(project / "evals").as_posix()))
        yield from load_task(file, identifier)


def load_task(file: Path, identifier: str) -> Iterator[EvalDefinition | Problem]:
    """The definition of the task folder whose `task.toml` is `file`, or everything that is wrong with it."""
    try:
        toml = read_task_toml(file.read_bytes())
        steps = tuple(read_steps(file.parent, toml))
        style = Style(_said(toml, "style", (Style.PASS.value, Style.SCORE.value)))
        workdir_is_all = _said(toml, "state", ("sandbox", "workdir")) == "workdir"
    except ValidationError as error:
        yield from (_invalid(file, one["msg"], ".".join(map(str, one["loc"]))) for one in error.errors())
        return
    except TaskFault as fault:
        yield _invalid(file, str(fault), fault.field)
        return
    except OSError as error:
        yield _invalid(file, f"{error.filename} can't be read: {error.strerror}")
        return
    except ValueError as error:
        yield _invalid(file, str(error))
        return
    refused = [*refusals(toml), *_composed(file.parent)]
    yield from (Problem("TASK_NOT_SUPPORTED", message, str(file), field=field) for field, message in refused)
    if refused:
        return
    spec = _sandbox(file.parent, toml)
    root = None if spec.image is None and spec.build is None else ""
    final = toml.multi_step_reward_strategy == "final"
    task = TaskFolder(
        folder=file.parent,
        steps=steps,
        root=root,
        final=final,
        ignored=tuple(ignored(toml)),
        health=toml.environment.healthcheck,
        workdir_is_all=workdir_is_all,
    )
    yield EvalDefinition(
        body=TaskBody(task, style),
        style=style,
        id=identifier,
        description=_description(toml, task),
        tags=_tags(toml),
        sandbox=spec,
        timeout=None if task.seconds is None else task.seconds + _ROOM_SECONDS,
        replayable=False,
        criteria=tuple(name for name in _CRITERIA if _holds_files(file.parent / name)),
        metadata=toml.metadata,
        place=SourcePlace(file=file, line=1),
    )


def _sandbox(folder: Path, toml: TaskToml) -> SandboxSpec:
    table = toml.environment
    env, env_from = environment_of(table)
    built = table.docker_image is None and (folder / _ENVIRONMENT / _DOCKERFILE).is_file()
    return SandboxSpec(
        image=table.docker_image,
        build=_ENVIRONMENT if built else None,
        env=env,
        env_from=env_from,
        network=table.open_to,
        resources=Resources(cpus=table.cpus, memory=table.memory_bytes, disk=table.storage_bytes),
        user=None if toml.agent.user is None else user_text(toml.agent.user),
    )


def _composed(folder: Path) -> Iterator[tuple[str, str]]:
    for name in _COMPOSED:
        if (folder / _ENVIRONMENT / name).exists():
            yield _ENVIRONMENT, f"a sandbox is one container, not the services of {name}"


def _said(toml: TaskToml, name: str, known: tuple[str, str]) -> str:
    """What the task's own metadata says to us under this name; the first one when it says nothing."""
    ours = toml.metadata.get("evalfleet", {})
    said = cast("dict[str, Any]", ours).get(name, known[0]) if isinstance(ours, dict) else ours
    if said not in known:
        raise TaskFault(f"is `{known[0]}` or `{known[1]}`", f"metadata.evalfleet.{name}")
    return said


def _tags(toml: TaskToml) -> tuple[str, ...]:
    """The registry's keywords, and what most tasks say in their metadata."""
    own = toml.metadata.get("tags", [])
    said = [*toml.task.keywords, *(own if isinstance(own, list) else [own])]
    return tuple(dict.fromkeys(tag for tag in said if isinstance(tag, str) and tag.strip()))


def _description(toml: TaskToml, task: TaskFolder) -> str:
    said = toml.task.description.strip() or task.steps[0].instruction.strip()
    first = said.splitlines()[0].strip("# ")
    return first if len(first) <= _DESCRIPTION_LENGTH else first[: _DESCRIPTION_LENGTH - 1] + "…"


def _holds_files(path: Path) -> bool:
    return path.is_file() or any(each.is_file() for each in path.rglob("*"))


def _invalid(file: Path, message: str, field: str | None = None) -> Problem:
    return Problem("INVALID_TASK", message, str(file), field=field)
