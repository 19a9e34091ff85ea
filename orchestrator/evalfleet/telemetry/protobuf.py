"""OTLP's protobuf encoding of spans, read and answered. PURE.

A body is checked when it comes and decoded when its spans are kept: to make Python values of it takes ten times as
long as to check it, and nobody who sent it needs to wait for that.
"""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SentSpan

from evalfleet.model.span import (
    AttributeValue,
    Span,
    SpanLink,
    SpanNote,
    SpanSource,
)
from evalfleet.telemetry.decoded import KINDS, MOST_VALUES, STATUSES, BadBody, Tally, span_problem

_NO_TRACE, _NO_SPAN = bytes(16), bytes(8)


def check_protobuf(body: bytes) -> Tally:
    """What an ExportTraceServiceRequest holds, without making a value of it. Raises BadBody."""
    request = ExportTraceServiceRequest()
    try:
        request.ParseFromString(body)
    except DecodeError as error:
        raise BadBody(f"the body is no ExportTraceServiceRequest in protobuf: {error}") from None
    tally, good = Tally(), 0
    if len(body) > 2 * MOST_VALUES:  # a value has two bytes at least: only large bodies can have too many
        _count_values(request, tally)
    for group in request.resource_spans:
        for scoped in group.scope_spans:
            for sent in scoped.spans:
                # `problem_of` written out: a call for each span is half of what this takes
                trace_id, span_id = sent.trace_id, sent.span_id
                if (
                    len(trace_id) == 16
                    and len(span_id) == 8
                    and trace_id != _NO_TRACE
                    and span_id != _NO_SPAN
                    and not (sent.start_time_unix_nano | sent.end_time_unix_nano) >> 63
                ):
                    good += 1
                else:
                    tally.add(problem_of(sent))
    tally.accepted = good
    return tally


def decode_protobuf(body: bytes) -> list[Span]:
    """The spans that can be kept of a body that was checked."""
    request = ExportTraceServiceRequest()
    request.ParseFromString(body)
    spans: list[Span] = []
    for group in request.resource_spans:
        resource = _attributes(group.resource.attributes)
        for scoped in group.scope_spans:
            source = SpanSource(resource, scoped.scope.name, scoped.scope.version)
            spans.extend(_span(sent, source) for sent in scoped.spans if problem_of(sent) is None)
    return spans


def encode_answer(rejected: int, why: str) -> bytes:
    """An ExportTraceServiceResponse; it has no partial success where nothing was rejected, which clients take ill."""
    if not rejected:
        return ExportTraceServiceResponse().SerializeToString()
    partial = ExportTracePartialSuccess(rejected_spans=rejected, error_message=why)
    return ExportTraceServiceResponse(partial_success=partial).SerializeToString()


def encode_refusal(message: str) -> bytes:
    """A google.rpc.Status that has the message alone, its field 2."""
    # its two fields are not worth another dependency: a message of another type reads the same
    return ExportTracePartialSuccess(error_message=message).SerializeToString()


def _count_values(request: ExportTraceServiceRequest, tally: Tally) -> None:
    for group in request.resource_spans:
        tally.count(len(group.resource.attributes))
        for scoped in group.scope_spans:
            for sent in scoped.spans:
                tally.count(len(sent.attributes) + len(sent.events) + len(sent.links))


def problem_of(sent: SentSpan) -> str | None:
    """Why a span can't be kept, None when it can."""
    return span_problem(sent.trace_id.hex(), sent.span_id.hex(), sent.start_time_unix_nano, sent.end_time_unix_nano)


def _span(sent: SentSpan, source: SpanSource) -> Span:
    kind, code, message = sent.kind, 0, ""
    if sent.HasField("status"):
        code, message = sent.status.code, sent.status.message
    return Span(
        sent.trace_id.hex(),
        sent.span_id.hex(),
        None if sent.parent_span_id in (b"", _NO_SPAN) else sent.parent_span_id.hex(),
        sent.name,
        KINDS[kind] if 0 <= kind < len(KINDS) else KINDS[0],
        sent.start_time_unix_nano,
        sent.end_time_unix_nano,
        STATUSES[code] if 0 <= code < len(STATUSES) else STATUSES[0],
        message,
        _attributes(sent.attributes),
        source,
        tuple(SpanNote(each.time_unix_nano, each.name, _attributes(each.attributes)) for each in sent.events),
        tuple(SpanLink(each.trace_id.hex(), each.span_id.hex(), _attributes(each.attributes)) for each in sent.links),
    )


def _attributes(pairs: Sequence[KeyValue]) -> dict[str, AttributeValue]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> AttributeValue:
    # protobuf's own limit of 100 messages in each other bounds how deep this goes
    which = value.WhichOneof("value")
    if which == "string_value":
        return value.string_value
    if which == "array_value":
        return tuple(_value(each) for each in value.array_value.values)
    if which == "kvlist_value":
        return _attributes(value.kvlist_value.values)
    return None if which is None else getattr(value, which)
