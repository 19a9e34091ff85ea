"""Which backend a run's sandboxes have that name none, for people."""

from __future__ import annotations

from evalfleet.model.report import RunInfo
from evalfleet.model.sandbox import DEFAULT_BACKEND, DefaultBackend
from evalfleet.reports.visible import visible_line


def default_backend_of(run: RunInfo) -> DefaultBackend | None:
    """The one that the run was planned with, None in a run whose sandboxes all name theirs."""
    recorded = run.lock.get(DEFAULT_BACKEND)
    return None if recorded is None else DefaultBackend.from_json(recorded)


def default_backend_line(default: DefaultBackend) -> str:
    """`default sandbox backend bubblewrap: it works here`."""
    when = " (chosen when the run was planned)" if default.recorded else ""
    return visible_line(f"default sandbox backend {default.name or 'none'}{when}: {default.why}")
