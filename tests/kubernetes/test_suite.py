"""The sandbox `kubernetes` passes the public suite, on a real cluster."""

from __future__ import annotations

from evalfleet.testing.sandbox_suite import sandbox_suite
from tests.kubernetes.cluster import IMAGE, provider_of

TestKubernetes = sandbox_suite(provider_of, image=IMAGE)
