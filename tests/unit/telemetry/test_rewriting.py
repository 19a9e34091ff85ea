"""Bodies made anew: nothing but secrets is taken away, and each span goes to its own trace."""

from __future__ import annotations

import json
import re

import pytest

from evalfleet.redact import REPLACEMENT, Redactor
from evalfleet.telemetry.bodies import Delivery, Encoding
from evalfleet.telemetry.rewriting import by_trace, without_secrets
from tests.unit.telemetry.bodies import SPAN, TRACE, attribute, json_body, request_of, sent_span

SECRET = "sesame-sesame-1234"


def protobuf() -> Delivery:
    request = request_of("call", f"uses {SECRET}")
    span = request.resource_spans[0].scope_spans[0].spans[0]
    deep = span.attributes.add(key="args").value.kvlist_value.values.add(key="list").value.array_value.values.add()
    deep.string_value = f"Bearer {SECRET}"
    span.attributes.add(key="raw").value.bytes_value = b"\xff" + SECRET.encode()
    span.events.add(name="retry").attributes.add(key=SECRET).value.int_value = 3
    span.status.message = f"refused {SECRET}"
    return Delivery(Encoding.PROTOBUF, request.SerializeToString(), 2)


def as_json() -> Delivery:
    return Delivery(
        Encoding.JSON, json_body(sent_span(name=f"{SECRET}", attributes=[attribute("k", stringValue=SECRET)])), 1
    )


@pytest.mark.parametrize("delivery", [protobuf(), as_json()], ids=["protobuf", "json"])
def test_a_secret_is_nowhere_and_all_else_is_as_it_was(delivery: Delivery) -> None:
    hidden = without_secrets(delivery, Redactor.of([SECRET]))
    assert SECRET.encode() not in hidden.body and REPLACEMENT.encode() in hidden.body
    expected = repr(delivery.spans()).replace(SECRET, REPLACEMENT)
    assert (repr(hidden.spans()), hidden.count) == (expected, delivery.count)


@pytest.mark.parametrize("delivery", [protobuf(), as_json()], ids=["protobuf", "json"])
def test_a_body_without_one_is_the_same_body(delivery: Delivery) -> None:
    assert without_secrets(delivery, Redactor.of(["another-secret"])) is delivery
    assert without_secrets(delivery, Redactor()) is delivery


def test_patterns_find_what_stands_in_texts_and_never_an_id() -> None:
    redactor = Redactor((), (re.compile("[0-9a-f]{16,}"), re.compile("ses[a-z-]+")))
    (span,) = without_secrets(as_json(), redactor).spans()
    assert (span.name, span.trace_id, span.span_id) == (f"{REPLACEMENT}1234", TRACE, SPAN)


def test_spans_of_several_traces_are_taken_apart() -> None:
    request = request_of("a", "b", "c")
    spans = request.resource_spans[0].scope_spans[0].spans
    spans[1].trace_id = b"\1" * 16
    delivery = Delivery(Encoding.PROTOBUF, request.SerializeToString(), 3)
    parts = by_trace(delivery)
    assert {trace: [span.name for span in part.spans()] for trace, part in parts.items()} == {
        TRACE: ["a", "c"], "01" * 16: ["b"],
    }  # fmt: skip
    assert {part.count for part in parts.values()} == {1, 2}
    assert all(span.source == delivery.spans()[0].source for part in parts.values() for span in part.spans())


def test_spans_of_several_traces_are_taken_apart_in_json_too() -> None:
    body = json_body(sent_span(), sent_span(traceId="01" * 16, name="b"), sent_span(traceId=TRACE.upper(), name="c"))
    parts = by_trace(Delivery(Encoding.JSON, body, 3))
    assert {trace: [span.name for span in part.spans()] for trace, part in parts.items()} == {
        TRACE: ["chat gpt-5", "c"], "01" * 16: ["b"],
    }  # fmt: skip
    assert json.loads(parts[TRACE].body)["resourceSpans"][0]["resource"]["attributes"][0]["key"] == "service.name"


def test_a_body_of_one_trace_comes_back_as_it_is() -> None:
    delivery = Delivery(Encoding.PROTOBUF, request_of("a", "b").SerializeToString(), 2)
    assert by_trace(delivery)[TRACE] is delivery
