"""The receiver of agents that run elsewhere and know no attempt's address: whose a span is, its trace id says."""

from __future__ import annotations

import math
from collections.abc import Sequence

from evalfleet.telemetry.bodies import Delivery
from evalfleet.telemetry.inbox import Arrived, Inbox
from evalfleet.telemetry.receiver import AttemptSpans
from evalfleet.telemetry.rewriting import by_attempt
from evalfleet.telemetry.traces import owner_of


class PortSpans(AttemptSpans):
    """Takes the spans of all attempts of a run. An ASGI application; spans of other traces are rejected and counted."""

    def __init__(self, inbox: Inbox, run: str, run_key: int) -> None:
        super().__init__(inbox, 0)
        self._most = math.inf
        self._run = run
        self._run_key = run_key

    def _sorted(self, delivery: Delivery) -> tuple[Sequence[Arrived], int]:
        arrived = [Arrived(attempt, part) for attempt, part in by_attempt(delivery, self._attempt_of).items()]
        return arrived, delivery.count - sum(each.delivery.count for each in arrived)

    def _attempt_of(self, trace: str) -> int | None:
        owner = owner_of(trace)
        return owner.attempt if owner.run_key == self._run_key and owner.is_of(self._run) else None
