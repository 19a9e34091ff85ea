"""Adapters shipped with evalfleet, one a protocol, found by their entry points."""
