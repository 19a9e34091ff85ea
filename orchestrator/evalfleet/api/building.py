"""The composition root of a run's processes: concrete adapters, sandboxes, stores and clocks are made here."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakValueDictionary

from evalfleet.api.backends import Backends
from evalfleet.api.blueprint import RunBlueprint
from evalfleet.api.budgets import attempt_purse
from evalfleet.api.gateways import GatewayOnDemand, model_app
from evalfleet.api.lanes import IsolatedAttempt, LaneAttempt
from evalfleet.api.models import ModelOnDemand
from evalfleet.api.own_telemetry import OwnTelemetry, header_secrets, open_telemetry
from evalfleet.api.workdirs import git_tool
from evalfleet.clock import SystemClock
from evalfleet.errors import ConfigurationError
from evalfleet.execution.executor import BuiltArm, Executor, ExecutorSettings
from evalfleet.execution.job import AttemptServices
from evalfleet.execution.judging import Judging
from evalfleet.execution.known_secrets import KnownSecrets
from evalfleet.execution.outlets import SpanOutlets
from evalfleet.execution.paid_calls import AttemptPurse, Price
from evalfleet.execution.recorded_agent import NoAgent
from evalfleet.execution.threads import AuthorThreads
from evalfleet.governor.local import LocalGovernor
from evalfleet.grading.prices import PriceList
from evalfleet.model.definition import EvalDefinition, SandboxSpec
from evalfleet.model.experiment import Experiment, Redact
from evalfleet.model.money import Money
from evalfleet.model.sandbox import DefaultBackend, KeepSandbox
from evalfleet.planning.arm_probe import arm_settings
from evalfleet.planning.arms import ArmPlan
from evalfleet.planning.dataset import decode_row
from evalfleet.planning.discover import load_definition, make_importable
from evalfleet.planning.experiment_file import LoadedExperiment, restore_experiment
from evalfleet.planning.sandbox_plan import resolve_sandbox
from evalfleet.plugins import adapter_factories, judge_model, judge_stores, sandbox_rows, span_intake
from evalfleet.ports import Clock
from evalfleet.processes import SystemSpawner
from evalfleet.randomness import SystemRandom
from evalfleet.redact import Redactor
from evalfleet.sandbox_ports import SandboxLedger, SandboxProvider
from evalfleet.scheduling.messages import Grant
from evalfleet.scheduling.worker import Attempt, Exchange, Worker, WorkerLane, WorkerTimes
from evalfleet.settings import EnvironmentSecrets
from evalfleet.store.artifacts import FileArtifacts
from evalfleet.store.failpoints import Failpoints
from evalfleet.store.rows import EvidenceEncoder

if TYPE_CHECKING:
    from evalfleet.store.recordings import Recordings

#: Leaked threads and tasks of author code after which a worker is replaced.
LEAK_LIMIT = 4
#: The worker in the caller's own process, which nobody can replace.
INLINE = "inline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """What one process needs to execute attempts of one run; `close` releases all of it."""

    executor: Executor
    encoder: EvidenceEncoder
    clock: Clock
    threads: AuthorThreads
    spawner: SystemSpawner
    backends: Backends
    failpoint: Failpoints
    recordings: Recordings | None
    sandbox_ledger: SandboxLedger | None
    governor: LocalGovernor | None
    secrets: KnownSecrets
    price: Price | None
    spans: SpanOutlets | None
    own: OwnTelemetry | None

    async def close(self) -> tuple[str, ...]:
        """Close adapters, sandboxes and processes; what went wrong, as texts."""
        problems = await self.executor.close()
        if self.spans is not None:
            await self.spans.close()
        if self.own is not None:
            await self.own.close()
        if self.governor is not None:
            await self.governor.close()
        await self.backends.close()
        if self.sandbox_ledger is not None:
            await self.sandbox_ledger.close()
        await self.spawner.close()
        if self.recordings is not None:
            await self.recordings.close()
        return problems


async def open_workshop(
    blueprint: RunBlueprint, governor: LocalGovernor | None = None, *, port: bool = True
) -> Workshop:
    """Everything that executes attempts of the run in this process, their model calls admitted by `governor`.

    With `port` the run's own port for spans is listened at, if it names one. Raises DefinitionError or
    ConfigurationError when an arm can't be built here, or that port is taken.
    """
    spans = await _open_spans(blueprint, port=port)
    try:
        return _build_workshop(blueprint, governor, spans)
    except BaseException:
        if spans is not None:
            await spans.close()
        raise


async def _open_spans(blueprint: RunBlueprint, *, port: bool) -> SpanOutlets | None:
    """Where the run's agents send spans, None in a run that takes none."""
    telemetry, redact = blueprint.experiment.telemetry, blueprint.experiment.redact
    if not telemetry.receive:
        return None
    module = await asyncio.to_thread(span_intake)
    chosen = telemetry if port else telemetry.model_copy(update={"port": None})
    hidden = _hidden(blueprint.snapshot, redact)
    run = module.SpanRun(id=blueprint.run, key=blueprint.run_key, telemetry=chosen, hidden=hidden)
    return await module.open_intake(run, blueprint.database_url, SystemClock(), SystemRandom())


def _build_workshop(blueprint: RunBlueprint, governor: LocalGovernor | None, spans: SpanOutlets | None) -> Workshop:
    project = Path(blueprint.project)
    make_importable(project)
    factories = adapter_factories()
    loaded = restore_experiment(blueprint.snapshot, Path(blueprint.experiment_file), factories)
    clock, spawner = SystemClock(), SystemSpawner()
    backends = Backends(Path(blueprint.state_dir), spawner, blueprint.run)
    arms: dict[str, BuiltArm] = {}
    for arm in loaded.arms:
        if arm.name in blueprint.arms:
            settings = arm_settings(loaded, arm, project)
            adapter = factories[arm.settings.adapter].build(settings)
            sandbox = _sandboxes(arm, backends, loaded, blueprint, boxed=adapter.sandboxed)
            arms[arm.name] = BuiltArm(settings=settings, adapter=adapter, sandbox=sandbox)
    git = git_tool(Path(blueprint.state_dir), spawner)
    sandbox_ledger = _sandbox_ledger(blueprint, backends)
    services = replace(_services(blueprint, loaded, arms, clock), git=git, sandbox_ledger=sandbox_ledger)
    hidden = _hidden(blueprint.snapshot, loaded.experiment.redact)
    secrets = KnownSecrets(EnvironmentSecrets(), hidden)
    services = replace(services, governor=governor, secrets=secrets, hidden=hidden, spans=spans)

    def definition(identifier: str) -> EvalDefinition:
        return load_definition(project, blueprint.files[identifier], identifier)

    executor = Executor(_executor_settings(blueprint, loaded, arms, definition), services)
    artifacts = FileArtifacts(blueprint.artifacts)
    return Workshop(
        executor=executor,
        encoder=EvidenceEncoder(blueprint.run_key, artifacts, blueprint.run),
        clock=clock,
        threads=services.threads,
        spawner=spawner,
        backends=backends,
        failpoint=Failpoints(blueprint.failpoint),
        recordings=_recordings(blueprint, artifacts),
        sandbox_ledger=sandbox_ledger,
        governor=governor,
        secrets=secrets,
        price=services.price,
        spans=spans,
        own=open_telemetry(blueprint, {name: arm.settings.model for name, arm in arms.items()}, secrets),
    )


def _sandboxes(
    arm: ArmPlan, backends: Backends, loaded: LoadedExperiment, blueprint: RunBlueprint, *, boxed: bool
) -> Callable[[EvalDefinition], tuple[SandboxProvider, SandboxSpec] | None]:
    """What gives the sandbox of an eval's attempts for this arm."""
    default = DefaultBackend(name=blueprint.default_backend, why="the run was planned without a default")

    def plan(definition: EvalDefinition) -> tuple[SandboxProvider, SandboxSpec] | None:
        spec = resolve_sandbox(arm, definition, sandboxed=boxed, folder=loaded.path.parent, default=default)
        return None if spec is None or spec.backend is None else (backends.provider(spec.backend), spec)

    return plan


def _sandbox_ledger(blueprint: RunBlueprint, backends: Backends) -> SandboxLedger | None:
    """Where sandboxes that may stay are written down, None in a run whose sandboxes all end with it."""
    may_stay = any(backends.provider(name).outlives for name in blueprint.backends)
    if not may_stay and blueprint.keep_sandbox is KeepSandbox.NONE:
        return None
    return sandbox_rows()(blueprint.database_url, socket.gethostname(), os.getpid())


@dataclass(frozen=True, slots=True)
class Grader:
    """What judges recorded attempts in one process; `close` releases all of it."""

    executor: Executor
    spawner: SystemSpawner
    backends: Backends
    sandbox_ledger: SandboxLedger

    async def close(self) -> None:
        await self.executor.close()
        await self.backends.close()
        await self.sandbox_ledger.close()
        await self.spawner.close()


def build_grader(blueprint: RunBlueprint, definitions: Mapping[str, EvalDefinition]) -> Grader:
    """What judges recorded attempts of the run again, by these evals. No agent is built.

    Raises DefinitionError when this installation can't load the experiment any more.
    """
    project, spawner = Path(blueprint.project), SystemSpawner()
    loaded = restore_experiment(blueprint.snapshot, Path(blueprint.experiment_file), adapter_factories())
    backends = Backends(Path(blueprint.state_dir), spawner, blueprint.run)
    arms = {
        arm.name: BuiltArm(
            settings=arm_settings(loaded, arm, project),
            adapter=NoAgent(),
            sandbox=_sandboxes(arm, backends, loaded, blueprint, boxed=True),
        )
        for arm in loaded.arms
    }
    settings = _executor_settings(blueprint, loaded, arms, definitions.__getitem__)
    hidden = _hidden(blueprint.snapshot, loaded.experiment.redact)
    ledger = sandbox_rows()(blueprint.database_url, socket.gethostname(), os.getpid())
    services = replace(_services(blueprint, loaded, arms, SystemClock()), hidden=hidden, sandbox_ledger=ledger)
    executor = Executor(settings, replace(services, git=git_tool(Path(blueprint.state_dir), spawner)))
    return Grader(executor, spawner, backends, ledger)


def _hidden(snapshot: Mapping[str, Any], redact: Redact) -> Redactor:
    """What nothing that is kept of an attempt shows: the secrets that the experiment names, and what it says beside."""
    values = {*_named_secrets(snapshot), *_named_secrets([*redact.env], named=True)}
    with contextlib.suppress(ConfigurationError):  # who exports is told
        values |= header_secrets(Experiment.from_snapshot(snapshot).telemetry, EnvironmentSecrets())
    return Redactor.of(values, [re.compile(pattern) for pattern in redact.patterns])


def _named_secrets(value: Any, named: bool = False) -> Iterator[str]:
    """The values of secrets that an experiment names, as far as they are set here: its agents may have said them."""
    if isinstance(value, Mapping):
        for key, item in cast("Mapping[str, Any]", value).items():
            yield from _named_secrets(item, named or key.endswith("_env") or key == "env_from")
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _named_secrets(item, named)
    elif named and isinstance(value, str):
        for name in re.findall(r"[A-Za-z_]\w*", value):
            with contextlib.suppress(ConfigurationError):
                yield EnvironmentSecrets().resolve(name)


def _services(
    blueprint: RunBlueprint, loaded: LoadedExperiment, arms: Mapping[str, BuiltArm], clock: Clock
) -> AttemptServices:
    prices = PriceList(loaded.experiment.prices)
    prices.load(arm.settings.model for arm in arms.values())
    prices.load(judge.model for judge in blueprint.judges.values())
    judging = _judging(blueprint, clock)
    return AttemptServices(
        clock=clock,
        secrets=EnvironmentSecrets(),
        threads=AuthorThreads(),
        price=prices,
        judging=judging,
        gateway=GatewayOnDemand(SystemRandom()),
        model_app=model_app,
        models=ModelOnDemand(clock, SystemRandom()),
    )


def _judging(blueprint: RunBlueprint, clock: Clock) -> Judging | None:
    """What the run's attempts ask judges with, None in a run that asks none."""
    if not blueprint.judges:
        return None
    cached = any(judge.cache for judge in blueprint.judges.values())
    cache = judge_stores()[0](blueprint.database_url) if cached else None
    return Judging(clock, judge_model(clock, SystemRandom()), cache)


def _recordings(blueprint: RunBlueprint, artifacts: FileArtifacts) -> Recordings | None:
    """Where attempts wait for their judge or to be continued, None in a run where none does."""
    if not blueprint.judges and not blueprint.conversations:
        return None
    return judge_stores()[1](blueprint.database_url, blueprint.run_key, blueprint.run, artifacts)


def _executor_settings(
    blueprint: RunBlueprint,
    loaded: LoadedExperiment,
    arms: Mapping[str, BuiltArm],
    definition: Callable[[str], EvalDefinition],
) -> ExecutorSettings:
    limits = loaded.experiment.limits
    return ExecutorSettings(
        run=blueprint.run,
        project=Path(blueprint.project),
        arms=arms,
        definitions=definition,
        decode=decode_row,
        attempt_timeout=limits.attempt_timeout,
        turn_timeout=limits.turn_timeout,
        deadlines=not blueprint.debugging,
        judges=blueprint.judges,
        judges_away=blueprint.judges_away,
        grading_timeout=limits.grading_timeout,
        keep_sandbox=blueprint.keep_sandbox,
    )


def build_worker(blueprint: RunBlueprint, workshop: Workshop, name: str, lanes: int, exchange: Exchange) -> Worker:
    """A worker of the run; grants of suspected cases, or all with `isolation: process`, get their own process, unless
    their agent is done.

    A worker that author code has cost too many threads drains, so that its owner can replace it.
    """
    alone = blueprint.experiment.isolation == "process"
    purses: WeakValueDictionary[int, AttemptPurse] = WeakValueDictionary()

    def begin(grant: Grant) -> Attempt:
        if workshop.threads.leaked >= LEAK_LIMIT and name != INLINE:
            worker.drain()
        if (grant.isolated or alone) and not grant.recorded:  # judging a recording runs nobody's code but ours
            return IsolatedAttempt(grant, blueprint, workshop.encoder, workshop.spawner, workshop.clock)
        of_workshop = workshop.executor, workshop.encoder, workshop.clock, workshop.failpoint, workshop.recordings
        lane = LaneAttempt(grant, *of_workshop)
        lane.tell_when_made(worker.made)
        lane.tell_when_over(None if workshop.own is None else workshop.own.tell)
        lane.wait_in(WorkerLane(worker, grant.attempt))
        lane.record_with(worker.record)
        purse = attempt_purse(blueprint, grant, workshop.price, partial(worker.ask, grant.attempt))
        if purse is not None:
            lane.pay_with(purse)
            purses[grant.attempt] = purse
        return lane

    def allowed(attempt: int, total: Money) -> None:
        if (purse := purses.get(attempt)) is not None:
            purse.raised(total)

    worker = Worker(name, lanes, exchange, begin, workshop.clock, WorkerTimes())
    worker.allowed = allowed
    if workshop.governor is not None:
        worker.on_free_lane, worker.uses = workshop.governor.pump, workshop.governor.uses
    return worker
