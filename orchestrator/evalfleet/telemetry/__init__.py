"""Spans of agents: how they are read, received and understood. They never reach an assertion."""
