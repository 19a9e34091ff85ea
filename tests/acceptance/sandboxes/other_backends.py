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
"""

SOURCE = '''
import asyncio

from evalfleet.errors import ConfigurationError


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


absent, stubborn = Factory("absent"), Factory("stubborn")
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
    """The command where that package is installed."""
    described = folder / "odd_backends-1.0.dist-info"
    described.mkdir()
    (folder / "odd_backends.py").write_text(SOURCE, encoding="utf-8")
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: odd-backends\nVersion: 1.0\n", encoding="utf-8")
    (described / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
    path = os.pathsep.join(filter(None, [str(folder), orchestrate.environment.get("PYTHONPATH")]))
    return dataclasses.replace(orchestrate, variables={**orchestrate.variables, "PYTHONPATH": path})
