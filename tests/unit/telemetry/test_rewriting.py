"""Bodies made anew: nothing but secrets is taken away, and each span goes to its own trace."""

from __future__ import annotations

import re

import pytest

from evalfleet.redact import REPLACEMENT, Redactor
from evalfleet.telemetry.bodies import Delivery, Encoding
from evalfleet.telemetry.rewriting import by_attempt, without_secrets
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


#: Which attempt each trace is of; of any other nobody knows.
ATTEMPTS = {TRACE: 7, "01" * 16: 8}


def several() -> Delivery:
    """Spans of two attempts, of nobody, and two that can't be kept."""
    request = request_of("a", "b", "c", "foreign", "no id", "no trace")
    spans = request.resource_spans[0].scope_spans[0].spans
    spans[1].trace_id, spans[3].trace_id = b"\1" * 16, b"\2" * 16
    spans[4].span_id, spans[5].trace_id = b"", b"\1" * 3
    return Delivery(Encoding.PROTOBUF, request.SerializeToString(), 4)


def several_in_json() -> Delivery:
    own, odd = {"traceId": "01" * 16, "name": "b"}, {"spanId": "", "name": "no id"}
    spans = (sent_span(name="a"), sent_span(**own), sent_span(traceId=TRACE.upper(), name="c"))
    others = (sent_span(traceId="02" * 16, name="foreign"), sent_span(**odd), sent_span(traceId="zz", name="no trace"))
    return Delivery(Encoding.JSON, json_body(*spans, *others), 4)


@pytest.mark.parametrize("delivery", [several(), several_in_json()], ids=["protobuf", "json"])
def test_spans_of_several_attempts_are_taken_apart(delivery: Delivery) -> None:
    parts = by_attempt(delivery, ATTEMPTS.get)
    assert {attempt: [span.name for span in part.spans()] for attempt, part in parts.items()} == {
        7: ["a", "c"],
        8: ["b"],
    }
    assert {attempt: part.count for attempt, part in parts.items()} == {7: 2, 8: 1}
    assert all(span.source == delivery.spans()[0].source for part in parts.values() for span in part.spans())


def test_a_body_of_one_attempt_comes_back_as_it_is() -> None:
    delivery = Delivery(Encoding.PROTOBUF, request_of("a", "b").SerializeToString(), 2)
    assert by_attempt(delivery, ATTEMPTS.get)[7] is delivery
    assert by_attempt(delivery, {}.get) == {}


def test_a_body_of_very_many_traces_takes_one_pass() -> None:
    """Were it looked through for each of them, this would take minutes."""
    spans = [sent_span(traceId=f"{number:032x}") for number in range(1, 20_001)]
    assert by_attempt(Delivery(Encoding.JSON, json_body(*spans), len(spans)), ATTEMPTS.get) == {}
