"""Task packs of a project: checking and running them, their rates, and repeating what attempts of them wrote."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evalfleet.api.handle import RunHandle
from evalfleet.api.listeners import NOBODY, Listeners
from evalfleet.api.options import CaseFilter, PackRun, SubmitOptions
from evalfleet.api.records import open_run
from evalfleet.api.starting import submit
from evalfleet.clock import SystemClock
from evalfleet.errors import ConfigurationError
from evalfleet.model.ids import sha256
from evalfleet.planning.dataset import Dataset
from evalfleet.planning.discover import discover, find_project
from evalfleet.taskpacks.assignment import Assignment
from evalfleet.taskpacks.pack import TaskPack
from evalfleet.taskpacks.pack_lint import PackFault, assignment_faults, pack_faults
from evalfleet.taskpacks.pack_run import EVIDENCE, GRADED
from evalfleet.taskpacks.rates import PackAttempt, PackRates, pack_rates
from evalfleet.taskpacks.reapply import reapply
from evalfleet.taskpacks.replay import Divergence


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPack:
    """A pack with the id of its eval and its assignments by case id."""

    id: str
    pack: TaskPack
    assignments: dict[str, Assignment]


@dataclass(frozen=True, slots=True, kw_only=True)
class LintedPack:
    """A pack by the id of its eval, how many assignments it has, and what is wrong."""

    id: str
    assignments: int
    faults: tuple[PackFault, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reapplied:
    """A case whose recorded writes were repeated; `divergence` is None when they led to the recorded state."""

    case: int
    arm: str
    eval_id: str
    divergence: Divergence | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmRates:
    """What the attempts of one arm on one pack, by the id of its eval, came to."""

    pack: str
    arm: str
    rates: PackRates


def find_packs(project: Path) -> Sequence[FoundPack]:
    """The packs of the project at or above a folder. Raises DefinitionError, ConfigurationError when there is none."""
    catalog = discover(find_project(project))
    found: list[FoundPack] = []
    for definition in catalog.definitions:
        pack = getattr(definition.body, "__self__", None)
        if isinstance(pack, TaskPack) and isinstance(definition.rows, Dataset):
            found.append(
                FoundPack(id=definition.id, pack=pack, assignments=dict(_assignments(definition.id, definition.rows)))
            )
    if not found:
        raise ConfigurationError(f"no eval below {catalog.project / 'evals'} is made by a TaskPack")
    return found


def lint_packs(project: Path) -> Sequence[LintedPack]:
    """Each pack of a project with everything that is wrong with it and its assignments."""
    return [
        LintedPack(id=found.id, assignments=len(found.assignments), faults=tuple(_faults(found)))
        for found in find_packs(project)
    ]


def _faults(found: FoundPack) -> Iterator[PackFault]:
    yield from pack_faults(found.pack)
    for each in found.assignments.values():
        yield from assignment_faults(found.pack, each)


async def reapply_run(run: str, prefix: str | None = None) -> AsyncIterator[Reapplied]:
    """Repeat the recorded writes of a run's attempts, those of packs as the run's project has them now."""
    async with await open_run(run) as handle:
        info = await handle.info()
        packs = find_packs(Path(info.project))
        known = {name: (found.pack, each) for found in packs for name, each in found.assignments.items()}
        clock = SystemClock()
        async for case, detail in handle.records(CaseFilter(prefix=prefix)):
            if detail is None or case.eval_id not in known or EVIDENCE not in detail.attachments:
                continue
            pack, assignment = known[case.eval_id]
            name = f"replay_{info.id}_{case.ordinal}"
            found = await reapply(pack, assignment, detail.attachments[EVIDENCE], name, clock)
            yield Reapplied(case=case.ordinal, arm=case.arm, eval_id=case.eval_id, divergence=found)


async def run_packs(project: Path, asked: PackRun, listeners: Listeners = NOBODY) -> RunHandle:
    """Run the assignments of a project's packs in this process, as `submit` does of an experiment that says the same.

    That experiment is written below the project's `.evalfleet`, so that the run can be gone on with. Raises
    ConfigurationError for an agent that is none, or a name that no pack begins with, and what `submit` raises.
    """
    packs = find_packs(project)
    root = find_project(project)
    ids = [name for pack in packs for name in (pack.id, *pack.assignments)]
    for name in asked.packs:
        if not any(each.startswith(name) for each in ids):
            known = ", ".join(pack.id for pack in packs)
            raise ConfigurationError(f"no pack or assignment here begins with {name!r}; the packs are {known}")
    text = json.dumps(pack_experiment(asked), indent=1, sort_keys=True) + "\n"
    file = root / ".evalfleet" / "packs" / f"{sha256(text.encode())[:12]}.yaml"
    await asyncio.to_thread(_write, file, text)
    chosen = asked.packs or tuple(pack.id for pack in packs)
    return await submit(file, chosen, SubmitOptions(inline=True), listeners)


def pack_experiment(asked: PackRun) -> dict[str, Any]:
    """The experiment of a run without one: a single arm, `agent`. Raises ConfigurationError for one that is none."""
    arm: dict[str, Any] = {"adapter": "python", "entry": asked.agent}
    if asked.agent.lstrip().startswith("{"):
        try:
            arm = json.loads(asked.agent)
        except ValueError as error:
            raise ConfigurationError(f"the agent is no JSON object: {error}") from None
    if asked.model is not None:
        arm["model"] = asked.model
    return {"schema_version": 1, "name": "pack-run", "arms": {"agent": arm}, "repetitions": asked.repetitions}


async def rate_packs(run: str) -> Sequence[ArmRates]:
    """How often each arm of a run got each of its packs wrong, and in which way. Raises ConfigurationError without."""
    found: dict[tuple[str, str], list[PackAttempt]] = {}
    async with await open_run(run) as handle:
        async for case, detail in handle.records(CaseFilter()):
            if detail is None or EVIDENCE not in detail.attachments:
                continue
            attempt = PackAttempt(
                eval_id=case.eval_id,
                evidence=detail.attachments[EVIDENCE],
                graders=detail.attachments.get(GRADED),
                code=case.code,
            )
            found.setdefault((case.eval_id.rpartition("/")[0], case.arm), []).append(attempt)
    if not found:
        raise ConfigurationError(f"run {run} has no settled attempt of a Task pack")
    return [ArmRates(pack=pack, arm=arm, rates=pack_rates(attempts)) for (pack, arm), attempts in sorted(found.items())]


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")


def _assignments(eval_id: str, rows: Dataset) -> Iterator[tuple[str, Assignment]]:
    for row in rows.rows():
        value = rows.decode(row.data)
        yield f"{eval_id}/{row.id}", value if isinstance(value, Assignment) else Assignment.model_validate(value)
