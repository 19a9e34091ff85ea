"""Spans that an agent sent while an attempt ran: frozen values. They feed the waterfall and never an assertion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

#: What an attribute may hold: OTLP's AnyValue. None is a value that was sent empty.
AttributeValue = str | bool | int | float | bytes | tuple["AttributeValue", ...] | Mapping[str, "AttributeValue"] | None
Attributes = Mapping[str, AttributeValue]


class SpanKind(StrEnum):
    """On which side of a call a span stands, as OpenTelemetry has it."""

    UNSPECIFIED = "unspecified"
    INTERNAL = "internal"
    SERVER = "server"
    CLIENT = "client"
    PRODUCER = "producer"
    CONSUMER = "consumer"


class SpanStatus(StrEnum):
    """How what a span measured ended; `unset` where its sender did not say."""

    UNSET = "unset"
    OK = "ok"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class SpanSource:
    """Who sent spans: the resource, and the scope, which is the library that made them. Shared by many spans."""

    resource: Attributes
    scope: str
    scope_version: str


@dataclass(frozen=True, slots=True)
class SpanNote:
    """What was noted within a span (OTLP calls it an event), in nanoseconds since 1970."""

    time_ns: int
    name: str
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class SpanLink:
    """Another span that a span points at."""

    trace_id: str
    span_id: str
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class Span:
    """One span as its sender gave it. Ids are lower-case hexadecimal, 32 and 16 digits; times nanoseconds since 1970.

    `parent_id` is None for a root. No attribute is left out, whether anybody knows it or not. The sender's clock is not
    ours: `end_ns` may lie before `start_ns`.
    """

    trace_id: str
    span_id: str
    parent_id: str | None
    name: str
    kind: SpanKind
    start_ns: int
    end_ns: int
    status: SpanStatus
    status_message: str
    attributes: Attributes
    source: SpanSource
    notes: tuple[SpanNote, ...] = ()
    links: tuple[SpanLink, ...] = ()
