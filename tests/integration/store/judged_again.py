"""Judging a run's attempts again, as a test wants them judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from evalfleet.model.grading import Basis, Regrading
from evalfleet.model.verdict import Verdict
from evalfleet.store.artifacts import FileArtifacts
from evalfleet.store.gradings import RecordedAttempt, Regrader

Judge = Callable[[RecordedAttempt], Regrading]


def as_it_was(found: RecordedAttempt) -> Regrading:
    return Regrading(evidence=found.evidence, basis=Basis.REPLAYED)


def kept(found: RecordedAttempt) -> Regrading:
    return Regrading(evidence=found.evidence, basis=Basis.KEPT, reason="not-recorded: a test says so")


def as_verdicts(verdicts: Mapping[int, Verdict]) -> Judge:
    """Each case judged so, with a message and a relabelled assertion; the others kept."""

    def judge(found: RecordedAttempt) -> Regrading:
        verdict = verdicts.get(found.case.ordinal)
        if verdict is None:
            return kept(found)
        summary = replace(found.evidence.summary, verdict=verdict, kind=None, code=None, message=f"now {verdict.value}")
        rows = tuple(replace(row, label="renamed") for row in found.evidence.assertions)
        return Regrading(evidence=replace(found.evidence, summary=summary, assertions=rows), basis=Basis.REPLAYED)

    return judge


async def judge_again(
    url: str, run: str, judge: Judge = as_it_was, artifacts: Path = Path("/nowhere"), *, only_unavailable: bool = False
) -> int:
    """The number of a new grading of the run."""
    regrader = await Regrader.open(url, run, FileArtifacts(str(artifacts)))
    try:
        async for page in regrader.pages(only_unavailable=only_unavailable):
            await regrader.add([regrader.encode(judge(found)) for found in page])
        return await regrader.commit(who="ann", why="stricter", evaluation=1, sources={"sql": "ab" * 32})
    finally:
        await regrader.close()
