"""Repeats the recorded writes of an attempt on its snapshot, without its agent: the trace must lead where it led."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalfleet.errors import describe
from evalfleet.ports import Clock
from evalfleet.taskpacks.assignment import Assignment
from evalfleet.taskpacks.diff import Actor
from evalfleet.taskpacks.model_responder import RecordedUser
from evalfleet.taskpacks.pack import TaskPack
from evalfleet.taskpacks.replay import Divergence, divergence, to_reapply, unrepeatable
from evalfleet.taskpacks.responder import Responder, Script
from evalfleet.taskpacks.trace import CallTrace, TraceLine, read_lines
from evalfleet.taskpacks.world import World

#: What a divergence before the first call is said to be of.
_RESET, _END = "reset", "the end"


async def reapply(
    pack: TaskPack, assignment: Assignment, evidence: Mapping[str, Any], name: str, clock: Clock
) -> Divergence | None:
    """Where the repeated calls leave the recorded ones, None when they lead to the same state.

    `evidence` is what the attempt attached, `name` a place of its own. Raises AttemptFailure when the store breaks.
    """
    trace = read_lines(evidence["trace"])
    if (unknown := unrepeatable(trace)) is not None:
        return unknown
    async with pack.world(name, name, assignment, clock, _responder(assignment, trace)) as (world, restored):
        recorded = evidence["manifest"]["snapshot_id"]
        if restored.snapshot_id != recorded:
            return Divergence(0, _RESET, f"the snapshot is {restored.snapshot_id}, recorded is {recorded}")
        for line in to_reapply(trace):
            found = await _repeat(world, line)
            if found is not None:
                return found
        world.check()
        return _ends_elsewhere(len(trace.calls), evidence["state"], (await world.state()).digest)


def _responder(assignment: Assignment, trace: CallTrace) -> Responder:
    """Who answers in a replay: the script of today, or what the user's model said then."""
    if assignment.user is None:
        return Script(assignment.script)
    return RecordedUser(assignment.user, [line.arguments for line in trace.calls if line.actor is Actor.RESPONDER])


async def _repeat(world: World, line: TraceLine) -> Divergence | None:
    """Do it again, and hold how it ended against the record."""
    before, problem = len(world.trace.calls), ""
    try:
        if line.actor is Actor.RESPONDER:
            await world.reply(line.arguments["asked"])
        else:
            await world.call(line.tool, line.arguments)
    except Exception as error:  # noqa: BLE001 - whatever a tool of today raises, it differs from the record
        problem = describe(error)
    calls = world.trace.calls
    if len(calls) == before:
        return Divergence(line.step, line.tool, problem)
    return divergence(line, calls[-1])


def _ends_elsewhere(step: int, state: Mapping[str, Any] | None, digest: str) -> Divergence | None:
    if state is None or state["after_digest"] == digest:
        return None
    return Divergence(step, _END, f"the state is {digest}, recorded is {state['after_digest']}")
