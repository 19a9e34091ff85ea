"""From files to a frozen Plan: discover, expand, select, fingerprint, reuse."""
