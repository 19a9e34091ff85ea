"""The evals that a change is about: those of an earlier run's failed and errored cases."""

from __future__ import annotations

from dataclasses import replace

from evalfleet.api.handle import RunHandle
from evalfleet.api.options import CaseFilter, SubmitOptions
from evalfleet.api.planned import Request
from evalfleet.api.session import Session
from evalfleet.errors import ConfigurationError
from evalfleet.model.verdict import CaseStatus
from evalfleet.settings import Settings

_UNMET = CaseFilter(statuses=(CaseStatus.FAILED, CaseStatus.ERRORED))


async def singled_out(request: Request, options: SubmitOptions, settings: Settings) -> Request:
    """The request with the evals that an earlier run affects, or all but those, as the options ask.

    Raises ConfigurationError when there is no such run, or nothing in it failed.
    """
    run = options.affected_by or options.apart_from
    if run is None:
        return request
    affected = await _affected(run, settings)
    return replace(request, only=affected) if options.affected_by is not None else replace(request, without=affected)


async def _affected(run: str, settings: Settings) -> tuple[str, ...]:
    session = await Session.open(settings)
    try:
        handle = RunHandle(session, (await session.reader.find_run(run)).id)
        found = {case.eval_id async for case in handle.cases(_UNMET)}
    finally:
        await session.close()
    if not found:
        raise ConfigurationError(f"run {handle.id} has no failed or errored case: no eval is affected")
    return tuple(sorted(found))
