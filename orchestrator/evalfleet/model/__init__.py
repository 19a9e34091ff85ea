"""Frozen values of the domain. Pure: standard library and pydantic only."""
