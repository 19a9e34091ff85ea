"""Coding agents that speak the Agent Client Protocol, in the sandbox of the attempt."""
