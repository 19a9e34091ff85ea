"""A package of somebody else's with sandbox backends that don't work, hang, or leave what they made behind."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from tests.acceptance.cli.conftest import Orchestrate

ENTRY_POINTS = """
[evalfleet.sandboxes]
absent = odd_backends:absent
stubborn = odd_backends:stubborn
lasting = odd_backends:lasting
"""

SOURCE = '''
import asyncio
import json
import os
from pathlib import Path

from evalfleet.errors import ConfigurationError
from evalfleet.sandbox_ports import FoundSandbox


class Deaf:
    """A sandbox whose commands never end, whatever they are told."""

    id = workdir = "/nowhere"
    tree = None

    async def run(self, command):
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                pass

    async def probe(self): ...
    async def close(self): ...


class Provider:
    isolates = outlives = False

    def __init__(self, name):
        self.name = name

    async def check(self):
        if self.name == "absent":
            raise ConfigurationError("there is no engine `absent` here: install it")

    async def create(self, spec, owner):
        return Deaf()

    async def found(self):
        return []

    async def reap(self, sandbox): ...
    async def close(self): ...


class Factory:
    def __init__(self, name):
        self.name = name

    def build(self, place):
        return Provider(self.name)


class Lasting(Deaf):
    """A sandbox that is a file of an engine: it stays when its maker dies."""

    def __init__(self, file):
        self.file = file
        self.id = file.name

    async def close(self):
        self.file.unlink(missing_ok=True)


class LastingProvider(Provider):
    """The engine is the folder that DOCKER_HOST names; an image `slow` is made at once and reported an hour later."""

    outlives = True

    def __init__(self, place):
        super().__init__("lasting")
        self.engine = Path(place.environment["DOCKER_HOST"])
        self.labels = dict(place.labels)

    async def create(self, spec, owner):
        self.engine.mkdir(exist_ok=True)
        file = self.engine / owner.replace("/", "-")
        file.write_text(json.dumps({**self.labels, "owner": owner}))
        if spec.image == "slow":
            await asyncio.sleep(3600)
        return Lasting(file)

    async def found(self):
        found = []
        for file in sorted(self.engine.glob("*")):
            labels = json.loads(file.read_text())
            owner, host, pid = labels["owner"], labels["host"], int(labels["pid"])
            created = file.stat().st_mtime
            found.append(FoundSandbox(id=file.name, owner=owner, host=host, pid=pid, created_at=created, alive=None))
        return found

    async def reap(self, sandbox):
        (self.engine / sandbox.id).unlink(missing_ok=True)


class LastingFactory:
    name = "lasting"

    def build(self, place):
        return LastingProvider(place)


absent, stubborn, lasting = Factory("absent"), Factory("stubborn"), LastingFactory()
'''

AGENT = """
from evalfleet import COMPLETE_COVERAGE, Turn, sandbox_agent
from evalfleet.sandbox_ports import Command

@sandbox_agent(coverage=COMPLETE_COVERAGE)
async def worker(turn, ctx):
    done = await ctx.sandbox.run(Command(argv=("sh", "-c", turn.text)))
    return Turn(reply=done.text)
"""


def with_backends(orchestrate: Orchestrate, folder: Path) -> Orchestrate:
    """The command where that package is installed, with an engine of its own."""
    described = folder / "odd_backends-1.0.dist-info"
    described.mkdir()
    (folder / "odd_backends.py").write_text(SOURCE, encoding="utf-8")
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: odd-backends\nVersion: 1.0\n", encoding="utf-8")
    (described / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
    path = os.pathsep.join(filter(None, [str(folder), orchestrate.environment.get("PYTHONPATH")]))
    return dataclasses.replace(orchestrate, variables={**orchestrate.variables, **_variables(folder, path)})


def _variables(folder: Path, path: str) -> dict[str, str]:
    return {"PYTHONPATH": path, "DOCKER_HOST": str(folder / "engine")}
