"""A package of somebody else's: an adapter and a sandbox backend, both `rude`, that misbehave as they are told.

The adapter is told by its option `does`, the sandbox by the image that is asked of it.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from tests.acceptance.cli.conftest import Orchestrate

ENTRY_POINTS = """
[evalfleet.adapters]
rude = rude_package:adapter
broken = rude_package:no_such_name

[evalfleet.sandboxes]
rude = rude_package:sandbox
"""

SOURCE = """
import asyncio

from pydantic import BaseModel, ConfigDict

from evalfleet import COMPLETE_COVERAGE, Turn, Usage
from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.ports import AgentIdentity


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    does: str


class Session:
    def __init__(self, does):
        self.does = does

    async def send(self, turn, ctx):
        if self.does == "raises":
            raise ZeroDivisionError("broken on order")
        if self.does == "cancels itself":
            raise asyncio.CancelledError
        if self.does == "hangs":
            await asyncio.sleep(60)
        if self.does == "returns a number":
            return 5
        return Turn(reply="yes", usage=Usage(input_tokens=1, output_tokens=1))

    async def close(self):
        if self.does == "does not close":
            raise ZeroDivisionError("broken on order")
        if self.does == "cancels its closing":
            raise asyncio.CancelledError


class Adapter:
    sandboxed = False

    def __init__(self, does):
        self.does = does
        self.coverage = {"events": "complete"} if does == "declares nothing" else COMPLETE_COVERAGE

    async def open(self, ctx):
        if self.does == "does not open":
            raise ZeroDivisionError("broken on order")
        return Session(self.does)

    async def close(self): ...


class AdapterFactory:
    name = "rude"
    options = Options

    def identify(self, arm):
        return AgentIdentity(version="1", digest=arm.options.does)

    def build(self, arm):
        return Adapter(arm.options.does)


class Sandbox:
    id = workdir = "/nowhere"

    def __init__(self, does):
        self.does = does

    async def run(self, command):
        raise AttemptFailure(FailureKind.SANDBOX, "SANDBOX_CLOSED", "it is closed already")

    async def close(self):
        if self.does == "does-not-close":
            raise ZeroDivisionError("broken on order")
        if self.does == "stays-behind":
            raise AttemptFailure(FailureKind.SANDBOX, "SANDBOX_CLEANUP_FAILED", "a mount is busy")

    async def probe(self): ...

    read = write = upload = download = run


class Provider:
    name = "rude"
    isolates = outlives = False

    async def check(self): ...

    async def create(self, spec, owner):
        if spec.image == "does-not-start":
            raise ZeroDivisionError("broken on order")
        if spec.image == "is-there-already":
            raise AttemptFailure(FailureKind.SANDBOX, "SANDBOX_EXISTS", f"{owner} has one")
        return Sandbox(spec.image)

    async def found(self):
        return []

    async def close(self): ...


class SandboxFactory:
    name = "rude"

    def build(self, place):
        return Provider()


adapter, sandbox = AdapterFactory(), SandboxFactory()
"""


def with_other_package(orchestrate: Orchestrate, folder: Path) -> Orchestrate:
    """The command where that package is installed."""
    described = folder / "rude_package-1.0.dist-info"
    described.mkdir()
    (folder / "rude_package.py").write_text(SOURCE, encoding="utf-8")
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: rude-package\nVersion: 1.0\n", encoding="utf-8")
    (described / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
    path = os.pathsep.join(filter(None, [str(folder), orchestrate.environment.get("PYTHONPATH")]))
    return dataclasses.replace(orchestrate, variables={"PYTHONPATH": path})
