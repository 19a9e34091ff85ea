"""Spans from their bytes: both encodings say the same, what can't be read is refused by name, and nothing is lost."""

from __future__ import annotations

import gzip
import itertools
import json
import math
import tracemalloc
from typing import Any

import pytest
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from evalfleet.model.span import Span, SpanKind, SpanLink, SpanNote, SpanSource, SpanStatus
from evalfleet.telemetry.bodies import (
    LARGEST_BODY,
    Encoding,
    TooLarge,
    answer,
    encoding_of,
    expand,
    open_body,
    refusal,
)
from evalfleet.telemetry.decoded import MOST_VALUES, BadBody
from evalfleet.telemetry.json_body import decode_json
from evalfleet.telemetry.protobuf import check_protobuf, decode_protobuf
from tests.unit.telemetry.bodies import END, PARENT, SPAN, START, TRACE, attribute, json_body, request_of, sent_span

SOURCE = SpanSource({"service.name": "shop"}, "lib", "1.2")

#: One value of each kind, as JSON has it and as it is.
VALUES: dict[str, tuple[dict[str, Any], Any]] = {
    "text": ({"stringValue": "ü\0x"}, "ü\0x"),
    "exact": ({"intValue": "9007199254740993"}, 9007199254740993),
    "number": ({"intValue": 7}, 7),
    "least": ({"intValue": "-9223372036854775808"}, -(1 << 63)),
    "flag": ({"boolValue": False}, False),
    "float": ({"doubleValue": 0.5}, 0.5),
    "endless": ({"doubleValue": "-Infinity"}, -math.inf),
    "bytes": ({"bytesValue": "AAH/"}, b"\0\1\xff"),
    "list": ({"arrayValue": {"values": [{"intValue": "1"}, {"stringValue": "b"}, {}]}}, (1, "b", None)),
    "map": ({"kvlistValue": {"values": [{"key": "k", "value": {"arrayValue": {}}}]}}, {"k": ()}),
    "nothing": ({}, None),
}


def full_json() -> bytes:
    return json_body(
        sent_span(
            attributes=[attribute(name, **sent) for name, (sent, _) in VALUES.items()],
            status={"code": 2, "message": "broke"},
            events=[{"timeUnixNano": "5", "name": "exception", "attributes": [attribute("a", intValue="1")]}],
            links=[{"traceId": TRACE, "spanId": PARENT, "attributes": []}],
        )
    )


def full_protobuf() -> bytes:
    request = request_of("chat gpt-5")
    span = request.resource_spans[0].scope_spans[0].spans[0]
    span.span_id, span.parent_span_id = bytes.fromhex(SPAN), bytes.fromhex(PARENT)
    span.status.code, span.status.message = 2, "broke"
    noted = span.events.add(time_unix_nano=5, name="exception")
    noted.attributes.add(key="a").value.int_value = 1
    span.links.add(trace_id=bytes.fromhex(TRACE), span_id=bytes.fromhex(PARENT))
    for name, (sent, value) in VALUES.items():
        into = span.attributes.add(key=name).value
        match sent:
            case {"arrayValue": _}:
                into.array_value.values.add().int_value = 1
                into.array_value.values.add().string_value = "b"
                into.array_value.values.add()
            case {"kvlistValue": _}:
                into.kvlist_value.values.add(key="k").value.array_value.SetInParent()
            case {"stringValue": _}:
                into.string_value = value
            case {"intValue": _}:
                into.int_value = value
            case {"boolValue": _}:
                into.bool_value = value
            case {"doubleValue": _}:
                into.double_value = value
            case {"bytesValue": _}:
                into.bytes_value = value
    return request.SerializeToString()


@pytest.mark.parametrize(
    "spans", [decode_json(full_json())[0], decode_protobuf(full_protobuf())], ids=["json", "proto"]
)
def test_all_that_a_span_says_is_kept(spans: list[Span]) -> None:
    assert spans == [
        Span(
            TRACE,
            SPAN,
            PARENT,
            "chat gpt-5",
            SpanKind.CLIENT,
            START,
            END,
            SpanStatus.ERROR,
            "broke",
            {name: value for name, (_, value) in VALUES.items()},
            SOURCE,
            (SpanNote(5, "exception", {"a": 1}),),
            (SpanLink(TRACE, PARENT, {}),),
        )
    ]
    assert [type(value) for value in spans[0].attributes.values()] == [type(value) for _, value in VALUES.values()]


@pytest.mark.parametrize(
    ("changed", "field", "expected"),
    [
        ({"traceId": TRACE.upper()}, "trace_id", TRACE),
        ({"parentSpanId": None}, "parent_id", None),
        ({"parentSpanId": ""}, "parent_id", None),
        ({"parentSpanId": "0" * 16}, "parent_id", None),
        ({"kind": "SPAN_KIND_SERVER"}, "kind", SpanKind.SERVER),
        ({"kind": 99}, "kind", SpanKind.UNSPECIFIED),
        ({"kind": None}, "kind", SpanKind.UNSPECIFIED),
        ({"status": {"code": "STATUS_CODE_OK"}}, "status", SpanStatus.OK),
        ({"status": {}}, "status", SpanStatus.UNSET),
        ({"startTimeUnixNano": 12}, "start_ns", 12),
        ({"endTimeUnixNano": None}, "end_ns", 0),
        ({"nobodyKnows": {"a": [1]}, "flags": 256}, "name", "chat gpt-5"),
    ],
)
def test_json_in_its_variants(changed: dict[str, Any], field: str, expected: object) -> None:
    spans, tally = decode_json(json_body(sent_span(**changed)))
    assert (getattr(spans[0], field), tally.accepted, tally.rejected) == (expected, 1, 0)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            b'{"resource_spans":[{"resource":{"attributes":[{"key":"k","value":{"Value":{"StringValue":"x"}}}]},'
            b'"scope_spans":[]}]}',
            "'resource_spans'",
        ),
        (b'{"ResourceSpans":[]}', "'ResourceSpans'"),
        (b'{"spans":[]}', "'spans'"),
        (b'{"resourceSpans":[{"scope_spans":[]}]}', "'scope_spans'"),
        (json_body(sent_span(attributes=[attribute("k", Value={"StringValue": "x"})])), "'Value'"),
        (json_body(sent_span(attributes=[attribute("k", string_value="x")])), "'string_value'"),
        (json_body(sent_span(traceId=None, trace_id=TRACE)), "'trace_id'"),
        (json_body(sent_span(attributes=[attribute("k", intValue="7_0")])), "intValue"),
        (json_body(sent_span(attributes=[attribute("k", intValue=str(1 << 63))])), "intValue"),
        (json_body(sent_span(attributes=[attribute("k", intValue=True)])), "intValue"),
        (json_body(sent_span(attributes=[attribute("k", boolValue="yes")])), "boolValue"),
        (json_body(sent_span(attributes=[attribute("k", bytesValue="ä")])), "bytesValue"),
        (json_body(sent_span(attributes=[attribute("k", doubleValue="big")])), "doubleValue"),
        (json_body(sent_span(name=5)), "name"),
        (json_body(sent_span(startTimeUnixNano="yesterday")), "startTimeUnixNano"),
        (json_body(sent_span(events={})), "events"),
        (b"[]", "no JSON object"),
        (b"\xff", "no JSON"),
        (b"{", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b'{"resourceSpans":[{"resource":{"attributes":[{"key":"k","value":'
         + b'{"arrayValue":{"values":[' * 60 + b"]}}" * 60 + b"}]}}]}", "more than 50"),
    ],
    ids=itertools.count(),
)  # fmt: skip
def test_json_that_is_not_otlps_is_refused_by_name(body: bytes, said: str) -> None:
    with pytest.raises(BadBody, match=said):
        decode_json(body)


@pytest.mark.parametrize(
    "body", [b"\x0a\xff", b"hello", b"\x0a\x04\x0a\x02\x0a\x09", json_body()], ids=itertools.count()
)
def test_bytes_that_are_no_protobuf_are_refused(body: bytes) -> None:
    with pytest.raises(BadBody, match="ExportTraceServiceRequest"):
        check_protobuf(body)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"traceId": "0" * 32}, "trace id"),
        ({"traceId": "CvdlGRbNQ92ESOschDDxnA=="}, "hexadecimal"),
        ({"traceId": TRACE[:-2]}, "trace id"),
        ({"spanId": "0" * 16}, "the id"),
        ({"spanId": None}, "the id"),
        ({"endTimeUnixNano": str(1 << 63)}, "2262"),
    ],
)
def test_a_span_that_cant_be_kept_is_counted_beside_those_that_can(changed: dict[str, Any], said: str) -> None:
    spans, tally = decode_json(json_body(sent_span(), sent_span(**changed), sent_span(**changed)))
    assert (len(spans), tally.accepted, tally.rejected) == (1, 1, 2)
    assert said in tally.why


def test_protobuf_counts_what_it_keeps_as_it_decodes_it() -> None:
    request = request_of(*"abcdef")
    sent = request.resource_spans[0].scope_spans[0].spans
    sent[1].trace_id = bytes(16)
    sent[2].span_id = b"short"
    sent[3].end_time_unix_nano = 1 << 63
    sent[4].span_id = bytes(8)
    tally = check_protobuf(request.SerializeToString())
    assert (tally.accepted, tally.rejected) == (2, 4)
    assert [span.name for span in decode_protobuf(request.SerializeToString())] == ["a", "f"]


def test_a_body_of_countless_tiny_values_is_refused_before_any_is_made() -> None:
    request = request_of("a")
    for _ in range(MOST_VALUES + 1):
        request.resource_spans[0].scope_spans[0].spans[0].events.add()
    with pytest.raises(BadBody, match=str(MOST_VALUES)):
        check_protobuf(request.SerializeToString())
    many = json_body(sent_span(attributes=[{}] * (MOST_VALUES + 1)))
    with pytest.raises(BadBody, match=str(MOST_VALUES)):
        decode_json(many)


@pytest.mark.parametrize(
    ("content_type", "encoding"),
    [
        ("application/x-protobuf", Encoding.PROTOBUF),
        ("application/protobuf", Encoding.PROTOBUF),
        ("application/json; charset=utf-8", Encoding.JSON),
        ("Application/JSON;charset=UTF-8", Encoding.JSON),
        ("application/jsonp", None),
        ("text/plain", None),
        ("", None),
    ],
)
def test_media_types(content_type: str, encoding: Encoding | None) -> None:
    assert encoding_of(content_type) is encoding


@pytest.mark.parametrize("encoding", Encoding)
@pytest.mark.parametrize("compressed", [True, False])
def test_an_empty_body_holds_nothing(encoding: Encoding, compressed: bool) -> None:
    delivery, tally = open_body(encoding, b"", compressed=compressed)
    assert (list(delivery.spans()), tally.accepted, tally.rejected) == ([], 0, 0)
    assert open_body(Encoding.JSON, b"{}", compressed=False)[1].accepted == 0


@pytest.mark.parametrize("compressed", [True, False])
def test_gzip_is_known_by_its_header_or_its_first_bytes(compressed: bool) -> None:
    body = gzip.compress(full_protobuf())
    delivery, _ = open_body(Encoding.PROTOBUF, body, compressed=compressed)
    assert [span.name for span in delivery.spans()] == ["chat gpt-5"]
    halves = gzip.compress(full_json()[:50]) + gzip.compress(full_json()[50:])
    assert open_body(Encoding.JSON, halves, compressed=compressed)[0].spans() == decode_json(full_json())[0]


def test_gzip_that_is_none_breaks_off_or_never_ends_is_refused() -> None:
    packed = gzip.compress(b"x" * 1000)
    with pytest.raises(BadBody, match="no gzip"):
        open_body(Encoding.JSON, b"{}", compressed=True)
    with pytest.raises(BadBody, match="breaks off"):
        expand(packed[:-9])
    with pytest.raises(BadBody, match="no gzip"):
        expand(packed + b"rest")
    with pytest.raises(BadBody, match="one behind the other"):
        expand(gzip.compress(b"") * 1000)


def test_a_bomb_is_refused_while_it_expands() -> None:
    assert len(expand(gzip.compress(bytes(LARGEST_BODY)))) == LARGEST_BODY
    bombs = [gzip.compress(bytes(100 << 20), 9), gzip.compress(bytes(LARGEST_BODY)) + gzip.compress(b"x")]
    for bomb in bombs:
        tracemalloc.start()
        with pytest.raises(TooLarge, match=str(LARGEST_BODY)):
            expand(bomb)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 4 * LARGEST_BODY


def test_a_success_has_no_partial_success_and_a_partial_one_says_how_many() -> None:
    assert answer(Encoding.PROTOBUF, 0, "") == b""
    assert answer(Encoding.JSON, 0, "") == b"{}"
    partial = ExportTraceServiceResponse.FromString(answer(Encoding.PROTOBUF, 2, "late")).partial_success
    assert (partial.rejected_spans, partial.error_message) == (2, "late")
    assert json.loads(answer(Encoding.JSON, 2, "late")) == {
        "partialSuccess": {"rejectedSpans": "2", "errorMessage": "late"}
    }


def test_an_error_is_a_status_in_the_encoding_of_the_request() -> None:
    assert Status.FromString(refusal(Encoding.PROTOBUF, "no ü")).message == "no ü"
    assert json.loads(refusal(Encoding.JSON, "no ü")) == {"message": "no ü"}


def test_a_request_without_spans_is_none_to_speak_of() -> None:
    assert check_protobuf(ExportTraceServiceRequest().SerializeToString()).accepted == 0
