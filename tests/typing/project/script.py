"""The Python API over runs."""

from __future__ import annotations

from typing import Any, assert_type

import evalfleet


async def labels() -> list[str | None]:
    run = await evalfleet.run("experiment.yaml", select=["weather"], overrides={"repetitions": "1"})
    assert_type(run.is_accepted(lambda report: report["status"] == "completed"), bool)
    first = [case.first_divergence() for case in run.cases(status="failed")]
    return [None if one is None else one.label for one in first]


def arms(run: str) -> Any:
    with evalfleet.open(run) as again:
        return again.summary["arms"]


def fields() -> list[str | None]:
    try:
        evalfleet.run_sync("gone.yaml")
    except evalfleet.DefinitionError as error:
        return [problem.field for problem in error.problems]
    return []
