"""Task packs: agents that work on a case store, whose calls are traced and whose changes are held against a policy."""
