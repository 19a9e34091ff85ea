"""The receiver of agents that run elsewhere and know no attempt's address: whose a span is, its trace id says."""

from __future__ import annotations

from collections.abc import Sequence

from evalfleet.telemetry.bodies import Delivery
from evalfleet.telemetry.inbox import Arrived, Inbox
from evalfleet.telemetry.receiver import AttemptSpans
from evalfleet.telemetry.rewriting import by_trace
from evalfleet.telemetry.traces import owner_of


class PortSpans(AttemptSpans):
    """Takes the spans of all attempts of a run. An ASGI application; spans of other traces are rejected and counted."""

    def __init__(self, inbox: Inbox, run: str, run_key: int) -> None:
        super().__init__(inbox, 0)
        self._run = run
        self._run_key = run_key

    def _sorted(self, delivery: Delivery) -> tuple[Sequence[Arrived], int]:
        arrived: list[Arrived] = []
        foreign = 0
        for trace, part in by_trace(delivery).items():
            owner = owner_of(trace)
            if owner.run_key == self._run_key and owner.is_of(self._run):
                arrived.append(Arrived(owner.attempt, part))
            else:
                foreign += part.count
        return arrived, foreign
