"""Adapters shipped with evalfleet: `python`, `http`, `openai` and `scripted`, found by their entry points."""
