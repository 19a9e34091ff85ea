"""What a worker tells a collector of its attempts, where the run has one."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from evalfleet.api.blueprint import RunBlueprint
from evalfleet.errors import ConfigurationError
from evalfleet.model.case import Case
from evalfleet.model.experiment import Telemetry
from evalfleet.model.record import AttemptEvidence
from evalfleet.plugins import own_telemetry
from evalfleet.ports import Secrets
from evalfleet.telemetry.traces import trace_id

#: Characters from which on a word of a header is taken for a secret.
_SECRET_LENGTH = 12


class OwnTelemetry:
    """The spans and metrics of one worker's attempts."""

    def __init__(self, blueprint: RunBlueprint, models: Mapping[str, str | None], export: Any) -> None:
        self._run = blueprint.run
        self._key = blueprint.run_key
        self._models = models
        self._export = export

    def tell(self, evidence: AttemptEvidence, case: Case) -> None:
        """Queue what an attempt was."""
        trace = trace_id(self._run, self._key, evidence.summary.attempt)
        self._export.tell(case, self._models.get(case.arm), evidence, trace)

    async def close(self) -> None:
        """Send what is queued, or give up within seconds."""
        await self._export.close()


def open_telemetry(blueprint: RunBlueprint, models: Mapping[str, str | None], secrets: Secrets) -> OwnTelemetry | None:
    """With the models of arms by name; None in a run that exports nothing.

    Raises ConfigurationError when it can't be exported as it is asked to.
    """
    telemetry = blueprint.experiment.telemetry
    if telemetry.export is None:
        return None
    name = telemetry.export_headers_env
    headers = {} if name is None else headers_of(secrets.resolve(name))
    worker = f"{socket.gethostname()}/{os.getpid()}"
    return OwnTelemetry(blueprint, models, own_telemetry().OtlpExport(blueprint.run, telemetry.export, headers, worker))


def header_secrets(telemetry: Telemetry, secrets: Secrets) -> set[str]:
    """The words of the headers to a collector that are no ordinary ones. Raises ConfigurationError."""
    if telemetry.export_headers_env is None:
        return set()
    values = headers_of(secrets.resolve(telemetry.export_headers_env)).values()
    return {word for value in values for word in value.split() if len(word) >= _SECRET_LENGTH}


def headers_of(text: str) -> dict[str, str]:
    """`name=value` by commas, as `OTEL_EXPORTER_OTLP_HEADERS` has them. Raises ConfigurationError."""
    found: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not part.strip():
            continue
        if not equals or not name.strip():
            raise ConfigurationError("telemetry.export_headers_env: its value is no list of name=value by commas")
        found[unquote(name.strip()).lower()] = unquote(value.strip())
    return found
