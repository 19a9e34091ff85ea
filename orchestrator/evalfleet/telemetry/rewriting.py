"""Bodies of spans made anew: without secrets, or one for each attempt. PURE."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Protocol, TypeVar, cast

from google.protobuf.message import Message
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from evalfleet.telemetry.bodies import Delivery, Encoding
from evalfleet.telemetry.json_body import decode_json
from evalfleet.telemetry.protobuf import problem_of

S = TypeVar("S")
_TRACE = re.compile("[0-9a-f]{32}")

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


def by_attempt(delivery: Delivery, attempt_of: Callable[[str], int | None]) -> dict[int, Delivery]:
    """The delivery taken apart by what `attempt_of` says of a trace id; spans of which it knows none are left out.

    A body that is one attempt's comes back as it is.
    """
    parts = _protobuf_parts if delivery.encoding is Encoding.PROTOBUF else _json_parts
    found = parts(delivery.body, cache(attempt_of))
    if len(found) == 1 and all(part.count == delivery.count for part in found.values()):
        return dict.fromkeys(found, delivery)
    return found


def _protobuf_parts(body: bytes, attempt_of: Callable[[str], int | None]) -> dict[int, Delivery]:
    request = ExportTraceServiceRequest()
    request.ParseFromString(body)
    parts: dict[int, ExportTraceServiceRequest] = {}
    counts = Counter[int]()
    for group in request.resource_spans:
        for scoped in group.scope_spans:
            sound = (sent for sent in scoped.spans if problem_of(sent) is None)
            for attempt, spans in _grouped(sound, lambda sent: attempt_of(sent.trace_id.hex())).items():
                part = parts.setdefault(attempt, ExportTraceServiceRequest())
                kept = part.resource_spans.add(resource=group.resource, schema_url=group.schema_url)
                kept.scope_spans.add(scope=scoped.scope, schema_url=scoped.schema_url, spans=spans)
                counts[attempt] += len(spans)
    return {
        attempt: Delivery(Encoding.PROTOBUF, part.SerializeToString(), counts[attempt])
        for attempt, part in parts.items()
    }


def _json_parts(body: bytes, attempt_of: Callable[[str], int | None]) -> dict[int, Delivery]:
    def own(span: Mapping[str, Any]) -> int | None:
        trace = str(span.get("traceId", "")).lower()
        return attempt_of(trace) if _TRACE.fullmatch(trace) else None

    parts: dict[int, list[dict[str, Any]]] = {}
    for group in json.loads(body).get("resourceSpans") or ():
        for scoped in group.get("scopeSpans") or ():
            for attempt, spans in _grouped(scoped.get("spans") or (), own).items():
                parts.setdefault(attempt, []).append({**group, "scopeSpans": [{**scoped, "spans": spans}]})
    bodies = {attempt: json.dumps({"resourceSpans": groups}).encode() for attempt, groups in parts.items()}
    return {
        attempt: Delivery(Encoding.JSON, part, tally.accepted)
        for attempt, part in bodies.items()
        if (tally := decode_json(part)[1]).accepted
    }


def _grouped(spans: Iterable[S], attempt_of: Callable[[S], int | None]) -> dict[int, list[S]]:
    found: dict[int, list[S]] = {}
    for span in spans:
        if (attempt := attempt_of(span)) is not None:
            found.setdefault(attempt, []).append(span)
    return found


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
