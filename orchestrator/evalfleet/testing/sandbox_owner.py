"""`python -m evalfleet.testing.sandbox_owner FILE FUNCTION STATE OWNER SECONDS [IMAGE]`: made to be killed.

Opens the provider that a module's function makes, has one sandbox of it with a process `sleep SECONDS`, says
`ready`, and waits.
"""

from __future__ import annotations

import asyncio
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from evalfleet.model.definition import SandboxSpec
from evalfleet.sandbox_ports import Command
from evalfleet.testing.sandbox_subject import MakeProvider


def load(file: Path, function: str) -> MakeProvider:
    """The function of a module's file. Raises ImportError, AttributeError."""
    spec = spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python module")
    module = sys.modules[file.stem] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, function)


async def own(make: MakeProvider, state: Path, owner: str, seconds: str, image: str | None) -> None:
    async with make(state) as provider:
        sandbox = await provider.create(SandboxSpec(image=image), owner)
        await sandbox.run(Command(argv=("sh", "-c", f"setsid sleep {seconds} &")))
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    file, function, state, owner, seconds, *image = sys.argv[1:]
    asyncio.run(own(load(Path(file), function), Path(state), owner, seconds, image[0] if image else None))
