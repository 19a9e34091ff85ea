"""Where attempts run: the sandbox backends that evalfleet ships, each found by its entry point."""
