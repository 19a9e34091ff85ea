"""`TaskPack`: what an eval file says to make Evals of assignments, or to open the world of one in a body of its own."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Unpack, cast

from evalfleet.errors import AuthoringError
from evalfleet.execution.context import T
from evalfleet.execution.state import AttemptState
from evalfleet.execution.unrecorded import NotRecorded
from evalfleet.model.canonical import digest
from evalfleet.model.definition import EvalDefinition, SourcePlace
from evalfleet.planning.dataset import Dataset
from evalfleet.planning.define import EvalOptions, define_eval
from evalfleet.ports import Clock
from evalfleet.taskpacks.assignment import Assignment
from evalfleet.taskpacks.case_store import CaseBackend, CaseStore, Restored, keep_state
from evalfleet.taskpacks.graders import SUFFICIENCY, PointGrader
from evalfleet.taskpacks.model_responder import ModelResponder, UserModel
from evalfleet.taskpacks.owned_folder import OwnedFolder
from evalfleet.taskpacks.pack_run import EVIDENCE, Grading, RequestJudge, Work, converse, judge, say_again
from evalfleet.taskpacks.pack_tool import PackTool
from evalfleet.taskpacks.policy import Allowed
from evalfleet.taskpacks.reader import Reader
from evalfleet.taskpacks.replay import Manifest
from evalfleet.taskpacks.responder import Responder, Script
from evalfleet.taskpacks.serving import MCP, serving
from evalfleet.taskpacks.sqlite_cases import SqliteCases
from evalfleet.taskpacks.state import CaseState, Collection, read_state, schema_of
from evalfleet.taskpacks.trace_file import TraceFile
from evalfleet.taskpacks.world import World

#: Where traces lie that nobody asked to keep.
_TRACES = OwnedFolder("evalfleet-trace-")

Policy = Sequence[Allowed] | Callable[[Assignment], Sequence[Allowed]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPack:
    """A case store, tools on it, what may change, and how an attempt is graded.

    `policy` are the allowed changes, or a function of the assignment that gives them. `requirements` maps the ids that
    an agent may ask for to the names they go by in a text, `decisions` are all it may decide. `reader` reads both from
    the tool calls of a turn. `request_judge` has the eval's judge grade the request in place of rules. `backend` is
    where attempts have their records: SQLite files unless it is another. `traces` is a folder in which the trace file
    of every attempt stays. `user_model` plays the users of the assignments that have one.
    """

    name: str
    collections: Sequence[Collection]
    tools: Sequence[PackTool]
    policy: Policy
    requirements: Mapping[str, tuple[str, ...]]
    decisions: Sequence[str]
    reader: Reader
    graders: Mapping[str, PointGrader] = field(default_factory=lambda: SUFFICIENCY)
    request_judge: RequestJudge | None = None
    backend: CaseBackend = field(default_factory=SqliteCases)
    traces: Path | None = None
    user_model: UserModel | None = None

    def evals(self, assignments: Dataset, **options: Unpack[EvalOptions]) -> EvalDefinition:
        """One Eval of many rows; its file is the one that calls this. Raises AuthoringError for a wrong option."""
        if "dataset" in options:
            raise AuthoringError("a pack's rows are the first argument of evals()", "INVALID_OPTION")
        rows = assignments if assignments.model is not None else replace(assignments, model=Assignment)
        options = {**options, "dataset": rows}
        if self.request_judge is not None:
            options.setdefault("judge", True)
        frame = inspect.currentframe()
        caller = None if frame is None else frame.f_back
        place = None if caller is None else SourcePlace(file=Path(caller.f_code.co_filename), line=caller.f_lineno)
        return replace(define_eval(**options)(self.run), place=place, serves=(MCP,))

    async def run(self, t: T, row: Any) -> None:
        """The body: an attempt from its snapshot to its assertions; in a replay, its recorded evidence graded again."""
        assignment = row if isinstance(row, Assignment) else Assignment.model_validate(row)
        evidence = cast("dict[str, Any] | None", t.recorded(EVIDENCE))
        if evidence is None:
            async with self.open(t, assignment) as work:
                evidence = await converse(t, work, assignment, self.reader, self.allowed(assignment))
        elif evidence["state"] is None:
            raise NotRecorded  # it broke before its end, and what broke it stands
        else:
            await say_again(t, evidence)
        await judge(
            t,
            assignment,
            evidence,
            Grading(graders=self.graders, requirements=self.requirements, judge=self.request_judge),
        )

    @asynccontextmanager
    async def open(self, t: T, assignment: Assignment) -> AsyncGenerator[Work]:
        """The world of one attempt, reset to the assignment's snapshot; its records go when the block ends.

        An eval that says `serves=["/mcp"]` has its tools served to the attempt's sandbox meanwhile.
        """
        state = t.author.state
        job, clock = state.job, state.services.clock
        async with (
            self.world(
                f"{job.run}_{job.attempt}", str(job.attempt), assignment, clock, self.responder(assignment, state)
            ) as (world, restored),
            serving(state, world, self.name),
        ):
            state.records = world.records
            yield Work(world, self.manifest(assignment, restored, t.seed), restored)

    @asynccontextmanager
    async def world(
        self, name: str, run_id: str, assignment: Assignment, clock: Clock, responder: Responder | None = None
    ) -> AsyncGenerator[tuple[World, Restored]]:
        """A world that is reset, in a place called `name`; its trace says `run_id`.

        The assignment's script answers unless somebody else is the `responder`.
        """
        state, answering = self.start(assignment), responder or Script(assignment.script)
        folder = self.traces or await asyncio.to_thread(_TRACES.path)
        file = folder / f"{name}.jsonl"
        store = CaseStore(state.schema, await self.backend.open(name), clock)
        try:
            await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
            world = World(store, TraceFile(file, run_id, clock), self.tools, answering)
            yield world, await world.reset(await keep_state(self.backend, state))
        finally:
            await store.close()
            if self.traces is None:
                await asyncio.to_thread(file.unlink, missing_ok=True)

    def responder(self, assignment: Assignment, state: AttemptState) -> Responder:
        """Who answers the agent of an attempt. Raises AuthoringError for a user whom no model plays."""
        if assignment.user is None:
            return Script(assignment.script)
        if self.user_model is None:
            raise AuthoringError(f"{assignment.id} has a user: say TaskPack(user_model=UserModel(…))", "NO_USER_MODEL")
        return ModelResponder(self.user_model, assignment.user, state, self.requirements, self.decisions)

    def start(self, assignment: Assignment) -> CaseState:
        """The state that an assignment starts from. Raises InvalidRecord."""
        return read_state(schema_of(self.collections), assignment.snapshot)

    def allowed(self, assignment: Assignment) -> Sequence[Allowed]:
        """What an attempt of an assignment may change."""
        return self.policy(assignment) if callable(self.policy) else self.policy

    def manifest(self, assignment: Assignment, restored: Restored, seed: int) -> Manifest:
        """What an attempt stands on."""
        tools = [[tool.name, dict(tool.tool.parameters), tool.mutating] for tool in self.tools]
        document = assignment.model_dump(mode="json")
        script = document["script"]
        if assignment.user is None:
            del document["user"]  # so that it is called what it was before there were any
        elif self.user_model is not None:
            script = [document["user"], self.user_model.identity()]
        return Manifest(
            snapshot_id=restored.snapshot_id,
            state_digest=restored.state_digest,
            assignment=digest(document),
            script=digest(script),
            tools=digest(tools),
            graders={name: _named(grader) for name, grader in self.graders.items()},
            seed=seed,
        )


def _named(grader: PointGrader) -> str:
    return f"{getattr(grader, '__module__', '')}.{getattr(grader, '__qualname__', type(grader).__qualname__)}"
