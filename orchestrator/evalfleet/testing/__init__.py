"""Shipped to users: fakes of the ports, local servers and conformance suites."""
