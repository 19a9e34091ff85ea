"""The spans of an attempt, decoded from the bodies that they came in: only who looks at spans pays for that."""

from __future__ import annotations

from collections.abc import Iterable

from evalfleet.reports.waterfall import Waterfall, waterfall
from evalfleet.telemetry.bodies import Delivery, Encoding

_ENCODINGS = tuple(Encoding)


def waterfall_of(bodies: Iterable[tuple[int, bytes, int]]) -> Waterfall:
    """The waterfall of stored bodies: encoding, body and number of spans each."""
    deliveries = (Delivery(_ENCODINGS[encoding], body, spans) for encoding, body, spans in bodies)
    return waterfall(span for delivery in deliveries for span in delivery.spans())
