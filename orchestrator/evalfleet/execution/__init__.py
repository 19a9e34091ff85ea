"""ONE Attempt: the `t` context, its stages, deadlines and redaction."""
