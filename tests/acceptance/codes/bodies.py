"""Test bodies that end with a code on purpose: written as evals, run by the command, read back from the store."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import evalfleet

if TYPE_CHECKING:
    from evalfleet.api.programmatic import CaseResult
    from tests.acceptance.cli.conftest import Ended, Orchestrate

HEADER = "import asyncio, os\nfrom evalfleet import *\n\n"


@dataclass(frozen=True)
class Body:
    """A body, whose fault its end is, and the reason of one of its assertions; `options` are those of its eval."""

    source: str
    kind: str = "authoring"
    reason: str | None = None
    options: str = ""


def write_evals(project: Path, folder: str, bodies: Mapping[str, Body], decorator: str = "define_eval") -> None:
    """An eval a body below `evals/<folder>/`, named as its code in small letters."""
    (project / "evals" / folder).mkdir(parents=True)
    for code, body in bodies.items():
        written = textwrap.indent(body.source, "    ")
        options = f", {body.options}" if body.options else ""
        source = f'{HEADER}@{decorator}(description="Ends with {code}."{options})\nasync def body(t):\n{written}\n'
        (project / "evals" / folder / f"{code.lower()}.eval.py").write_text(source, encoding="utf-8")


def submit(orchestrate: Orchestrate, project: Path, experiment: Mapping[str, Any], *more: str) -> Ended:
    """A run of this experiment in the command's own process; `schema_version` and `name` go without saying."""
    document = {"schema_version": 1, "name": "codes", "retry": {"max_attempts": 1}, **experiment}
    (project / "experiment.yaml").write_text(json.dumps(document), encoding="utf-8")
    ended = orchestrate("submit", "experiment.yaml", "--inline", "--json", *more, cwd=project)
    assert ended.values and "run" in ended.values[-1], ended.out + ended.err
    return ended


def cases_of(orchestrate: Orchestrate, ended: Ended, key: str = "eval") -> dict[str, Any]:
    """The cases of a run by their eval, or by their arm, as the store has them."""
    run = ended.values[-1]["run"]["id"]
    return {case[key]: {**case, "run": run} for case in orchestrate("show", run, "--json").values}


def shown(orchestrate: Orchestrate, case: Mapping[str, Any]) -> dict[str, Any]:
    """The case with its evidence, as the store has it."""
    (value,) = orchestrate("show", case["run"], str(case["case"]), "--json").values
    return value


def evidence_of(orchestrate: Orchestrate, ended: Ended) -> list[CaseResult]:
    """All cases of a run with their evidence, as the Python API reads them at once."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("EVALFLEET_HOME", str(orchestrate.home))
        environment.setenv("EVALFLEET_DATABASE_URL", orchestrate.database_url)
        with evalfleet.open(ended.values[-1]["run"]["id"]) as run:
            return list(run.cases(evidence=True))


def ends_so(orchestrate: Orchestrate, case: Mapping[str, Any], code: str, body: Body) -> None:
    assert (case["status"], case["kind"], case["code"]) == ("errored", body.kind, code), json.dumps(case)
    if body.reason is not None:
        assert body.reason in json.dumps(shown(orchestrate, case)["attempt"]["assertions"])
