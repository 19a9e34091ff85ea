"""Bodies of spans as senders make them."""

from __future__ import annotations

import json
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

TRACE, SPAN, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "00f067aa0ba902b7"
START, END = 1_800_000_000_123_456_789, 1_800_000_001_123_456_789


def sent_span(**changed: Any) -> dict[str, Any]:
    """A span in OTLP's JSON; None takes a key away."""
    span = {
        "traceId": TRACE,
        "spanId": SPAN,
        "parentSpanId": PARENT,
        "name": "chat gpt-5",
        "kind": 3,
        "startTimeUnixNano": str(START),
        "endTimeUnixNano": str(END),
    } | changed
    return {key: value for key, value in span.items() if value is not None}


def attribute(key: str, **value: Any) -> dict[str, Any]:
    return {"key": key, "value": value}


def json_body(*spans: dict[str, Any]) -> bytes:
    """A body of the spans, of the service `shop` and the scope `lib 1.2`."""
    resource = {"attributes": [attribute("service.name", stringValue="shop")]}
    scoped = {"scope": {"name": "lib", "version": "1.2"}, "spans": list(spans)}
    return json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [scoped]}]}).encode()


def request_of(*names: str) -> ExportTraceServiceRequest:
    """A request of one span each name, of the same service and scope."""
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    group.resource.attributes.add(key="service.name").value.string_value = "shop"
    scoped = group.scope_spans.add()
    scoped.scope.name, scoped.scope.version = "lib", "1.2"
    for number, name in enumerate(names, 1):
        scoped.spans.add(
            trace_id=bytes.fromhex(TRACE),
            span_id=number.to_bytes(8, "big"),
            name=name,
            kind=3,
            start_time_unix_nano=START,
            end_time_unix_nano=END,
        )
    return request
