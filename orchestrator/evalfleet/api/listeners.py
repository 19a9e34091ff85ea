"""Who is told what of a run while it is carried out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from evalfleet.model.report import RunProgress
from evalfleet.model.sandbox import DefaultBackend
from evalfleet.reports.cost_estimate import CostEstimate
from evalfleet.store.planned import UnfinishedRun

#: Seconds for which an observer may take over one call.
OBSERVER_DEADLINE = 120.0


@dataclass(frozen=True, slots=True)
class Observer:
    """A function that is told each run event in order, in a thread unless it is a coroutine function.

    With `by_page` it is told all at once that came together, as a sequence. It has `deadline` seconds for a call.
    """

    tell: Callable[[Any], Awaitable[None] | None]
    by_page: bool = False
    deadline: float = OBSERVER_DEADLINE


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Who is called, each of which may be missing.

    `progress` gets the live counters about once a second, `created` the run's id as soon as it exists, `unfinished` a
    run of the same definitions that never ended, and answers whether to go on with it. `default_backend` is told
    before there is a run which backend sandboxes have that name none, if there are any. `costly` is told what a run may
    cost that has to be confirmed, and answers whether it may begin.
    """

    progress: Callable[[RunProgress], None] | None = None
    created: Callable[[str], None] | None = None
    unfinished: Callable[[UnfinishedRun], bool] | None = None
    observer: Observer | None = None
    default_backend: Callable[[DefaultBackend], None] | None = None
    costly: Callable[[CostEstimate], bool] | None = None


NOBODY = Listeners()
