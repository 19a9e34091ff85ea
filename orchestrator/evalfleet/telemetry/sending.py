"""How an agent is told where its spans go: the environment that OpenTelemetry's SDKs read. PURE."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

#: Milliseconds between two exports of an SDK: an agent that ends with its attempt has not much longer.
_EXPORT_EVERY = "500"


def otel_environment(base: str, parent: str, about: Mapping[str, str]) -> dict[str, str]:
    """For a receiver whose `/v1/traces` lies below `base`; `about` are attributes of the sender's resource."""
    attributes = ",".join(f"{name}={quote(value, safe='')}" for name, value in about.items())
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": base,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "none",
        "OTEL_PROPAGATORS": "tracecontext,baggage",
        "OTEL_RESOURCE_ATTRIBUTES": attributes,
        "OTEL_BSP_SCHEDULE_DELAY": _EXPORT_EVERY,
        "TRACEPARENT": parent,
    }
