"""A program with OpenTelemetry's own SDK: `exporting.py SPANS ENDPOINT…` sends so many spans to each endpoint.

The spans of the endpoint n say so in their attribute `of`, and their number in `number`.
"""

from __future__ import annotations

import sys

from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor


def main(spans: int, endpoints: list[str]) -> None:
    for start in range(0, len(endpoints), 4):
        providers = [_provider(endpoint, place) for place, endpoint in enumerate(endpoints[start : start + 4], start)]
        for number in range(spans):
            for place, provider in enumerate(providers, start):
                tracer = provider.get_tracer("exporting", "1")
                said = {
                    "of": place,
                    "number": number,
                    "gen_ai.operation.name": "chat",
                    "gen_ai.request.model": "gpt-5",
                    "gen_ai.usage.input_tokens": number,
                }
                tracer.start_span("chat gpt-5", attributes=said).end()
        for provider in providers:
            if not provider.force_flush(60_000):
                raise SystemExit("not everything was sent")
            provider.shutdown()


def _provider(endpoint: str, place: int) -> TracerProvider:
    compression = Compression.Gzip if place % 4 == 3 else Compression.NoCompression
    exporter = OTLPSpanExporter(endpoint=endpoint + "/v1/traces", compression=compression)
    provider = TracerProvider(resource=Resource.create({"service.name": f"agent {place}"}))
    provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=4096, schedule_delay_millis=60_000))
    return provider


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
