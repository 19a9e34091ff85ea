"""Commands under supervisors, from the request to the result; who made the supervisors is not asked."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from evalfleet import process_protocol
from evalfleet.process_readers import Readers
from evalfleet.process_tree import Tree, ending
from evalfleet.sandbox_ports import Command, CommandResult


@dataclass(frozen=True, slots=True)
class Asked:
    """A command and the request for it."""

    command: Command
    request: bytes


def asked(command: Command, base_env: Mapping[str, str]) -> Asked:
    """Raises OSError for a command that can't be put into a request."""
    if not command.argv:
        raise OSError(errno.EINVAL, "a command needs a program")
    env = {**base_env, **command.env}
    try:
        request = process_protocol.encode_command(command.argv, os.path.abspath(command.cwd or ""), env)
    except UnicodeEncodeError as error:
        raise OSError(errno.EILSEQ, f"not representable as an argument or in the environment: {error}") from error
    return Asked(command, request)


class Commands:
    """Runs commands and knows those of which something is left, each with the group that ends it."""

    def __init__(self) -> None:
        self._trees: dict[Tree, str | None] = {}

    async def run(
        self,
        asked: Asked,
        supervisor: socket.socket,
        readers: Readers,
        keep: Callable[[socket.socket], None],
        group: str | None,
    ) -> CommandResult:
        """See `Spawner.run`. `keep` gets the supervisor back once it is idle, unless it is gone."""
        command = asked.command
        loop = asyncio.get_running_loop()
        started = loop.time()

        def forget(tree: Tree, idle: socket.socket | None) -> None:
            del self._trees[tree]
            if idle is not None:
                keep(idle)

        tree = Tree(readers, supervisor, command.output_limit, forget)
        self._trees[tree] = group
        report: str | None = None
        timed_out = False
        try:
            async with asyncio.timeout(command.timeout):
                await tree.start(asked.request, command.stdin)
                report = await tree.exited
        except TimeoutError:
            timed_out = True
            await tree.end()
        except asyncio.CancelledError:
            await asyncio.shield(tree.end())
            raise
        duration = loop.time() - started
        await (tree.end() if group is None else tree.drain())
        code, number = (None, None) if timed_out else ending(report, command)
        return CommandResult(
            exit_code=code,
            stdout=tree.stdout.kept(),
            stderr=tree.stderr.kept(),
            duration=duration,
            timed_out=timed_out,
            signal=number,
            stdout_bytes=tree.stdout.total,
            stderr_bytes=tree.stderr.total,
        )

    async def end(self, group: str) -> None:
        """Kill what is left of a group's commands."""
        await asyncio.gather(*[tree.end() for tree, member_of in self._trees.items() if member_of == group])

    async def end_all(self) -> None:
        """Kill what is left of any."""
        await asyncio.gather(*[tree.end() for tree in self._trees])
