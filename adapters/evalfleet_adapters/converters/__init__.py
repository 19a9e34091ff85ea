"""What a provider sent → what we record. Pure: one module a format, no I/O, clock or randomness."""
