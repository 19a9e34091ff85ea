"""What a person's shell in a kept sandbox finds of the spec's environment: all but the secrets. Blocking."""

from __future__ import annotations

from pathlib import Path

from pydantic import TypeAdapter

from evalfleet.model.definition import SandboxSpec

#: In the directory of a sandbox that has one.
NAME = "environment.json"
_VARIABLES = TypeAdapter(dict[str, str])


def leave_environment(file: Path, spec: SandboxSpec) -> None:
    """Write down what may be shown again of the environment of all commands."""
    file.write_bytes(_VARIABLES.dump_json({name: text for name, text in spec.env.items() if name not in spec.env_from}))


def left_environment(file: Path) -> dict[str, str]:
    """What was written down; nothing where nothing was, or somebody wrote something else."""
    try:
        return _VARIABLES.validate_json(file.read_bytes(), strict=True)
    except (OSError, ValueError):
        return {}
