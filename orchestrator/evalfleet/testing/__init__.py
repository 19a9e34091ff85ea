"""Shipped to users: fakes of the ports, local servers and conformance suites."""

from evalfleet.testing.adapter_probes import Absent, Probes
from evalfleet.testing.adapter_suite import adapter_suite

__all__ = ["Absent", "Probes", "adapter_suite"]
