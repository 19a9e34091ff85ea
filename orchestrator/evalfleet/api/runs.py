"""The functions of the Python API over whole runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path

from evalfleet.api.handle import RunHandle
from evalfleet.api.history import load_history
from evalfleet.api.inline import Observer
from evalfleet.api.options import DeleteOptions, PlanOptions, ResumeOptions, SubmitOptions
from evalfleet.api.planned import Request, blueprint_of, new_run, plan_request
from evalfleet.api.running import Place, carry_out, debugged, first_claim, resumed_claim
from evalfleet.api.session import Session
from evalfleet.errors import ConfigurationError, DefinitionError, Problem
from evalfleet.model.ids import run_id_from
from evalfleet.model.report import RunInfo, RunProgress
from evalfleet.model.verdict import RunKind, RunStatus
from evalfleet.planning.definition_digests import changed_definition
from evalfleet.planning.plan import Plan
from evalfleet.planning.reuse import NoHistory
from evalfleet.randomness import SystemRandom
from evalfleet.settings import Settings
from evalfleet.store import lifecycle
from evalfleet.store.creation import create_run

OnCreated = Callable[[str], None]


async def submit(
    experiment: Path,
    prefixes: Sequence[str] = (),
    options: SubmitOptions | None = None,
    observer: Observer | None = None,
    on_created: OnCreated | None = None,
) -> RunHandle:
    """Plan an experiment and run it to the end; `on_created` is told the run's id as soon as it exists.

    Raises DefinitionError for everything that is wrong with the definitions, ConfigurationError, StoreError or
    InfrastructureError. Failed criteria do not raise. Cancelling the task drains the run.
    """
    chosen = options or SubmitOptions()
    place = Place(inline=chosen.inline, address=chosen.address, workers=chosen.workers, lanes=chosen.lanes)
    return await _start(experiment, prefixes, chosen, place, RunKind.SWEEP, (observer, on_created))


async def try_(
    experiment: Path,
    prefixes: Sequence[str] = (),
    options: SubmitOptions | None = None,
    observer: Observer | None = None,
    on_created: OnCreated | None = None,
) -> RunHandle:
    """As `submit`, in this process and without Ray, so that breakpoints work; the run is hidden and never reused."""
    chosen = options or SubmitOptions()
    place = Place(inline=True, lanes=chosen.lanes)
    return await _start(experiment, prefixes, chosen, place, RunKind.TRY, (observer, on_created))


async def _start(
    experiment: Path,
    prefixes: Sequence[str],
    options: SubmitOptions,
    place: Place,
    kind: RunKind,
    told: tuple[Observer | None, OnCreated | None],
) -> RunHandle:
    observer, on_created = told
    random = SystemRandom()
    settings = Settings.from_environment()
    if place.address is not None and settings.database_url is None:
        raise ConfigurationError(
            "a run on a cluster needs a record store that the cluster can reach: set EVALFLEET_DATABASE_URL"
        )
    request = Request.of(
        experiment,
        prefixes,
        PlanOptions(overrides=options.overrides, arms=options.arms, allow_empty=options.allow_empty),
    )
    plan = await plan_request(request)
    session = await Session.open(settings)
    try:
        reuse = options.reuse or plan.experiment.reuse == "settled"
        history = await load_history(session.url, plan) if reuse and kind is RunKind.SWEEP else NoHistory()
        planned = new_run(plan, request, run_id_from(random.bits(50)), kind, history)
        made = await create_run(session.url, replace(planned, idempotency_key=options.idempotency_key))
        if on_created is not None:
            on_created(made.id)
        if made.created:
            blueprint = blueprint_of(plan, request, made.id, settings, session.url)
            debugging = kind is RunKind.TRY and debugged()
            await carry_out(replace(blueprint, debugging=debugging), first_claim(random), place, observer)
    except BaseException:
        await session.close()
        raise
    return RunHandle(session, made.id)


async def resume(run: str, options: ResumeOptions | None = None, observer: Observer | None = None) -> RunHandle:
    """Go on with a run over what is not settled.

    Raises DefinitionError (`DEFINITION_CHANGED`) naming what changed since the run was planned, RunHeld when
    another coordinator works on it, ConfigurationError when there is nothing to go on with.
    """
    chosen = options or ResumeOptions()
    session = await Session.open()
    try:
        info = await session.reader.find_run(run)
        request = Request.from_json(info.lock["request"])
        plan = await plan_request(replace(request, overrides={**request.overrides, **chosen.overrides}))
        _check_unchanged(info, plan)
        if chosen.retry:
            await lifecycle.reopen(
                session.url, info.id, chosen.retry, who=lifecycle.current_user(), why="resume --retry"
            )
        elif info.status is RunStatus.COMPLETED:
            raise ConfigurationError(f"run {info.id} is completed; --retry errored runs its errored cases again")
        blueprint = blueprint_of(plan, request, info.id, session.settings, session.url)
        claiming = resumed_claim(info, SystemRandom(), steal=chosen.steal)
        place = Place(inline=chosen.inline, address=chosen.address, workers=chosen.workers, lanes=chosen.lanes)
        await carry_out(blueprint, claiming, place, observer)
    except BaseException:
        await session.close()
        raise
    return RunHandle(session, info.id)


def _check_unchanged(info: RunInfo, plan: Plan) -> None:
    changed = changed_definition(info.lock["definition"], plan.digests)
    if not changed:
        return
    hint = "undo the change, or submit a new run; --reuse carries what is unchanged"
    problems = [
        Problem("DEFINITION_CHANGED", f"{name} changed since run {info.id} was planned", hint=hint) for name in changed
    ]
    raise DefinitionError("DEFINITION_CHANGED", problems)


async def open_run(prefix: str) -> RunHandle:
    """A run by its id or an unambiguous prefix of it. Raises ConfigurationError when there is none."""
    session = await Session.open()
    try:
        info = await session.reader.find_run(prefix)
    except BaseException:
        await session.close()
        raise
    return RunHandle(session, info.id)


async def runs(*, every_kind: bool = False, limit: int | None = None) -> Sequence[RunInfo]:
    """Runs, newest first; those of `try` only with `every_kind`."""
    session = await Session.open()
    try:
        return await session.reader.runs(limit or 50, tries=every_kind)
    finally:
        await session.close()


async def watch(run: str) -> AsyncIterator[RunProgress]:
    """The live counters of a run, until it is no longer running."""
    session = await Session.open()
    try:
        async for info, progress in session.reader.watch(run):
            if progress is not None:
                yield progress
            if info.interrupted:
                return
    finally:
        await session.close()


async def cancel(run: str) -> str:
    """Ask a run to stop; what is in flight is cancelled, what is settled stays. Returns the full id."""
    session = await Session.open()
    try:
        info = await session.reader.find_run(run)
        await lifecycle.request_cancel(session.url, info.id)
        return info.id
    finally:
        await session.close()


async def delete(run: str, options: DeleteOptions | None = None) -> str:
    """Delete a run with all its evidence. Raises ConfigurationError while other runs carry results from it."""
    chosen = options or DeleteOptions()
    session = await Session.open()
    try:
        info = await session.reader.find_run(run)
        await lifecycle.delete_run(
            session.url,
            info.id,
            session.artifacts,
            with_dependants=chosen.with_dependants,
            copy_evidence=chosen.copy_evidence,
        )
        return info.id
    finally:
        await session.close()
