"""Comparing runs: which arms are held against which, and everything that is read of them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from itertools import combinations

from evalfleet.api.options import SideChoice
from evalfleet.api.session import Session
from evalfleet.errors import ConfigurationError
from evalfleet.model.canonical import digest
from evalfleet.model.comparison import Side
from evalfleet.planning.typed import nearest
from evalfleet.reports.comparison import Comparison, compare_sides
from evalfleet.store.reader import Reader


async def compare(first: SideChoice, second: SideChoice | None = None) -> tuple[Comparison, ...]:
    """Hold the second side against the first, or all arms of one run against each other.

    A side without an arm is all its arms: each is held against the one of the same name, or the only one against the
    only one. Raises ConfigurationError when there is no such run or arm, nothing to hold against, or evals of pass and
    of score style.
    """
    session = await Session.open()
    try:
        reader = session.reader
        one = await _known(reader, first)
        pairs = _within(one) if second is None else _across(one, await _known(reader, second))
        sides = {
            chosen: await _side(reader, chosen) for chosen in dict.fromkeys(each for pair in pairs for each in pair)
        }
    finally:
        await session.close()
    return await asyncio.to_thread(compare_sides, [(sides[a], sides[b]) for a, b in pairs])


@dataclass(frozen=True, slots=True)
class _Known:
    """A choice with its run's full id, and the arms that it means."""

    choice: SideChoice
    arms: tuple[str, ...]

    def side(self, arm: str) -> SideChoice:
        return replace(self.choice, arm=arm)


async def _known(reader: Reader, chosen: SideChoice) -> _Known:
    info = await reader.find_run(chosen.run, chosen.grading)
    arms = await reader.arms(info.id)
    if chosen.arm is not None and chosen.arm not in arms:
        raise ConfigurationError(f"run {info.id} has no arm {chosen.arm!r}; {nearest(chosen.arm, arms)}")
    exact = SideChoice(info.id, chosen.arm, info.grading)
    return _Known(exact, tuple(arms) if chosen.arm is None else (chosen.arm,))


def _within(one: _Known) -> list[tuple[SideChoice, SideChoice]]:
    pairs = list(combinations(map(one.side, one.arms), 2))
    if not pairs:
        run = one.choice.run
        raise ConfigurationError(f"run {run} alone gives one arm, and nothing to hold it against: name another run")
    return pairs


def _across(one: _Known, other: _Known) -> list[tuple[SideChoice, SideChoice]]:
    if len(one.arms) == len(other.arms) == 1:
        return [(one.side(one.arms[0]), other.side(other.arms[0]))]
    same = [arm for arm in one.arms if arm in other.arms]
    if not same:
        names = " and ".join(f"{known.choice.run} ({', '.join(known.arms)})" for known in (one, other))
        raise ConfigurationError(f"runs {names} have no arm of the same name: say RUN:ARM for each")
    return [(one.side(arm), other.side(arm)) for arm in same]


async def _side(reader: Reader, chosen: SideChoice) -> Side:
    assert chosen.arm is not None
    info = await reader.find_run(chosen.run, chosen.grading)
    judged = {name: dict(parts) for name, parts in info.lock.get("parts", {}).get("evals", {}).items()}
    for grading in await reader.gradings(info.id):
        if grading.number == info.grading:
            for name, source in grading.sources.items():
                by = {"source": source, "evaluation": digest(grading.evaluation)}
                judged[name] = {**judged.get(name, {}), **by}
    cases = await reader.side(info.id, chosen.arm, info.grading)
    return Side(run=info.id, arm=chosen.arm, grading=info.grading, judged=judged, cases=cases)
