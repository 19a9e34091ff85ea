"""Judging the recorded attempts of a run again, by its evals as they are now and without its agents."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from evalfleet.api.blueprint import RunBlueprint
from evalfleet.api.building import build_grader
from evalfleet.api.handle import RunHandle
from evalfleet.api.judging import default_judge
from evalfleet.api.options import RescoreOptions
from evalfleet.api.session import Session
from evalfleet.collector import spared_collections
from evalfleet.errors import AttemptFailure, ConfigurationError, DefinitionError, Problem
from evalfleet.execution.executor import Executor
from evalfleet.execution.job import AttemptControl
from evalfleet.execution.recorded_line import REPLAY_DIVERGED
from evalfleet.execution.regrade import refused
from evalfleet.model.definition import EvalDefinition
from evalfleet.model.grading import Basis, Regrading, Rescored
from evalfleet.model.judge import JudgeConfig
from evalfleet.model.report import RunInfo
from evalfleet.model.sandbox import DEFAULT_BACKEND, DefaultBackend
from evalfleet.model.verdict import Verdict
from evalfleet.planning.discover import Catalog, discover, find_project
from evalfleet.planning.experiment_file import restore_experiment
from evalfleet.planning.fingerprint import EVALUATION_VERSION, eval_parts
from evalfleet.planning.judge_plan import resolve_judge
from evalfleet.planning.sources import Sources, source_roots
from evalfleet.plugins import adapter_factories
from evalfleet.store.gradings import EncodedRegrading, RecordedAttempt, Regrader
from evalfleet.store.lifecycle import current_user

#: Attempts that are judged at once: their bodies run in this one process.
_LANES = 64


async def rescore(run: str, options: RescoreOptions | None = None) -> tuple[RunHandle, Rescored]:
    """Judge all settled attempts of a run again, and make that its current grading; what came of it, and the run.

    Raises RunHeld while the run is worked on, DefinitionError when its evals are not there or can't be loaded. Nothing
    is kept of a pass that does not come to its end.
    """
    chosen = options or RescoreOptions()
    session = await Session.open()
    try:
        info = await session.reader.find_run(run)
        catalog = discover(_project(info, chosen.evals))
        definitions = _definitions(info, catalog)
        blueprint = _blueprint(info, session, catalog)
        judges = _judges(blueprint, session, definitions)
        grader = build_grader(replace(blueprint, judges=judges), definitions)
        regrader = await Regrader.open(session.url, info.id, session.artifacts)
        try:
            with spared_collections():
                tally = await _judge(grader.executor, regrader, definitions, only_unavailable=chosen.only_unavailable)
            grading = None
            if tally.bases:
                grading = await regrader.commit(
                    who=current_user(),
                    why=chosen.reason,
                    evaluation=EVALUATION_VERSION,
                    sources=_digests(catalog, definitions),
                )
        finally:
            await regrader.close()
            await grader.close()
    except BaseException:
        await session.close()
        raise
    return RunHandle(session, info.id), tally.rescored(info.id, grading)


@dataclass(slots=True)
class _Tally:
    """What came of the attempts so far."""

    bases: Counter[Basis] = field(default_factory=Counter[Basis])
    changes: Counter[tuple[Verdict, Verdict]] = field(default_factory=Counter[tuple[Verdict, Verdict]])
    diverged: int = 0

    def add(self, found: RecordedAttempt, judged: Regrading) -> None:
        summary = judged.evidence.summary
        self.bases[judged.basis] += 1
        if judged.basis is Basis.KEPT:
            return
        self.diverged += summary.code == REPLAY_DIVERGED
        if summary.verdict is not found.verdict:
            self.changes[found.verdict, summary.verdict] += 1

    def rescored(self, run: str, grading: int | None) -> Rescored:
        return Rescored(run=run, grading=grading, bases=self.bases, changes=self.changes, diverged=self.diverged)


async def _judge(
    executor: Executor, regrader: Regrader, definitions: Mapping[str, EvalDefinition], *, only_unavailable: bool
) -> _Tally:
    """Judge page after page, so that no more of the run than one is in memory."""
    tally, lanes = _Tally(), asyncio.Semaphore(_LANES)

    async def judge(found: RecordedAttempt) -> tuple[Regrading, EncodedRegrading]:
        async with lanes:
            judged = await executor.regrade(found.case, found.evidence, AttemptControl())
        try:
            return judged, regrader.encode(judged)
        except AttemptFailure as failure:  # a judgement that can't be kept makes the attempt errored
            judged = refused(found.case.style, found.evidence, failure)
            return judged, regrader.encode(judged)

    async for page in regrader.pages(only_unavailable=only_unavailable):
        _check_styles(page, definitions)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(judge(found)) for found in page]
        judged = [task.result() for task in tasks]
        await regrader.add([encoded for _, encoded in judged])
        for found, (each, _) in zip(page, judged, strict=True):
            tally.add(found, each)
    return tally


def _project(info: RunInfo, evals: Path | None) -> Path:
    project = Path(info.project) if evals is None else find_project(evals.resolve())
    if not project.is_dir():
        raise ConfigurationError(
            f"the project of run {info.id} is not at {project}: say where its evals are (--evals PATH)"
        )
    return project


def _definitions(info: RunInfo, catalog: Catalog) -> dict[str, EvalDefinition]:
    """The evals that the run was made of. Raises DefinitionError when one is not there any more."""
    found = {definition.id: definition for definition in catalog.definitions}
    wanted = info.lock.get("parts", {}).get("evals", {})
    missing = [name for name in wanted if name not in found]
    if missing:
        hint = "restore it, or name the project that has it with --evals"
        problems = [
            Problem("UNKNOWN_EVAL", f"run {info.id} has cases of the eval {name!r}, which is gone", hint=hint)
            for name in missing
        ]
        raise DefinitionError("UNKNOWN_EVAL", problems)
    return {name: found[name] for name in wanted}


def _check_styles(page: Sequence[RecordedAttempt], definitions: Mapping[str, EvalDefinition]) -> None:
    """Refuse an eval that was read as a verdict and is a score now, or the other way round: no number means both."""
    for name, style in dict.fromkeys((found.case.definition, found.case.style) for found in page):
        if definitions[name].style is not style:
            place = definitions[name].place
            message = f"{name!r} was a {style.value}-style eval when it ran: its attempts can't be judged by another"
            problem = Problem("STYLE_CHANGED", message, None if place is None else str(place.file))
            raise DefinitionError("STYLE_CHANGED", [problem])


def _digests(catalog: Catalog, definitions: Mapping[str, EvalDefinition]) -> dict[str, str]:
    """By definition the digest of its source closure, as fingerprints have it."""
    sources = Sources(catalog.project, source_roots(catalog.project))
    closures = {name: sources.closure([catalog.files[name]]) for name in definitions}
    return {name: eval_parts(each, closures[name], {}).fields["source"] for name, each in definitions.items()}


def _judges(
    blueprint: RunBlueprint, session: Session, definitions: Mapping[str, EvalDefinition]
) -> dict[str, JudgeConfig]:
    """The judges that these evals ask now, under the run's experiment.

    Raises DefinitionError when this installation can't load the experiment any more.
    """
    loaded = restore_experiment(blueprint.snapshot, Path(blueprint.experiment_file), adapter_factories())
    default = default_judge(session.settings)
    found = {name: resolve_judge(each, loaded.experiment, default) for name, each in definitions.items()}
    return {name: judge for name, judge in found.items() if judge is not None}


def _blueprint(info: RunInfo, session: Session, catalog: Catalog) -> RunBlueprint:
    """The run as it was planned, in the project whose evals judge it now."""
    settings, default = session.settings, info.lock.get(DEFAULT_BACKEND)
    return RunBlueprint(
        run=info.id,
        run_key=0,
        project=str(catalog.project),
        experiment_file=str(catalog.project / info.lock["request"]["in_project"]),
        snapshot=info.experiment,
        arms=(),
        cases=info.total,
        files={name: str(file.relative_to(catalog.project)) for name, file in catalog.files.items()},
        database_url=session.url,
        embedded=settings.database_url is None,
        artifacts=settings.artifacts,
        state_dir=str(settings.state_dir),
        failpoint=None,
        default_backend=None if default is None else DefaultBackend.from_json(default).name,
    )
