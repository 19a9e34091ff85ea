"""Declarative suites: a document becomes values, cases and results. Pure."""
