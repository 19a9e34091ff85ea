"""The sandbox `kubernetes` passes the public suite, on a real cluster."""

from __future__ import annotations

from evalfleet.testing.sandbox_suite import sandbox_suite
from tests.kubernetes.cluster import IMAGE, suite_provider

DEVIATIONS = {
    "a_command_may_name_another_user": "the API's exec has no user (kubernetes/kubernetes issue 30656)",
}

TestKubernetes = sandbox_suite(suite_provider, DEVIATIONS, image=IMAGE)
