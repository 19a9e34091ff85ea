"""OTLP's JSON encoding of spans, read and answered. PURE.

Unlike protobuf's own JSON it has ids in hexadecimal. Keys that are not known are passed over, but for those that are a
known key in another spelling: spans under `resource_spans` would else vanish with a 200.
"""

from __future__ import annotations

import base64
import re
from typing import Any, cast

import msgspec

from evalfleet.model.span import AttributeValue, Span, SpanLink, SpanNote, SpanSource
from evalfleet.telemetry.decoded import DEEPEST, KINDS, STATUSES, BadBody, Tally, span_problem

_HEX = re.compile(r"[0-9a-f]*")
_WHOLE = re.compile(r"-?[0-9]{1,20}")
_VALUES = ("stringValue", "intValue", "boolValue", "doubleValue", "arrayValue", "kvlistValue", "bytesValue")
_KNOWN = (
    *_VALUES,
    "resourceSpans",
    "scopeSpans",
    "traceId",
    "spanId",
    "parentSpanId",
    "startTimeUnixNano",
    "endTimeUnixNano",
    "timeUnixNano",
)
#: Spellings of known keys that are not OTLP's: `resource_spans`, `ResourceSpans`.
_MISSPELT = {
    spelling: key
    for key in _KNOWN
    for spelling in (re.sub("([A-Z])", lambda found: "_" + found[1].lower(), key), key[0].upper() + key[1:])
}
_FLOATS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_Object = dict[str, Any]


def decode_json(body: bytes) -> tuple[list[Span], Tally]:
    """The spans of an ExportTraceServiceRequest that can be kept, in its order. Raises BadBody."""
    try:
        value: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadBody(f"the body is no JSON: {error}") from None
    request = _object(value, "the body")
    if request and "resourceSpans" not in request:
        raise BadBody(f"the body has {next(iter(request))!r} where 'resourceSpans' was expected")
    tally = Tally()
    spans: list[Span] = []
    for group in _objects(request, "resourceSpans"):
        resource = _attributes(_field(group, "resource"), tally)
        for scoped in _objects(group, "scopeSpans"):
            scope = _field(scoped, "scope")
            source = SpanSource(resource, _text(scope, "name"), _text(scope, "version"))
            spans.extend(span for each in _objects(scoped, "spans") if (span := _span(each, source, tally)))
    return spans, tally


def encode_answer(rejected: int, why: str) -> bytes:
    """An ExportTraceServiceResponse; 64-bit numbers are written as strings."""
    if not rejected:
        return b"{}"
    return msgspec.json.encode({"partialSuccess": {"rejectedSpans": str(rejected), "errorMessage": why}})


def encode_refusal(message: str) -> bytes:
    """A google.rpc.Status that has the message alone."""
    return msgspec.json.encode({"message": message})


def _span(sent: _Object, source: SpanSource, tally: Tally) -> Span | None:
    trace_id, span_id = _text(sent, "traceId").lower(), _text(sent, "spanId").lower()
    start, end = _whole(sent, "startTimeUnixNano"), _whole(sent, "endTimeUnixNano")
    if not _HEX.fullmatch(trace_id) or not _HEX.fullmatch(span_id):
        problem: str | None = f"a span has the ids {trace_id[:64]!r} and {span_id[:64]!r}, which are not hexadecimal"
    else:
        problem = span_problem(trace_id, span_id, start, end)
    if not tally.add(problem):
        return None
    parent, status = _text(sent, "parentSpanId").lower(), _field(sent, "status")
    return Span(
        trace_id,
        span_id,
        parent if parent.strip("0") else None,
        _text(sent, "name"),
        KINDS[_choice(sent, "kind", tuple(f"SPAN_KIND_{each.upper()}" for each in KINDS))],
        start,
        end,
        STATUSES[_choice(status, "code", tuple(f"STATUS_CODE_{each.upper()}" for each in STATUSES))],
        _text(status, "message"),
        _attributes(sent, tally),
        source,
        tuple(
            SpanNote(_whole(each, "timeUnixNano"), _text(each, "name"), _attributes(each, tally))
            for each in _counted(_objects(sent, "events"), tally)
        ),
        tuple(
            SpanLink(_text(each, "traceId").lower(), _text(each, "spanId").lower(), _attributes(each, tally))
            for each in _counted(_objects(sent, "links"), tally)
        ),
    )


def _attributes(owner: _Object, tally: Tally, depth: int = 0, key: str = "attributes") -> dict[str, AttributeValue]:
    pairs = _counted(_objects(owner, key), tally)
    return {_text(pair, "key"): _value(_field(pair, "value"), tally, depth) for pair in pairs}


def _counted(items: list[_Object], tally: Tally) -> list[_Object]:
    tally.count(len(items))
    return items


def _value(sent: _Object, tally: Tally, depth: int) -> AttributeValue:
    """An AnyValue; an empty one is None."""
    if depth >= DEEPEST:
        raise BadBody(f"the value of an attribute lies in more than {DEEPEST} others")
    kind = next((each for each in _VALUES if each in sent), None)
    if kind is None:
        if sent:
            raise BadBody(
                f"the value of an attribute has {next(iter(sent))!r} where one of {', '.join(_VALUES)} stands"
            )
        return None
    value = sent[kind]
    match kind:
        case "stringValue":
            return _text(sent, kind)
        case "intValue":
            return _whole(sent, kind)
        case "boolValue" if isinstance(value, bool):
            return value
        case "doubleValue":
            return _number(value)
        case "arrayValue":
            items = _counted(_objects(_field(sent, kind), "values"), tally)
            return tuple(_value(each, tally, depth + 1) for each in items)
        case "kvlistValue":
            return _attributes(_field(sent, kind), tally, depth + 1, "values")
        case "bytesValue" if isinstance(value, str):
            return _bytes(value)
        case _:
            raise BadBody(f"{kind} has a value of the wrong type: {str(value)[:64]!r}")


def _object(value: Any, what: str) -> _Object:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadBody(f"{what} is no JSON object")
    found = cast("_Object", value)
    if wrong := _MISSPELT.keys() & found.keys():
        first = min(wrong)
        raise BadBody(f"{first!r} is not a key of OTLP's JSON: {_MISSPELT[first]!r} is")
    return found


def _field(owner: _Object, key: str) -> _Object:
    return _object(owner.get(key), key)


def _objects(owner: _Object, key: str) -> list[_Object]:
    value = owner.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadBody(f"{key} is no JSON array")
    return [_object(each, f"an element of {key}") for each in cast("list[Any]", value)]


def _text(owner: _Object, key: str) -> str:
    value = owner.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadBody(f"{key} is no text: {str(value)[:64]!r}")
    return value


def _whole(owner: _Object, key: str) -> int:
    """A 64-bit integer: a number, or its digits as a text, which is how numbers stay exact in JSON."""
    value = owner.get(key)
    if value is None:
        return 0
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        value = int(value)
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int or not -(1 << 63) <= value < 1 << 64:
        raise BadBody(f"{key} is no 64-bit integer: {str(value)[:64]!r}")
    if key == "intValue" and value >= 1 << 63:
        raise BadBody(f"{key} is no signed 64-bit integer: {value}")
    return value


def _number(value: Any) -> float:
    if isinstance(value, str) and value in _FLOATS:
        return _FLOATS[value]
    if type(value) is int or type(value) is float:
        try:
            return float(value)
        except OverflowError:
            pass
    raise BadBody(f"doubleValue is no number: {str(value)[:64]!r}")


def _choice(owner: _Object, key: str, names: tuple[str, ...]) -> int:
    """The number of an enumeration; 0 for one that is not known."""
    value = owner.get(key, 0)
    number = names.index(value) if value in names else value
    return number if type(number) is int and 0 <= number < len(names) else 0


def _bytes(value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except ValueError as error:
        raise BadBody(f"bytesValue is no base64: {error}") from None
