"""Trace ids that say which attempt they are of, and what an agent is told of where its spans go."""

from __future__ import annotations

import re
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.resources import OTELResourceDetector
from opentelemetry.trace import get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from evalfleet.telemetry.sending import otel_environment
from evalfleet.telemetry.traces import owner_of, root_span, trace_id, traceparent


@given(st.text(min_size=1), st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1))
def test_an_id_says_whose_it_is_to_the_run_that_made_it_alone(run: str, key: int, attempt: int) -> None:
    found = trace_id(run, key, attempt)
    assert re.fullmatch("[0-9a-f]{32}", found) and found != "0" * 32
    owner = owner_of(found)
    assert (owner.run_key, owner.attempt, owner.is_of(run)) == (key, attempt, True)


def test_an_id_of_somebody_else_is_no_runs() -> None:
    of_others = [f"{number * 0x9E3779B97F4A7C15F39CC0605CEDC834 % 2**128:032x}" for number in range(1, 2000)]
    assert not any(owner_of(each).is_of("r1") for each in of_others)
    assert not owner_of(trace_id("r2", 1, 7)).is_of("r1")


def test_ids_of_attempts_that_follow_each_other_differ_everywhere() -> None:
    """Samplers decide by the low half of an id."""
    halves = {trace_id("r1", 1, (1 << 40) + number)[16:] for number in range(1000)}
    assert len(halves) == 1000 and len({half[:2] for half in halves}) > 200


def test_the_header_is_what_a_propagator_reads() -> None:
    trace = trace_id("r1", 3, 7)
    context = TraceContextTextMapPropagator().extract({"traceparent": traceparent(trace)})
    said = get_current_span(context).get_span_context()
    assert (f"{said.trace_id:032x}", f"{said.span_id:016x}") == (trace, root_span(trace))
    assert said.trace_flags.sampled


def test_what_the_environment_says_is_what_an_sdk_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    about = {"evalfleet.case": "Größe, a=b/0001", "evalfleet.run": "r1"}
    environment = otel_environment("http://127.0.0.1:1/token", "00-x", about)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = OTELResourceDetector().detect().attributes
    assert {name: unquote(str(found[name])) for name in about} == about
