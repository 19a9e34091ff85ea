"""Kill a worker, the coordinator or the driver of a real run with SIGKILL, and count what came of it.

`python -m tests.acceptance.kill.drill --kind worker --seeds 0-19` prints one line a drill and exits with 1 when a
case was lost, settled twice or run again without need. `docs/drills.md` says what is killed, when and how.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from evalfleet.settings import Settings
from evalfleet.store.opening import open_store
from tests.acceptance.kill.command import Command, Surroundings
from tests.acceptance.kill.figures import Figures, first_start_beyond, read_figures
from tests.acceptance.kill.processes import COORDINATOR, WORKER, Tree, descendants
from tests.acceptance.kill.project import Project, Start, quick_agent

KINDS = ("worker", "coordinator", "driver")
#: Which failpoints kill which process; the driver is killed the moment that one of them fired.
FAILPOINTS = {
    "worker": ("during_seal",),
    "coordinator": ("before_copy", "after_copy", "after_commit", "before_reply", "during_claim"),
    "driver": ("before_copy", "after_copy", "after_commit", "before_reply", "during_claim", "during_seal"),
}
PLACES = FAILPOINTS["driver"]
WORKERS, LANES = 2, 20
CASES = 2000
#: Seconds after the end in which every process of a run has to be gone.
LINGER = 5.0
#: `resume` may find the dead run still held, or die in its own claim.
RESUMES = 3


@dataclass(frozen=True)
class Plan:
    """One drill. `fraction` of the measured run passes before the kill, or before the failpoint is armed; `choice`
    says which of several processes dies. With `whole` the run is measured from its creation, not its first start.
    """

    kind: str
    fraction: float
    choice: float
    failpoint: str | None = None
    seed: int = 0
    whole: bool = False

    @classmethod
    def seeded(cls, kind: str, seed: int, failpoint: str | None = None) -> Plan:
        source = random.Random(f"{kind} {seed} {failpoint}")
        # Half of the drivers die anywhere between the run's creation and the command's end, half among the work.
        whole = kind == "driver" and failpoint is None and seed % 2 == 1
        return cls(kind, source.random(), source.random(), failpoint, seed, whole)

    @property
    def where(self) -> str:
        return self.failpoint or f"seed {self.seed}{'*' if self.whole else ''}"


@dataclass(frozen=True)
class Lab:
    """Where drills happen. `seconds` is how long an undisturbed run takes from its first to its last start, `whole`
    from its creation to the end of the command."""

    folder: Path
    url: str
    surroundings: Surroundings
    cases: int = CASES
    workers: int = WORKERS
    lanes: int = LANES
    seconds: float = 0.0
    whole: float = 0.0
    ray: int | None = None

    @property
    def options(self) -> tuple[str, ...]:
        address = () if self.surroundings.address is None else ("--address", self.surroundings.address)
        return ("--json", "--workers", str(self.workers), "--lanes", str(self.lanes), *address)

    def project(self, name: str) -> Project:
        return Project.written(self.folder / name, quick_agent(self.cases, name), concurrency=self.workers * self.lanes)


@dataclass(frozen=True)
class Outcome:
    """What came of one drill. Times in seconds; `left` names processes that outlived the run."""

    plan: Plan
    moment: float | None
    exits: list[int]
    figures: Figures
    starts: list[Start]
    recovery: float | None
    left: list[str]
    took: float
    limit: int

    @property
    def redone(self) -> int:
        return len(self.starts) - len({start.row for start in self.starts})

    def problems(self) -> list[str]:
        """What must not be."""
        found = self.figures.problems()
        if self.redone > self.limit:
            found.append(f"redone: {self.redone} instead of at most {self.limit}; {self.figures.interrupted}")
        if missing := self.figures.total - len({start.row for start in self.starts}):
            found.append(f"settled but never started: {missing}")
        if self.left:
            found.append(f"still alive after {LINGER:.0f} s: {', '.join(self.left)}")
        if self.exits[-1] not in (0, -signal.SIGKILL):  # a killed one whose run is not complete is a problem above
            found.append(f"the last command ended with {self.exits[-1]}")
        return found

    def line(self) -> str:
        """One row of the table."""
        cells = (
            self.plan.kind,
            self.plan.where,
            "too late" if self.moment is None else f"{self.moment:.1f} s",
            ", ".join(map(str, self.exits)),
            self.figures.settled,
            len(self.starts),
            f"{self.redone} ≤ {self.limit}",
            self.figures.lost,
            self.figures.doubled,
            "-" if self.recovery is None else f"{self.recovery:.1f} s",
            len(self.left),
            f"{self.took:.0f} s",
        )
        return "| " + " | ".join(f"{cell!s:>{width}}" for cell, width in zip(cells, WIDTHS, strict=True)) + " |"


COLUMNS = {
    "killed": 11,
    "where": 12,
    "after": 8,
    "exit": 6,
    "settled": 7,
    "executed": 8,
    "redone": 7,
    "lost": 4,
    "doubled": 7,
    "recovery": 8,
    "leftovers": 9,
    "took": 5,
}
WIDTHS = tuple(COLUMNS.values())
HEADER = (
    "| " + " | ".join(f"{name:>{width}}" for name, width in COLUMNS.items()) + " |\n"
    "|" + "|".join("-" * (width + 1) + ":" for width in WIDTHS) + "|"
)


class Drill:
    """One run of `orchestrate submit`, its kill and what it takes to finish the run."""

    def __init__(self, lab: Lab, plan: Plan) -> None:
        self._lab = lab
        self._plan = plan
        self._project = lab.project(f"{plan.kind}-{plan.failpoint or 'at'}-{plan.seed}")
        self._armed = self._project.folder / "armed"
        self._fired = self._armed / "fired"
        self._struck_at: float | None = None
        self._epoch = 0

    async def run(self) -> Outcome:
        """Run, kill, resume where needed, and count."""
        began = time.monotonic()
        before = self._cluster()
        command = await self._start("submit", "experiment.yaml")
        tree = Tree(command.pid, *([self._lab.ray] if self._lab.ray else []), without=before)
        async with _looking(tree):
            run = await command.run_id()
            created_at = time.time()
            await self._strike(command, tree, created_at)
            if self._struck_at is not None:
                self._epoch = (await read_figures(self._lab.url, run)).epoch
            exits = [await command.ended()]
            left, since = await asyncio.gather(tree.gone(LINGER), self._resume(run, exits))
        starts = self._project.starts()
        zero = created_at if self._plan.whole or not starts else starts[0].at
        return Outcome(
            self._plan,
            moment=None if self._struck_at is None else self._struck_at - zero,
            exits=exits,
            figures=await read_figures(self._lab.url, run),
            starts=starts,
            recovery=await self._recovery(run, since, starts),
            left=left,
            took=time.monotonic() - began,
            limit=self._limit(),
        )

    def _limit(self) -> int:
        """How many cases may be started twice: those in flight where something died that runs them."""
        every = self._lab.workers * self._lab.lanes
        return {"driver": every, "worker": self._lab.lanes, "coordinator": 0}[self._plan.kind]

    def _cluster(self) -> frozenset[psutil.Process]:
        """What belongs to the Ray that is joined, not to this run."""
        return frozenset() if self._lab.ray is None else frozenset(descendants(self._lab.ray))

    async def _start(self, *arguments: str) -> Command:
        armed = {} if self._plan.failpoint is None else {"EVALFLEET_FAILPOINT": f"{self._plan.failpoint}@{self._fired}"}
        return await Command.started(
            self._lab.surroundings, self._project.folder, *arguments, *self._lab.options, env=armed
        )

    # --- the kill ---------------------------------------------------------------------------------------------

    async def _strike(self, command: Command, tree: Tree, created_at: float) -> None:
        """Wait for the moment, then kill, or let the failpoint do it. Nothing is killed once the run is over."""
        plan = self._plan
        if plan.whole:
            at = created_at + plan.fraction * self._lab.whole
        else:
            await _until(lambda: self._project.started() > 0 or command.over)
            first = next(iter(self._project.starts()), None)
            at = 0.0 if first is None else first.at + plan.fraction * self._lab.seconds
        await _until(lambda: time.time() >= at or command.over)
        if command.over:
            return
        if plan.failpoint is not None:
            self._armed.mkdir()
        # The first claim is through by now: the one that fails is that of the restart, or of the resumed run.
        if plan.failpoint not in (None, "during_claim") and not await self._fires(command):
            return
        if plan.failpoint in (None, "during_claim") or plan.kind == "driver":
            self._kill(self._victim(command, tree))

    async def _fires(self, command: Command) -> bool:
        await _until(lambda: self._fired.exists() or command.over)
        if not self._fired.exists():
            return False
        self._struck_at = time.time()
        return True

    def _victim(self, command: Command, tree: Tree) -> int | None:
        if self._plan.kind == "driver":
            return command.pid
        found = tree.find(WORKER if self._plan.kind == "worker" else COORDINATOR)
        return found[int(self._plan.choice * len(found))].pid if found else None

    def _kill(self, pid: int | None) -> None:
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self._struck_at = time.time()

    # --- what follows -----------------------------------------------------------------------------------------

    async def _resume(self, run: str, exits: list[int]) -> float:
        """Resume a run whose driver died until it is complete; when its recovery began."""
        since = time.time()
        while self._plan.kind == "driver" and exits[-1] != 0 and len(exits) <= RESUMES:
            if (await read_figures(self._lab.url, run)).status == "completed":
                break  # it died after the end
            command = await self._start("resume", run)
            exits.append(await command.ended())
        return since if self._plan.kind == "driver" else self._struck_at or since

    async def _recovery(self, run: str, since: float, starts: Sequence[Start]) -> float | None:
        """Seconds until work began that someone new granted or runs."""
        if self._struck_at is None:
            return None
        if self._plan.kind != "worker":
            fresh = await first_start_beyond(self._lab.url, run, self._epoch)
        else:
            known = {start.pid for start in starts if start.at <= self._struck_at}
            fresh = min((start.at for start in starts if start.pid not in known), default=None)
        return None if fresh is None else fresh - since


async def _until(happened: Callable[[], bool]) -> None:
    """Wait for what other processes do; nobody tells us, so this looks every few milliseconds."""
    while True:
        if happened():
            return
        await asyncio.sleep(0.003)


@contextlib.asynccontextmanager
async def _looking(tree: Tree) -> AsyncGenerator[None]:
    task = asyncio.create_task(tree.keep_looking())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def measured(lab: Lab) -> Lab:
    """The lab with what a run takes there that nobody disturbs."""
    project = lab.project("undisturbed")
    command = await Command.started(lab.surroundings, project.folder, "submit", "experiment.yaml", *lab.options)
    run = await command.run_id()
    created = time.monotonic()
    code = await command.ended()
    whole = time.monotonic() - created
    figures, starts = await read_figures(lab.url, run), project.starts()
    problems = figures.problems()
    assert code == 0 and not problems and len(starts) == lab.cases, (code, problems, len(starts), command.said)
    return replace(lab, seconds=max(s.at for s in starts) - min(s.at for s in starts), whole=whole)


def plans(kinds: Sequence[str], seeds: Sequence[int], failpoints: Sequence[str]) -> list[Plan]:
    """Every drill that was asked for: each kind at each seed's moment, then at each of its failpoints."""
    chosen: list[Plan] = []
    for kind in kinds:
        chosen += [Plan.seeded(kind, seed) for seed in seeds]
        chosen += [Plan.seeded(kind, 0, place) for place in FAILPOINTS[kind] if place in failpoints]
    return chosen


async def drill_all(folder: Path, chosen: Sequence[Plan], cases: int, tell: Callable[[str], None]) -> list[str]:
    """Carry the drills out one after the other over one embedded record store; every problem found."""
    problems: list[str] = []
    home = folder / "home"
    async with open_store(Settings(state_dir=home, artifacts=str(home / "artifacts"))) as url:
        lab = await measured(Lab(folder, url, Surroundings(home), cases))
        tell(f"undisturbed: {lab.seconds:.1f} s from the first start to the last, {lab.whole:.1f} s in all\n")
        tell(HEADER)
        for plan in chosen:
            outcome = await Drill(lab, plan).run()
            tell(outcome.line())
            found = [f"{plan.kind} {plan.where}: {problem}" for problem in outcome.problems()]
            for problem in found:
                tell(f"PROBLEM {problem}")
            problems += found
    return problems


def _seeds(text: str) -> list[int]:
    """`0-19` or `3,7`; nothing for none."""
    chosen: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        chosen += range(int(first), int(last or first) + 1)
    return chosen


def main() -> int:
    parser = argparse.ArgumentParser(description="kill processes of real runs and count what comes of it")
    parser.add_argument("--kind", choices=(*KINDS, "all"), default="all")
    parser.add_argument("--seeds", type=_seeds, default="0-19", help="random moments: 0-19, or 3,7, or '' for none")
    parser.add_argument("--failpoints", default=",".join(PLACES), help="places in the code, or '' for none")
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave projects, output and record store there")
    given = parser.parse_args()
    chosen = plans(KINDS if given.kind == "all" else (given.kind,), given.seeds, given.failpoints.split(","))

    def tell(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    with contextlib.ExitStack() as stack:
        folder = given.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="drill-")))
        problems = asyncio.run(drill_all(folder.absolute(), chosen, given.cases, tell))
    tell(f"\n{len(chosen)} drills, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
