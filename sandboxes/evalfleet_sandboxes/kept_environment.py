"""What a person's shell in a kept sandbox finds of the environment of its commands: all but the secrets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import TypeAdapter

from evalfleet.model.definition import SandboxSpec

#: In the directory of a sandbox that has one.
NAME = "environment.json"
_VARIABLES = TypeAdapter(dict[str, str])


def written(spec: SandboxSpec, place: Mapping[str, str]) -> str:
    """What may be shown again of the environment of all commands: that of the place, and the spec's over it."""
    shown = {name: text for name, text in spec.env.items() if name not in spec.env_from}
    return _VARIABLES.dump_json({**place, **shown}).decode()


def read(text: str | bytes) -> dict[str, str]:
    """What was written; nothing where somebody wrote something else."""
    try:
        return _VARIABLES.validate_json(text, strict=True)
    except ValueError:
        return {}


def leave_environment(file: Path, spec: SandboxSpec, place: Mapping[str, str] | None = None) -> None:
    """Write it to a file. Blocking."""
    file.write_text(written(spec, place or {}), encoding="utf-8")


def left_environment(file: Path) -> dict[str, str]:
    """What a file has of it; nothing where there is none. Blocking."""
    try:
        return read(file.read_bytes())
    except OSError:
        return {}
