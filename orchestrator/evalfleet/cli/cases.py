"""Finding the one case that a person means."""

from __future__ import annotations

from dataclasses import replace

from evalfleet.api.options import CaseFilter
from evalfleet.cli.surface import RunHandle
from evalfleet.errors import ConfigurationError
from evalfleet.model.report import CaseView
from evalfleet.reports.wording import case_name

NAMED_CANDIDATES = 5


async def find_case(run: RunHandle, reference: str, which: CaseFilter) -> CaseView:
    """The case with this number, or the only one whose eval id starts with `reference`; an exact id goes first.

    Raises ConfigurationError naming the candidates when there are several, or saying that there is none.
    """
    if reference.isdecimal():
        found = [case async for case in run.cases(CaseFilter(ordinal=int(reference)))]
    else:
        found = await _matching(run, reference, which)
    if len(found) == 1:
        return found[0]
    if not found:
        raise ConfigurationError(f"run {run.id} has no case {reference!r} (orchestrate show {run.id} lists them)")
    named = ", ".join(f"{each.ordinal} ({each.arm} {case_name(each)})" for each in found[:NAMED_CANDIDATES])
    more = ", …" if len(found) > NAMED_CANDIDATES else ""
    raise ConfigurationError(f"{reference!r} fits several cases: give the number of one: {named}{more}")


async def _matching(run: RunHandle, reference: str, which: CaseFilter) -> list[CaseView]:
    """Cases of exactly this eval, else of those whose ids start so; no more than it takes to tell one from several."""
    exact: list[CaseView] = []
    longer: list[CaseView] = []
    async for case in run.cases(replace(which, prefix=reference)):
        found = exact if case.eval_id == reference else longer
        if len(found) <= NAMED_CANDIDATES:
            found.append(case)
    return exact or longer
