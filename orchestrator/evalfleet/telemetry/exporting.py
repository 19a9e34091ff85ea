"""evalfleet's own spans and metrics, by OpenTelemetry's SDK to a collector. Loaded only by runs that export them.

A collector that is slow or away costs spans, never an attempt: the SDK's queue is bounded, and closing gives up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from evalfleet.model.case import Case
from evalfleet.model.record import AttemptEvidence
from evalfleet.telemetry.own_spans import OwnSpan, about, attempt_spans

_SCOPE = InstrumentationScope("evalfleet")
#: Seconds that one request may take, and that closing may.
_REQUEST, CLOSING = 5.0, 10.0
_METRICS_EVERY = 10.0
#: Attributes of an attempt that its figures are counted by: those that are few.
_COUNTED_BY = ("evalfleet.arm", "evalfleet.outcome", "evalfleet.verdict", "evalfleet.failure.kind")


class OtlpExport:
    """What one worker tells of its attempts. `url` is the collector's base, as `OTEL_EXPORTER_OTLP_ENDPOINT` has it."""

    def __init__(self, run: str, url: str, headers: Mapping[str, str], worker: str) -> None:
        self._run = run
        self._resource = Resource({"service.name": "evalfleet", "service.instance.id": worker, "evalfleet.run": run})
        base, given = url.rstrip("/"), dict(headers)
        spans = OTLPSpanExporter(endpoint=f"{base}/v1/traces", headers=given, timeout=_REQUEST)
        self._spans = BatchSpanProcessor(spans, max_queue_size=16_384, schedule_delay_millis=1_000)
        metrics = OTLPMetricExporter(endpoint=f"{base}/v1/metrics", headers=given, timeout=_REQUEST)
        reader = PeriodicExportingMetricReader(metrics, export_interval_millis=_METRICS_EVERY * 1_000)
        self._meters = MeterProvider([reader], resource=self._resource, shutdown_on_exit=False)
        meter = self._meters.get_meter("evalfleet")
        self._attempts = meter.create_counter("evalfleet.attempts", "{attempt}", "Attempts that ended")
        self._seconds = meter.create_histogram("evalfleet.attempt.duration", "s", "Seconds that attempts took")
        self._usd = meter.create_counter("evalfleet.cost", "USD", "What agents cost, observed or estimated")
        self._judged = meter.create_counter("evalfleet.judge.calls", "{call}", "Calls of judges")
        self._turns = meter.create_histogram("gen_ai.client.operation.duration", "s", "Seconds that turns took")
        self._tokens = meter.create_histogram("gen_ai.client.token.usage", "{token}", "Tokens of turns")

    def tell(self, case: Case, model: str | None, evidence: AttemptEvidence, trace: str) -> None:
        """Queue what an attempt was."""
        for span in attempt_spans(self._run, case, model, evidence, trace):
            self._spans.on_end(_as_sdk(span, trace, self._resource))
        self._count(case, model, evidence)

    async def close(self) -> None:
        """Send what is queued, or give up."""
        await asyncio.wait((asyncio.ensure_future(asyncio.to_thread(self._shut)),), timeout=CLOSING)

    def _shut(self) -> None:
        self._spans.force_flush(int(_REQUEST * 1_000))
        self._spans.shutdown()
        self._meters.shutdown(timeout_millis=_REQUEST * 1_000)

    def _count(self, case: Case, model: str | None, evidence: AttemptEvidence) -> None:
        summary = evidence.summary
        told = about(self._run, case, summary)
        by = {name: told[name] for name in _COUNTED_BY if name in told}
        self._attempts.add(1, by)
        self._seconds.record(summary.duration, by)
        observed = None if summary.usage is None else summary.usage.cost_usd
        cost = summary.estimated_usd if observed is None else observed
        if cost:
            self._usd.add(cost, {"evalfleet.arm": case.arm})
        if evidence.judge_calls:
            self._judged.add(len(evidence.judge_calls), {"evalfleet.arm": case.arm})
        agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": case.arm}
        agent |= {"gen_ai.request.model": model} if model else {}
        for turn in evidence.turns:
            self._turns.record(turn.duration, agent)
            usage = turn.usage
            if usage is not None and usage.input_tokens is not None:
                self._tokens.record(usage.input_tokens, {**agent, "gen_ai.token.type": "input"})
            if usage is not None and usage.output_tokens is not None:
                self._tokens.record(usage.output_tokens, {**agent, "gen_ai.token.type": "output"})


def _as_sdk(span: OwnSpan, trace: str, resource: Resource) -> ReadableSpan:
    return ReadableSpan(
        name=span.name,
        context=_context(trace, span.id),
        parent=None if span.parent is None else _context(trace, span.parent),
        resource=resource,
        attributes=span.attributes,
        events=[Event(note.name, note.attributes, _nanos(note.at)) for note in span.notes],
        kind=SpanKind.CLIENT if span.calls else SpanKind.INTERNAL,
        status=Status(StatusCode.UNSET) if span.failure is None else Status(StatusCode.ERROR, span.failure),
        start_time=_nanos(span.begins),
        end_time=_nanos(span.ends),
        instrumentation_scope=_SCOPE,
    )


def _context(trace: str, span: str) -> SpanContext:
    return SpanContext(int(trace, 16), int(span, 16), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _nanos(seconds: float) -> int:
    return int(seconds * 1e9)
