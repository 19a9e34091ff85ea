"""Matchers, criteria and evidence: what recorded facts say about a criterion, three-valued and pure."""
