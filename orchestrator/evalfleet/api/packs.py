"""Task packs of a project: checking them before anything runs, and repeating what attempts of them wrote."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from evalfleet.api.options import CaseFilter
from evalfleet.api.records import open_run
from evalfleet.clock import SystemClock
from evalfleet.errors import ConfigurationError
from evalfleet.planning.dataset import Dataset
from evalfleet.planning.discover import discover, find_project
from evalfleet.taskpacks.assignment import Assignment
from evalfleet.taskpacks.pack import TaskPack
from evalfleet.taskpacks.pack_lint import PackFault, assignment_faults, pack_faults
from evalfleet.taskpacks.pack_run import EVIDENCE
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


def _assignments(eval_id: str, rows: Dataset) -> Iterator[tuple[str, Assignment]]:
    for row in rows.rows():
        value = rows.decode(row.data)
        yield f"{eval_id}/{row.id}", value if isinstance(value, Assignment) else Assignment.model_validate(value)
