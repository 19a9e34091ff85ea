"""Where the agent of an attempt sends its spans, as the attempt knows it: an address, and nothing that comes in there.

No assertion sees a span: they are what an agent says of its own timing, and go past the attempt into the store.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from evalfleet.redact import Redactor
from evalfleet.sandbox_ports import Routes

if TYPE_CHECKING:
    from evalfleet.execution.job import AttemptJob


class SpanOutlet(Protocol):
    """The receiver of one attempt's spans."""

    @property
    def routes(self) -> Routes:
        """What the gateway of its sandbox serves."""
        ...

    @property
    def traceparent(self) -> str:
        """The W3C header that makes what is sent a part of the attempt's trace."""
        ...

    def environment(self, base: str | None = None) -> Mapping[str, str]:
        """What OpenTelemetry's SDKs read: for a sandbox whose gateway lies at `base`, or for who runs beside us."""
        ...

    def end(self) -> None:
        """The attempt is over; what still comes within the run's grace is kept."""
        ...


class SpanOutlets(Protocol):
    """The receivers of one worker's attempts."""

    async def open(self, job: AttemptJob, redactor: Callable[[], Redactor]) -> SpanOutlet:
        """One for an attempt; `redactor` gives what knows its secrets by now."""
        ...

    def close(self) -> Awaitable[None]:
        """Wait for the grace of the last ones, and write down what came."""
        ...
