"""From an experiment file to a plan, and from a plan to a run in the record store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evalfleet.api.backends import backends_of
from evalfleet.api.blueprint import RunBlueprint
from evalfleet.api.confirming import known_costs
from evalfleet.api.default_backend import default_backend
from evalfleet.api.history import load_history, parts_to_record
from evalfleet.api.judging import default_judge
from evalfleet.api.options import PlanOptions
from evalfleet.api.preview import Preview
from evalfleet.api.session import Session
from evalfleet.collector import uncollected
from evalfleet.model.case import Case
from evalfleet.model.sandbox import DEFAULT_BACKEND, DefaultBackend
from evalfleet.model.verdict import CaseStatus, RunKind, Settlement, Verdict
from evalfleet.planning.definition_digests import own_digests
from evalfleet.planning.discover import discover, find_project
from evalfleet.planning.experiment_file import load_experiment
from evalfleet.planning.plan import Plan, PlanTools, make_plan
from evalfleet.planning.reuse import Action, ActionKind, History
from evalfleet.planning.select import Narrowing
from evalfleet.plugins import adapter_factories, sandbox_factories
from evalfleet.ports import shows_calls
from evalfleet.processes import SystemSpawner
from evalfleet.settings import Settings, own_environment
from evalfleet.store.planned import NewRun, PlannedDataset, PlannedSuite, Presettled


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a run was asked for: enough to plan it again when it is resumed.

    `experiment` is an absolute path, `in_project` the same relative to the project. `only` and `without` are ids of
    evals that an earlier run singled out.
    """

    experiment: str
    in_project: str
    prefixes: tuple[str, ...]
    arms: tuple[str, ...]
    overrides: Mapping[str, str]
    allow_empty: bool
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    @classmethod
    def of(cls, experiment: Path, prefixes: Sequence[str], options: PlanOptions) -> Request:
        path = experiment.resolve()
        return cls(
            experiment=str(path),
            in_project=path.relative_to(find_project(path)).as_posix(),
            prefixes=tuple(prefixes),
            arms=options.arms,
            overrides=dict(options.overrides),
            allow_empty=options.allow_empty,
        )

    def as_json(self) -> dict[str, Any]:
        named = {"only": list(self.only), "without": list(self.without)}
        return {
            **{name: ids for name, ids in named.items() if ids},
            "experiment": self.experiment,
            "in_project": self.in_project,
            "prefixes": list(self.prefixes),
            "arms": list(self.arms),
            "overrides": dict(self.overrides),
            "allow_empty": self.allow_empty,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any], project: Path | None = None) -> Request:
        """The recorded request, of the project where it lies now if that is elsewhere."""
        in_project = str(value["in_project"])
        return cls(
            experiment=value["experiment"] if project is None else str(project.resolve() / in_project),
            in_project=in_project,
            prefixes=tuple(value["prefixes"]),
            arms=tuple(value["arms"]),
            overrides=dict(value["overrides"]),
            allow_empty=bool(value["allow_empty"]),
            only=tuple(value.get("only", ())),
            without=tuple(value.get("without", ())),
        )


async def plan_request(request: Request, address: str | None = None, recorded: Mapping[str, Any] | None = None) -> Plan:
    """Plan what was asked for, to be carried out here or on the cluster at `address`.

    `recorded` is the lock of the run that is gone on with, whose default backend stays what it was. Raises
    DefinitionError with every problem found.
    """
    with uncollected():
        return await _planned(request, address, recorded)


async def _planned(request: Request, address: str | None, recorded: Mapping[str, Any] | None) -> Plan:
    factories = adapter_factories()
    path = Path(request.experiment)
    loaded = load_experiment(path, request.overrides, factories, backends=sandbox_factories())
    catalog = discover(find_project(path))
    spawner = SystemSpawner()
    try:
        settings = Settings.from_environment()

        async def choose() -> DefaultBackend:
            if recorded is not None and DEFAULT_BACKEND in recorded:
                return DefaultBackend.from_json(recorded[DEFAULT_BACKEND])
            return await default_backend(settings, address)

        tools = PlanTools(
            factories=factories,
            spawner=spawner,
            env=own_environment(),
            judge=default_judge(settings),
            default_backend=choose,
        )
        narrowing = Narrowing(
            prefixes=request.prefixes,
            arms=request.arms,
            only=frozenset(request.only),
            without=frozenset(request.without),
        )
        return await make_plan(loaded, catalog, tools, narrowing, allow_empty=request.allow_empty)
    finally:
        await spawner.close()


async def plan(experiment: Path, prefixes: Sequence[str] = (), options: PlanOptions | None = None) -> Preview:
    """What a run would do, without writing anything. Raises DefinitionError with every problem found."""
    chosen = options or PlanOptions()
    planned = await plan_request(Request.of(experiment, prefixes, chosen), Settings.from_environment().ray_address)
    session = await Session.open()
    try:
        history = await load_history(session.url, planned)
        costs = await known_costs(session, planned)
        carries = chosen.reuse or planned.experiment.reuse == "settled"
        return Preview(plan=planned, history=history, carries=carries, costs=costs)
    finally:
        await session.close()


def new_run(plan: Plan, request: Request, run: str, kind: RunKind, history: History) -> NewRun:
    """The run that `plan` describes, with what is carried or blocked already decided."""
    return NewRun(
        id=run,
        name=plan.experiment.name,
        project=str(plan.project),
        digest=plan.digest,
        experiment=plan.experiment.snapshot(),
        lock=_lock(plan, request),
        arms={arm.name: _arm(arm.settings.model, arm.plan.settings.adapter, arm.agent.missing) for arm in plan.arms},
        cases=_decided(plan.actions(history)),
        kind=kind,
        datasets=tuple(
            PlannedDataset(definition="", uri=each.uri, revision=None, sha256=each.sha256, rows=each.rows)
            for each in plan.datasets
        ),
        suites=tuple(PlannedSuite(id=suite.id, document=suite.document) for suite in plan.suites),
    )


def _lock(plan: Plan, request: Request) -> dict[str, Any]:
    """What the run was planned from: enough to plan it again, and to say what changed since."""
    own = own_digests(plan.digests, plan.eval_parts)
    recorded = {"request": request.as_json(), "definition": own, "parts": parts_to_record(plan)}
    judges = {"judges": [use.as_json() for use in plan.judge_uses]} if plan.judge_uses else {}
    described = {name: one.description for name, one in plan.definitions.items() if one.description is not None}
    asking = [suite.id for suite in plan.suites if suite.assertions]
    return {
        **plan.lock,
        **recorded,
        "descriptions": described,
        **judges,
        **({"suite_criteria": asking} if asking else {}),
        **({} if plan.default_backend is None else {DEFAULT_BACKEND: plan.default_backend.as_json()}),
    }


def _arm(model: str | None, adapter: str, missing: str | None) -> dict[str, Any]:
    return {"adapter": adapter, "model": model, "never_carried_because": missing}


def _decided(actions: Iterator[Action]) -> Iterator[tuple[Case, Presettled | None]]:
    for action in actions:
        if action.kind is ActionKind.CARRY and action.past is not None:
            verdict = Verdict.PASSED if action.past.status is CaseStatus.PASSED else Verdict.FAILED
            yield (
                action.case,
                Presettled(
                    how=Settlement.CARRIED,
                    verdict=verdict,
                    from_run=action.past.executed_by,
                    from_attempt=action.past.attempt,
                    from_grading=action.past.grading,
                ),
            )
        elif action.kind is ActionKind.BLOCKED:
            yield action.case, Presettled(how=Settlement.BLOCKED, code="EXTERNAL_WRITES_NOT_AUTHORIZED")
        elif action.kind is ActionKind.SKIP:
            yield action.case, Presettled(how=Settlement.SKIPPED, verdict=Verdict.SKIPPED)
        else:
            yield action.case, None


def blueprint_of(plan: Plan, request: Request, run: str, settings: Settings, url: str) -> RunBlueprint:
    """What the run's processes are built from; `run_key` is filled in by the claim."""
    return RunBlueprint(
        run=run,
        run_key=0,
        project=str(plan.project),
        experiment_file=request.experiment,
        snapshot=plan.experiment.snapshot(),
        arms=tuple(arm.name for arm in plan.arms),
        sandboxed=tuple(arm.name for arm in plan.arms if arm.sandboxed),
        unseen=_unseen(plan) if plan.experiment.budget.is_hard else (),
        cases=plan.total,
        files={name: str(file.relative_to(plan.project)) for name, file in plan.files.items()},
        database_url=url,
        embedded=settings.database_url is None,
        artifacts=settings.artifacts,
        state_dir=str(settings.state_dir),
        failpoint=settings.failpoint,
        judges=plan.judges,
        backends=backends_of(plan),
        default_backend=None if plan.default_backend is None else plan.default_backend.name,
        conversations=plan.has_conversations,
    )


def _unseen(plan: Plan) -> tuple[str, ...]:
    """The arms whose adapters make model calls that nobody sees."""
    factories = adapter_factories()
    return tuple(
        arm.name for arm in plan.arms if not shows_calls(factories[arm.plan.settings.adapter], arm.settings.options)
    )
