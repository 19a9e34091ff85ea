"""The project as one archive for a cluster: everything an eval may refer to, nothing that only this machine needs."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from evalfleet.api.blueprint import RunBlueprint
from evalfleet.errors import ConfigurationError
from evalfleet.planning.plan import Plan

#: What Ray takes at most as a job's working directory.
PACKAGE_LIMIT = 100 << 20
#: The run's blueprint in the archive, without any path or address of this machine.
BLUEPRINT = ".evalfleet-run.json"

_RAW_LIMIT = 4 << 30
_LEFT_OUT = frozenset(
    {".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", ".tox", ".nox", ".eggs"}
    | {".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", ".ipynb_checkpoints"}
)
_NAMED = 3


def write_package(plan: Plan, blueprint: RunBlueprint, target: Path) -> None:
    """Pack the project of `plan` with the run's blueprint into `target`; equal projects give equal bytes.

    Raises ConfigurationError when something it needs lies outside of the project, or when it is too large for Ray.
    """
    files = {path: path.stat().st_size for path in dict.fromkeys([*project_files(plan.project), *_needed(plan)])}
    if sum(files.values()) > _RAW_LIMIT:
        raise _too_large(plan.project, files, sum(files.values()))
    travelling = replace(blueprint, project="", experiment_file=_relative(plan.project, blueprint.experiment_file))
    travelling = replace(travelling, database_url="", state_dir="", failpoint=None)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for path in sorted(files):
            _add(archive, path.relative_to(plan.project).as_posix(), path.read_bytes(), path.stat().st_mode)
        _add(archive, BLUEPRINT, msgspec.json.encode(travelling), 0o644)
    if target.stat().st_size >= PACKAGE_LIMIT:
        raise _too_large(plan.project, files, target.stat().st_size)


def read_blueprint(project: Path) -> RunBlueprint:
    """The blueprint of an unpacked project. Raises ConfigurationError when there is none."""
    try:
        data = (project / BLUEPRINT).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{project} holds no shipped run: {error.strerror}") from error
    found = msgspec.json.decode(data, type=RunBlueprint)
    return replace(found, project=str(project), experiment_file=str(project / found.experiment_file))


def project_files(project: Path) -> Iterator[Path]:
    """Every file of the project but repositories, environments and caches; links to files count as files."""
    for folder, folders, names in os.walk(project):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT)
        yield from (path for path in (Path(folder, name) for name in sorted(names)) if path.is_file())


def _needed(plan: Plan) -> Iterator[Path]:
    """Files that the plan names, wherever they lie. Raises ConfigurationError for one that can't be shipped."""
    paths = [*plan.files.values(), *(file for record in plan.datasets for file in record.files)]
    for path in paths:
        if not path.is_relative_to(plan.project):
            raise ConfigurationError(f"{path} lies outside of the project {plan.project} and can't be shipped with it")
        yield path


def _relative(project: Path, path: str) -> str:
    return Path(path).relative_to(project).as_posix()


def _add(archive: zipfile.ZipFile, name: str, data: bytes, mode: int) -> None:
    entry = zipfile.ZipInfo(name)  # with a fixed date, so that the archive depends on content alone
    entry.external_attr = (mode & 0xFFFF) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, data)


def _too_large(project: Path, files: Mapping[Path, int], size: int) -> ConfigurationError:
    largest = sorted(files, key=lambda path: -files[path])[:_NAMED]
    named = ", ".join(f"{path.relative_to(project).as_posix()} ({_mib(files[path])})" for path in largest)
    return ConfigurationError(
        f"the project packs to {_mib(size)} and Ray takes less than {_mib(PACKAGE_LIMIT)} "
        f"(the largest files are {named}): move what no eval needs out of the project"
    )


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"
