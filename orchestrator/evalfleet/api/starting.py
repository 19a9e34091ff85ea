"""Starting runs and going on with them: from what was asked for to a run that has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from evalfleet.api.affected import singled_out
from evalfleet.api.backends import check_backends
from evalfleet.api.blueprint import RunBlueprint
from evalfleet.api.confirming import confirm_cost
from evalfleet.api.handle import RunHandle
from evalfleet.api.history import load_history
from evalfleet.api.listeners import NOBODY, Listeners
from evalfleet.api.observing import observed
from evalfleet.api.options import PlanOptions, ResumeOptions, SubmitOptions
from evalfleet.api.planned import Request, blueprint_of, new_run, plan_request
from evalfleet.api.running import Place, Venue, debugged, first_claim, reaching, resumed_claim
from evalfleet.api.session import Session
from evalfleet.api.shipping import check_reachable, packed, ship
from evalfleet.api.suite_criteria import judge_suites, lacks_suite_results
from evalfleet.api.workdirs import check_git
from evalfleet.errors import ConfigurationError, DefinitionError, Problem
from evalfleet.model.ids import run_id_from
from evalfleet.model.report import RunInfo
from evalfleet.model.sandbox import KeepSandbox
from evalfleet.model.verdict import CaseStatus, RunKind, RunStatus
from evalfleet.planning.definition_digests import changed_definition, recorded_digests
from evalfleet.planning.plan import Plan
from evalfleet.planning.reuse import NoHistory
from evalfleet.randomness import SystemRandom
from evalfleet.settings import Settings
from evalfleet.store import lifecycle
from evalfleet.store.connection import connect
from evalfleet.store.creation import create_run
from evalfleet.store.event_log import EventLog
from evalfleet.store.history import unfinished_run
from evalfleet.store.planned import CreatedRun, NewRun, UnfinishedRun
from evalfleet.store.writer import PATIENCE


@dataclass(frozen=True, slots=True)
class _Work:
    """A plan that is to be carried out: what was asked for, where, and who is told."""

    plan: Plan
    request: Request
    place: Place
    venue: Venue
    listeners: Listeners
    keep_sandbox: KeepSandbox = KeepSandbox.NONE


async def submit(
    experiment: Path,
    prefixes: Sequence[str] = (),
    options: SubmitOptions | None = None,
    listeners: Listeners = NOBODY,
) -> RunHandle:
    """Plan an experiment and run it to the end, or go on with an unfinished run of the same definitions.

    Raises DefinitionError for everything that is wrong with the definitions, ConfigurationError, StoreError,
    InfrastructureError, or ObserverFailed. Failed criteria do not raise. Cancelling the task drains the run.
    """
    return await _start(experiment, prefixes, options or SubmitOptions(), RunKind.SWEEP, listeners)


async def try_(
    experiment: Path,
    prefixes: Sequence[str] = (),
    options: SubmitOptions | None = None,
    listeners: Listeners = NOBODY,
) -> RunHandle:
    """As `submit`, in this process and without Ray, so that breakpoints work; the run is hidden and never reused."""
    chosen = replace(options or SubmitOptions(), inline=True, address=None)
    return await _start(experiment, prefixes, chosen, RunKind.TRY, listeners)


async def _start(
    experiment: Path, prefixes: Sequence[str], options: SubmitOptions, kind: RunKind, listeners: Listeners
) -> RunHandle:
    if options.retry and not options.resume_unfinished:
        raise _nothing_to_retry("a new run has no cases to retry")
    settings = Settings.from_environment()
    place = _place(options, settings)
    async with reaching(place, settings) as venue:
        narrowed = PlanOptions(overrides=options.overrides, arms=options.arms, allow_empty=options.allow_empty)
        request = await singled_out(Request.of(experiment, prefixes, narrowed), options, settings)
        plan = await plan_request(request, place.address)
        work = _Work(plan, request, place, venue, listeners, options.keep_sandbox)
        _tell_default(listeners, plan)
        session = await Session.open(settings)
        try:
            found = await _unfinished(session, work.plan) if kind is RunKind.SWEEP else None
            if found is not None and _goes_on(found, options, listeners):
                info = await session.reader.find_run(found.id)
                _tell_created(listeners, info.id)
                if options.retry:
                    await _reopen(session, info, options.retry)
                await _go_on(session, work, info, steal=False)
                return RunHandle(session, info.id)
            if options.retry:
                raise _nothing_to_retry("there is no unfinished run of these definitions")
            run = await _begin(session, work, options, kind)
        except BaseException:
            await session.close()
            raise
    return RunHandle(session, run)


async def resume(run: str, options: ResumeOptions | None = None, listeners: Listeners = NOBODY) -> RunHandle:
    """Go on with a run over what is not settled; an observer is told what happens from then on.

    Raises DefinitionError (`EVALUATION_RESUME_INCOMPATIBLE`) naming what changed since the run was planned, RunHeld
    when another coordinator works on it, ConfigurationError when there is nothing to go on with.
    """
    chosen = options or ResumeOptions()
    session = await Session.open()
    try:
        info = await session.reader.find_run(run)
        place = _place(chosen, session.settings)
        async with reaching(place, session.settings) as venue:
            request = Request.from_json(info.lock["request"], chosen.project)
            said = {**request.overrides, **await lifecycle.edited(session.url, info.id)}
            again = replace(request, overrides={**said, **chosen.overrides})
            plan = await plan_request(again, place.address, info.lock)
            _check_unchanged(info, plan)
            _tell_default(listeners, plan)
            if info.status is RunStatus.COMPLETED and await lacks_suite_results(session, plan, info.id):
                await judge_suites(session, plan, info.id)
                return RunHandle(session, info.id)
            await _reopen(session, info, chosen.retry)
            await _note_edits(session, info, said, chosen.overrides)
            work = _Work(plan, request, place, venue, listeners, chosen.keep_sandbox)
            await _go_on(session, work, info, steal=chosen.steal)
    except BaseException:
        await session.close()
        raise
    return RunHandle(session, info.id)


async def _note_edits(session: Session, info: RunInfo, before: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Keep who changed which limit of the run, and from what: as `--set` said it, else as the experiment does."""
    edits = {name: (before.get(name) or _planned(info.experiment, name), value) for name, value in now.items()}
    if edits:
        await lifecycle.note_edits(session.url, info.id, edits, who=lifecycle.current_user(), why="resume --set")


def _planned(experiment: Any, name: str) -> str | None:
    for part in name.split("."):
        experiment = cast("Mapping[str, Any]", experiment).get(part) if isinstance(experiment, Mapping) else None
    return None if experiment is None else str(experiment)


def _nothing_to_retry(why: str) -> DefinitionError:
    hint = "`orchestrate resume RUN --retry …` names the run, --resume-unfinished goes on with the one that never ended"
    return DefinitionError(
        "EVALUATION_RESUME_REQUIRED", [Problem("EVALUATION_RESUME_REQUIRED", f"--retry: {why}", hint=hint)]
    )


async def _reopen(session: Session, info: RunInfo, retry: Sequence[CaseStatus]) -> None:
    """Make the cases that are to be retried unsettled. Raises ConfigurationError when nothing is left to go on with."""
    reopened = 0
    if retry:
        who = lifecycle.current_user()
        reopened = await lifecycle.reopen(session.url, info.id, retry, who=who, why="resume --retry")
    if info.status is RunStatus.COMPLETED and not reopened:
        statuses = " or ".join(status.value for status in retry)
        hint = f"it has no {statuses} case" if statuses else "--retry errored runs its errored cases again"
        raise ConfigurationError(f"run {info.id} is completed: {hint}")


async def _unfinished(session: Session, plan: Plan) -> UnfinishedRun | None:
    async with await connect(session.url, autocommit=True) as connection:
        return await unfinished_run(connection, str(plan.project), plan.digest)


async def _begin(session: Session, work: _Work, options: SubmitOptions, kind: RunKind) -> str:
    """Create the run and carry it out, unless the same request has made it before; its id."""
    plan, random = work.plan, SystemRandom()
    reuse = (options.reuse or plan.experiment.reuse == "settled") and not work.request.only
    history = await load_history(session.url, plan) if reuse and kind is RunKind.SWEEP else NoHistory()
    if kind is RunKind.SWEEP and not options.confirmed:
        await confirm_cost(session, plan, history, work.listeners.costly)
    planned = new_run(plan, work.request, run_id_from(random.bits(50)), kind, history)
    planned = replace(planned, idempotency_key=options.idempotency_key)
    blueprint, on_progress = _blueprint(session, work, planned.id), work.listeners.progress
    if work.place.is_shipped:
        async with packed(plan, blueprint, work.place) as parcel:
            made = await _create(session, work, planned)
            if made.created:
                await _carry_out(session, work, made.id, ship(session, parcel, made.id, on_progress))
        return made.id
    # what is not there or does not work is said before there is a run
    await work.venue.arrive()
    await _check_backends(work, blueprint)
    made = await _create(session, work, planned)
    if made.created:
        blueprint = replace(blueprint, debugging=kind is RunKind.TRY and debugged())
        await _carry_out(session, work, made.id, work.venue.carry_out(blueprint, first_claim(random), on_progress))
    return made.id


async def _create(session: Session, work: _Work, planned: NewRun) -> CreatedRun:
    made = await create_run(session.url, planned)
    _tell_created(work.listeners, made.id)
    return made


async def _go_on(session: Session, work: _Work, info: RunInfo, *, steal: bool) -> None:
    random = SystemRandom()
    blueprint, on_progress = _blueprint(session, work, info.id), work.listeners.progress
    if work.place.is_shipped:
        async with packed(work.plan, blueprint, work.place, steal=steal) as parcel:
            submission = f"{info.id}-{random.bits(32):08x}"
            await _carry_out(session, work, info.id, ship(session, parcel, submission, on_progress))
    else:
        await _check_recorded_backends(work, blueprint, info)
        claiming = resumed_claim(info, random, steal=steal)
        await _carry_out(session, work, info.id, work.venue.carry_out(blueprint, claiming, on_progress))


async def _carry_out(session: Session, work: _Work, run: str, carrying: Coroutine[Any, Any, None]) -> None:
    """Carry the run out, judge its suites, and tell its observer, if it has one, what happens from now on."""
    observer, judged = work.listeners.observer, _judged(session, work, run, carrying)
    try:
        if observer is None:
            await judged
        else:
            async with aclosing(EventLog(session.url, run, patience=PATIENCE)) as log:
                await observed(judged, log, observer)
    finally:
        carrying.close()  # a store that is away keeps it from being begun


async def _judged(session: Session, work: _Work, run: str, carrying: Coroutine[Any, Any, None]) -> None:
    """Carry the run out and judge its suites, also when it was drained; only a second cancellation prevents that."""
    try:
        await carrying
    except asyncio.CancelledError:
        await judge_suites(session, work.plan, run)
        raise
    await judge_suites(session, work.plan, run)


def _tell_default(listeners: Listeners, plan: Plan) -> None:
    if plan.default_backend is not None and listeners.default_backend is not None:
        listeners.default_backend(plan.default_backend)


def _tell_created(listeners: Listeners, run: str) -> None:
    if listeners.created is not None:
        listeners.created(run)


def _goes_on(found: UnfinishedRun, options: SubmitOptions, listeners: Listeners) -> bool:
    """Whether to go on with an unfinished run, by the options or by who is asked."""
    asked = listeners.unfinished is not None and listeners.unfinished(found)
    return asked or options.resume_unfinished


def _blueprint(session: Session, work: _Work, run: str) -> RunBlueprint:
    blueprint = blueprint_of(work.plan, work.request, run, session.settings, session.url)
    return replace(blueprint, keep_sandbox=work.keep_sandbox)


async def _check_backends(work: _Work, blueprint: RunBlueprint) -> None:
    """Raises ConfigurationError when a sandbox backend, or git where it is needed, does not work where the run will be.

    On a cluster that is another machine: each of its workers finds out there, before its first attempt.
    """
    if work.place.address is not None:
        return
    check_git(work.plan)
    default = work.plan.default_backend
    tried = default.name if default is not None and default.tried else None
    if names := [name for name in blueprint.backends if name != tried]:
        await check_backends(names, Path(blueprint.state_dir), blueprint.run)


async def _check_recorded_backends(work: _Work, blueprint: RunBlueprint, info: RunInfo) -> None:
    """As `_check_backends`; a run goes on with the default it was planned with, even where another would be chosen."""
    try:
        await _check_backends(work, blueprint)
    except ConfigurationError as error:
        default = work.plan.default_backend
        if default is None or default.name not in blueprint.backends:
            raise
        raise ConfigurationError(f"run {info.id} has the default sandbox backend {default.name}: {error}") from error


def _place(options: SubmitOptions | ResumeOptions, settings: Settings) -> Place:
    """Where the run is carried out. Raises ConfigurationError for a cluster that can't reach the record store."""
    address = None if options.inline else options.address or settings.ray_address
    if address is not None and settings.database_url is None:
        raise ConfigurationError(
            "a run on a cluster needs a record store that the cluster can reach: set EVALFLEET_DATABASE_URL"
        )
    place = Place(inline=options.inline, address=address, workers=options.workers, lanes=options.lanes)
    if place.is_shipped:
        check_reachable(address or "", settings)
    return place


def _check_unchanged(info: RunInfo, plan: Plan) -> None:
    changed = changed_definition(_recorded(info), plan.digests)
    if not changed:
        return
    hint = "undo the change, or submit a new run; --reuse carries what is unchanged"
    problems = [
        Problem("DEFINITION_CHANGED", f"{name} changed since run {info.id} was planned", hint=hint) for name in changed
    ]
    raise DefinitionError("EVALUATION_RESUME_INCOMPATIBLE", problems)


def _recorded(info: RunInfo) -> Mapping[str, str]:
    """The digests by name of what the run was planned from."""
    return recorded_digests(info.lock["definition"], info.lock.get("parts", {}).get("evals", {}))
