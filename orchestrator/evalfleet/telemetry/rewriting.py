"""Bodies of spans made anew: without secrets, or one for each trace. PURE."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast

from google.protobuf.message import Message
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from evalfleet.telemetry.bodies import Delivery, Encoding
from evalfleet.telemetry.json_body import decode_json

#: What is text in JSON alone: ids, and numbers that JSON's own can't hold.
_EXACT = frozenset(
    {"traceId", "spanId", "parentSpanId", "startTimeUnixNano", "endTimeUnixNano", "timeUnixNano", "intValue"}
)


class Hides(Protocol):
    """What knows secrets: see `redact.Redactor`. False when it knows none."""

    @property
    def patterns(self) -> Sequence[object]: ...
    def text(self, text: str) -> str: ...
    def data(self, data: bytes) -> bytes: ...
    def __bool__(self) -> bool: ...


def without_secrets(delivery: Delivery, redactor: Hides) -> Delivery:
    """The delivery without what the redactor knows; the same one where it holds nothing of that."""
    if not redactor or (not redactor.patterns and redactor.data(delivery.body) == delivery.body):
        return delivery
    if delivery.encoding is Encoding.JSON:
        kept = _hidden(json.loads(delivery.body), redactor)
        return Delivery(Encoding.JSON, json.dumps(kept, separators=(",", ":")).encode(), delivery.count)
    request = ExportTraceServiceRequest()
    request.ParseFromString(delivery.body)
    _hide(request, redactor)
    return Delivery(Encoding.PROTOBUF, request.SerializeToString(), delivery.count)


def by_trace(delivery: Delivery) -> dict[str, Delivery]:
    """The delivery taken apart by trace id. A body that is one trace's comes back as it is."""
    if delivery.encoding is Encoding.JSON:
        return _json_by_trace(delivery)
    request = ExportTraceServiceRequest()
    request.ParseFromString(delivery.body)
    traces = {
        sent.trace_id.hex() for group in request.resource_spans for scoped in group.scope_spans for sent in scoped.spans
    }
    if len(traces) == 1:
        return {traces.pop(): delivery}
    found: dict[str, Delivery] = {}
    for trace in traces:
        part, count = ExportTraceServiceRequest(), 0
        for group in request.resource_spans:
            kept = part.resource_spans.add(resource=group.resource, schema_url=group.schema_url)
            for scoped in group.scope_spans:
                own = [sent for sent in scoped.spans if sent.trace_id.hex() == trace]
                if own:
                    kept.scope_spans.add(scope=scoped.scope, schema_url=scoped.schema_url, spans=own)
                    count += len(own)
        found[trace] = Delivery(Encoding.PROTOBUF, part.SerializeToString(), count)
    return found


def _json_by_trace(delivery: Delivery) -> dict[str, Delivery]:
    traces = {span.trace_id for span in decode_json(delivery.body)[0]}
    if len(traces) == 1:
        return {traces.pop(): delivery}
    found: dict[str, Delivery] = {}
    for trace in traces:
        count = 0

        def own(span: Mapping[str, Any], trace: str = trace) -> bool:
            nonlocal count
            mine = str(span.get("traceId", "")).lower() == trace
            count += mine
            return mine

        body = json.dumps(_kept(json.loads(delivery.body), own), separators=(",", ":")).encode()
        found[trace] = Delivery(Encoding.JSON, body, count)
    return found


def _kept(value: Any, own: Callable[[Mapping[str, Any]], bool]) -> Any:
    """A JSON request with those spans alone that are `own`."""
    for group in value.get("resourceSpans", ()):
        for scoped in group.get("scopeSpans", ()):
            scoped["spans"] = [span for span in scoped.get("spans", ()) if own(span)]
    return value


def _hidden(value: Any, redactor: Hides) -> Any:
    if isinstance(value, str):
        return redactor.text(value)
    if isinstance(value, list):
        return [_hidden(each, redactor) for each in cast("list[Any]", value)]
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {redactor.text(key): each if key in _EXACT else _hidden(each, redactor) for key, each in items}
    return value


def _hide(message: Message, redactor: Hides) -> None:
    for field, value in message.ListFields():
        if field.message_type is not None:
            for each in (value,) if isinstance(value, Message) else value:
                _hide(each, redactor)
        elif isinstance(value, str):
            setattr(message, field.name, redactor.text(value))
        elif field.name == "bytes_value":
            setattr(message, field.name, redactor.data(value))
