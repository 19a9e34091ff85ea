"""One attempt, run for real over a fake agent: `await attempt(body, …)` gives its evidence."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from evalfleet.clock import SystemClock
from evalfleet.execution.attempt import AttemptControl, AttemptJob, AttemptServices, Patience, run_attempt
from evalfleet.execution.threads import AuthorThreads
from evalfleet.model.case import Case
from evalfleet.model.definition import EvalDefinition, SourcePlace
from evalfleet.model.record import AttemptEvidence
from evalfleet.model.turn import Turn
from evalfleet.model.usage import Usage
from evalfleet.model.verdict import Style
from evalfleet.ports import ArmSettings
from evalfleet.testing.fakes import FakeAdapter, FakeSecrets

RunAttempt = Callable[..., Awaitable[AttemptEvidence]]

PROJECT = Path(__file__).parent


class NoOptions(BaseModel):
    """The options of a fake arm."""


def echo(turn: Any, ctx: Any) -> Turn:
    """An agent that says back what it hears."""
    return Turn(reply=turn.text, usage=Usage(input_tokens=0, output_tokens=0))


@pytest.fixture
def threads() -> Iterator[AuthorThreads]:
    pool = AuthorThreads()
    yield pool
    pool.close()


def a_job(body: Callable[..., Any], adapter: Any = None, **options: Any) -> AttemptJob:
    """An attempt of a body by an adapter, an answering function or a list of turns."""
    style = options.pop("style", Style.PASS)
    row = options.pop("row", None)
    definition = EvalDefinition(
        body=body,
        id="demo",
        style=style,
        place=SourcePlace(file=PROJECT / "demo.eval.py", line=1),
        allow_no_assertions=options.pop("allow_no_assertions", False),
        fixture=options.pop("fixture", None),
        serves=options.pop("serves", ()),
    )
    case = Case(
        ordinal=7,
        arm="arm",
        eval_id="demo",
        definition="demo",
        style=style,
        repetition=0,
        content="c",
        fingerprint=None,
        row=None if row is None else b"{}",
        external=options.pop("external", False),
    )
    arm = ArmSettings(
        name="arm",
        model=options.pop("model", "m"),
        flags=options.pop("flags", {}),
        options=NoOptions(),
        project=PROJECT,
    )
    return AttemptJob(
        run="run",
        attempt=11,
        case=case,
        definition=definition,
        row=row,
        arm=arm,
        adapter=adapter if hasattr(adapter, "open") else FakeAdapter(adapter or echo),
        sandbox=options.pop("sandbox", None),
        attempt_timeout=options.pop("timeout", None),
        turn_timeout=options.pop("turn_timeout", None),
        seed=options.pop("seed", 5),
        **options,
    )


@pytest.fixture
def make_job() -> Callable[..., AttemptJob]:
    return a_job


@pytest.fixture
def make_services(threads: AuthorThreads) -> Callable[..., AttemptServices]:
    def make(**options: Any) -> AttemptServices:
        given: dict[str, Any] = {
            "clock": SystemClock(),
            "secrets": FakeSecrets({}),
            "threads": threads,
            "patience": Patience(grace=0.1, evaluation=0.1, cleanup=0.2),
        }
        return AttemptServices(**{**given, **options})

    return make


@pytest.fixture
def attempt(make_job: Callable[..., AttemptJob], make_services: Callable[..., AttemptServices]) -> RunAttempt:
    """Run `body` against `adapter` (an adapter, an answering function or a list of turns)."""

    async def run(body: Callable[..., Any], adapter: Any = None, **options: Any) -> AttemptEvidence:
        services = options.pop("services", None) or make_services(**options.pop("using", {}))
        control = options.pop("control", None) or AttemptControl()
        return await run_attempt(make_job(body, adapter, **options), services, control)

    return run
