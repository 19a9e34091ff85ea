"""One attempt of a Task pack: the agent and the responder in turn, then the graders on the evidence that is left."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evalfleet.assertions.criteria import Check
from evalfleet.execution.context import T
from evalfleet.execution.ledger import GROUPS, Entry
from evalfleet.execution.turn_handle import TurnHandle
from evalfleet.model.events import OperationStatus
from evalfleet.taskpacks.assignment import Assignment, GoldPoint
from evalfleet.taskpacks.case_store import Restored
from evalfleet.taskpacks.diff import Actor
from evalfleet.taskpacks.graders import (
    GraderResult,
    GraderStatus,
    PointEvidence,
    PointGrader,
    Reading,
    broke,
    grade,
)
from evalfleet.taskpacks.passed import GraderPasses, StateIsClean
from evalfleet.taskpacks.policy import Allowed
from evalfleet.taskpacks.reader import Point, Reader, read_point
from evalfleet.taskpacks.replay import Manifest
from evalfleet.taskpacks.world import INVALID_ARGUMENTS, UNKNOWN_TOOL, World

#: The documents that an attempt of a pack attaches: what happened, and what the graders say of it.
EVIDENCE, GRADED = "taskpack", "graders"

Document = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestJudge:
    """Has the eval's judge grade the request: `rubric` says what a good one is, `minimum` how good is good enough."""

    rubric: str
    minimum: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Grading:
    """How the evidence is graded. `requirements` maps each id to the names it goes by in a text."""

    graders: Mapping[str, PointGrader]
    requirements: Mapping[str, tuple[str, ...]]
    judge: RequestJudge | None = None


@dataclass(slots=True)
class Work:
    """What an attempt has gathered so far."""

    world: World
    manifest: Manifest
    restored: Restored
    points: list[Point] = field(default_factory=list[Point])
    state: Document | None = None

    def document(self) -> Document:
        """All of it as JSON: what graders, people and replays need."""
        trace = self.world.trace
        return {
            "manifest": self.manifest.document(),
            "restored": self.restored.document(),
            "points": [point.document() for point in self.points],
            "trace": [call.document() for call in trace.calls],
            "results": dict(self.world.results),
            "unfinished": [call.step for call in trace.unfinished],
            "state": self.state,
            "responder": self.world.responder.document(),
        }


async def converse(t: T, work: Work, assignment: Assignment, reader: Reader, policy: Sequence[Allowed]) -> Document:
    """Let the agent work until it asks for nothing more, and hold what changed against the policy.

    What was gathered is attached after every turn, so that an attempt that breaks leaves it behind.
    """
    t.use_tools(work.world.tools)
    said = assignment.prompt
    try:
        for turn in range(1, assignment.max_turns + 1):
            work.world.turn = turn
            handle = await t.send(said)
            work.world.check()
            if not work.world.by_mcp:  # whose server saw them, and whose agent has tools of its own
                await _trace_refused(work.world, handle)
            point = Point(turn, said, reader(_calls(work.world, turn)))
            work.points.append(point)
            t.attach(EVIDENCE, work.document())
            if not point.reading.requested or not assignment.is_answered or turn == assignment.max_turns:
                break
            heard = point.reading.message or t.author.state.turns[-1].reply or ""
            said = (await work.world.reply(point.reading.requested, heard)).rule.reply
        await work.world.end()
        work.world.check()
        work.state = (await work.world.examine(policy)).document()
    except Exception:
        t.attach(EVIDENCE, work.document())
        raise
    found = work.document()
    t.attach(EVIDENCE, found)
    return found


async def say_again(t: T, evidence: Document) -> None:
    """Repeat to a recorded agent what it was told."""
    for point in evidence["points"]:
        await t.send(point["said"])


async def judge(t: T, assignment: Assignment, evidence: Document, grading: Grading) -> None:
    """Register the assertions: each grader at each decision point with a gold, and the state.

    A grader that does not apply registers none.
    """
    points = [read_point(each) for each in evidence["points"]]
    results: list[Document] = []
    for gold in sorted(assignment.gold, key=lambda point: point.at or assignment.max_turns + 1):
        point = _point_at(points, gold)
        seen = PointEvidence(gold.gold, point.reading, grading.requirements)
        for name, grader in grading.graders.items():
            result = await _graded(t, name, grader, seen)
            results.append({**result.document(), "at": gold.at})
            if result.status is not GraderStatus.NOT_APPLICABLE:
                _register(t, result, gold, point, grading.judge)
    _assert(t, "state", Check(StateIsClean()), evidence["state"])
    t.attach(GRADED, results)


async def _graded(t: T, name: str, grader: PointGrader, seen: PointEvidence) -> GraderResult:
    """What a grader says in the time that evaluating takes at most; one that hangs is an error of its own."""
    services = t.author.state.services
    limit = services.patience.evaluation
    try:
        async with asyncio.timeout(limit):
            return await services.threads.run(lambda: grade(name, grader, seen))
    except TimeoutError:
        return broke(name, f"it took longer than {limit:g} s")


def _register(t: T, result: GraderResult, gold: GoldPoint, point: Point, asked: RequestJudge | None) -> None:
    name = result.grader if gold.at is None else f"{result.grader}@{gold.at}"
    if result.grader == "request" and asked is not None:
        material = {"gaps": ", ".join(sorted(gold.unmet)), "requested": ", ".join(point.reading.requested)}
        handle = t.judge.rubric(asked.rubric, input=point.said, output=point.reading.message, material=material)
        handle.gate(asked.minimum).label(name).key(name)
    else:
        _assert(t, name, Check(GraderPasses(result.grader)), result.document())


def _assert(t: T, name: str, criterion: Check, value: Document) -> None:
    """Register an assertion that stands where the eval was made of the pack."""
    place = t.author.state.job.definition.place
    where = ("", 0) if place is None else (str(place.file), place.line)
    t.author.ledger.keep(Entry(name, criterion, value, GROUPS.get(), where, key=name))


def _point_at(points: Sequence[Point], gold: GoldPoint) -> Point:
    """The decision point of a gold; an agent that never came that far said nothing there."""
    if gold.at is None:
        return points[-1]
    return next((point for point in points if point.turn == gold.at), Point(gold.at, "", Reading()))


def _calls(world: World, turn: int) -> list[Any]:
    return [call for call in world.trace.calls if call.turn == turn and call.actor is Actor.AGENT]


async def _trace_refused(world: World, handle: TurnHandle[Any]) -> None:
    """Trace the failed calls that never reached a tool: of a name that is none, or with arguments that are no JSON."""
    known = {tool.name for tool in world.tools}
    for call in handle.tool_calls:
        if call.status is OperationStatus.FAILED and call.name not in known:
            await world.refused(call.name, call.input, UNKNOWN_TOOL)
        elif call.status is OperationStatus.FAILED and isinstance(call.input, str):
            await world.refused(call.name, call.input, INVALID_ARGUMENTS)
