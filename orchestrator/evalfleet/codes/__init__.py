"""Every error code as data: what it says, and what to check first. Pure."""
